// A sequence that grows without moving what it holds: its longest append is the allocation of one segment, and
// references stay valid. For what grows token by token while an answer is written.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace strata {

template <class T>
class Segments {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    size_t size() const { return size_; }
    T& operator[](size_t i) { return segments_[i / kSegment][i % kSegment]; }
    const T& operator[](size_t i) const { return segments_[i / kSegment][i % kSegment]; }
    T& back() { return (*this)[size_ - 1]; }

    void push_back(const T& value) {
        if (size_ == segments_.size() * kSegment) segments_.push_back(std::make_unique_for_overwrite<T[]>(kSegment));
        (*this)[size_++] = value;
    }
    void pop_back() { --size_; }
    /// Keeps the first `size`; the memory stays for what comes.
    void shrink(size_t size) { size_ = size; }

  private:
    static constexpr size_t kSegment = 1024;

    std::vector<std::unique_ptr<T[]>> segments_;
    size_t size_ = 0;
};

}  // namespace strata
