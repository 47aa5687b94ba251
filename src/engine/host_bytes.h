// A block of host memory that is not zeroed first and whose absence is an answer, not an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace strata {

class HostBytes {
  public:
    HostBytes() = default;
    HostBytes(HostBytes&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
    HostBytes& operator=(HostBytes&& other) noexcept {
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }

    /// Room for `size` bytes; false and empty where there is no memory.
    bool resize(uint64_t size) {
        data_.reset(new (std::nothrow) std::byte[size]);
        size_ = data_ ? size : 0;
        return data_ != nullptr;
    }

    std::byte* data() { return data_.get(); }
    const std::byte* data() const { return data_.get(); }
    uint64_t size() const { return size_; }
    std::span<std::byte> span() { return {data_.get(), size_}; }
    std::span<const std::byte> span() const { return {data_.get(), size_}; }

  private:
    std::unique_ptr<std::byte[]> data_;
    uint64_t size_ = 0;
};

}  // namespace strata
