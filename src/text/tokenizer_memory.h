// Memory for big tables that are read at random places.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <vector>

namespace strata {

/// Takes blocks of 2 MiB and more in huge pages where the system has them: fewer page faults while a table is filled,
/// fewer misses of the address cache while it is read.
template <class T>
struct TableAllocator {
    using value_type = T;
    static constexpr size_t huge_page = size_t{2} << 20;

    TableAllocator() = default;
    template <class U>
    TableAllocator(const TableAllocator<U>&) {}

    T* allocate(size_t count) {
        const size_t bytes = count * sizeof(T);  // vectors never ask for more than max_size()
        if (bytes < huge_page) return std::allocator<T>().allocate(count);
        const size_t rounded = (bytes + huge_page - 1) / huge_page * huge_page;
        void* memory = std::aligned_alloc(huge_page, rounded);
        if (memory == nullptr) throw std::bad_alloc();
        madvise(memory, rounded, MADV_HUGEPAGE);  // a wish: it may be refused
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t count) {
        if (count * sizeof(T) < huge_page) {
            std::allocator<T>().deallocate(memory, count);
        } else {
            std::free(memory);
        }
    }
    bool operator==(const TableAllocator&) const = default;
};

template <class T>
using Table = std::vector<T, TableAllocator<T>>;

}  // namespace strata
