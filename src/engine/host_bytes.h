// A block of host memory that is not zeroed first, whose absence is an answer, not an exception, and whose bytes may
// still be on their way from a device: whoever looks at them, or ends them, waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "device/device.h"

namespace strata {

class HostBytes {
  public:
    HostBytes() = default;
    ~HostBytes() { wait(); }
    HostBytes(HostBytes&& other) noexcept
        : data_(std::move(other.data_)),
          size_(std::exchange(other.size_, 0)),
          coming_from_(std::exchange(other.coming_from_, nullptr)) {}
    HostBytes& operator=(HostBytes&& other) noexcept {
        wait();
        data_ = std::move(other.data_);
        size_ = std::exchange(other.size_, 0);
        coming_from_ = std::exchange(other.coming_from_, nullptr);
        return *this;
    }

    /// Room for `size` bytes; false and empty where there is no memory.
    bool resize(uint64_t size) {
        wait();
        data_.reset(new (std::nothrow) std::byte[size]);
        size_ = data_ ? size : 0;
        return data_ != nullptr;
    }
    /// The bytes are filled by Device::copy_to_host_later. The device outlives them.
    void coming_from(Device& device) { coming_from_ = &device; }

    std::byte* data() {
        wait();
        return data_.get();
    }
    const std::byte* data() const {
        wait();
        return data_.get();
    }
    uint64_t size() const { return size_; }
    std::span<std::byte> span() { return {data(), size_}; }
    std::span<const std::byte> span() const { return {data(), size_}; }

  private:
    void wait() const {
        if (Device* device = std::exchange(coming_from_, nullptr)) device->finish_copies();
    }

    std::unique_ptr<std::byte[]> data_;
    uint64_t size_ = 0;
    mutable Device* coming_from_ = nullptr;
};

}  // namespace strata
