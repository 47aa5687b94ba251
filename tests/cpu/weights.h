// Random and extreme weights of every type, in memory that ends at a page nobody may read.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "device/tensor.h"
#include "quant/half.h"
#include "quant/types.h"

namespace strata::cpu {

/// `size` bytes whose last byte is the last of a page; the page after it faults.
class GuardedBytes {
  public:
    explicit GuardedBytes(size_t size) : size_(size) {
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        mapped_ = (size + page - 1) / page * page + page;
        base_ =
            static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(base_ + mapped_ - page, page, PROT_NONE);
        data_ = base_ + mapped_ - page - size;
    }
    ~GuardedBytes() {
        if (base_) munmap(base_, mapped_);
    }
    GuardedBytes(GuardedBytes&& other) noexcept { *this = std::move(other); }
    GuardedBytes& operator=(GuardedBytes&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(data_, other.data_);
        std::swap(mapped_, other.mapped_);
        std::swap(size_, other.size_);
        return *this;
    }

    std::byte* data() const { return data_; }
    size_t size() const { return size_; }

  private:
    std::byte *base_ = nullptr, *data_ = nullptr;
    size_t mapped_ = 0, size_ = 0;
};

/// Every type a matrix can have.
inline std::vector<Type> matrix_types() {
    std::vector<Type> types;
    for (uint32_t code = 0; code < 43; ++code) {
        const TypeInfo* info = find_type(code);
        if (!info) continue;
        if (info->quantised || info->type == Type::f32 || info->type == Type::f16 || info->type == Type::bf16)
            types.push_back(info->type);
    }
    return types;
}

inline std::vector<Type> quantised_types() {
    std::vector<Type> types;
    for (const Type type : matrix_types())
        if (type_info(type).quantised) types.push_back(type);
    return types;
}

inline std::string type_name(Type type) {
    return std::string(type_info(type).name);
}

/// A finite half: mostly of the size that files have, sometimes zero, subnormal, negative or the largest.
inline uint16_t random_half(std::mt19937& random) {
    switch (random() % 16) {
        case 0: return 0;
        case 1: return 0x8000;
        case 2: return static_cast<uint16_t>(1 + random() % 0x3ff);
        case 3: return 0x7bff;
        case 4: return 0xfbff;
        default:
            return static_cast<uint16_t>(0x0400 + random() % 0x2000) | static_cast<uint16_t>(random() % 8 ? 0 : 0x8000);
    }
}

/// Fills blocks of a type: codes, indices, signs and small scales take every pattern, half scales are finite.
inline void fill_blocks(Type type, std::byte* data, size_t size, std::mt19937& random) {
    const auto bytes_of_block = static_cast<size_t>(type_info(type).bytes);
    const auto half_at = [&](std::byte* p) {
        const uint16_t half = random_half(random);
        std::memcpy(p, &half, 2);
    };
    for (size_t at = 0; at < size; at += bytes_of_block) {
        std::byte* block = data + at;
        const int pattern = static_cast<int>(random() % 12);  // now and then all bits clear or set
        for (size_t i = 0; i < bytes_of_block; ++i)
            block[i] = pattern == 0 ? std::byte{0} : pattern == 1 ? std::byte{255} : static_cast<std::byte>(random());
        switch (type) {
            case Type::f32: {
                const float value = std::uniform_real_distribution<float>(-1, 1)(random);
                std::memcpy(block, &value, 4);
                break;
            }
            case Type::f16:
            case Type::q4_0:
            case Type::q5_0:
            case Type::q8_0:
            case Type::iq2_xxs:
            case Type::iq2_xs:
            case Type::iq2_s:
            case Type::iq3_xxs:
            case Type::iq3_s:
            case Type::iq1_s:
            case Type::iq4_nl:
            case Type::iq4_xs:
            case Type::q1_0:
            case Type::q2_0: half_at(block); break;
            case Type::bf16: {
                const uint16_t value = bf16_from_float(std::uniform_real_distribution<float>(-1, 1)(random));
                std::memcpy(block, &value, 2);
                break;
            }
            case Type::q4_1:
            case Type::q5_1:
            case Type::q4_k:
            case Type::q5_k: half_at(block), half_at(block + 2); break;
            case Type::q2_k: half_at(block + 80), half_at(block + 82); break;
            case Type::q3_k: half_at(block + 108); break;
            case Type::q6_k: half_at(block + 208); break;
            case Type::tq1_0: half_at(block + 52); break;
            case Type::tq2_0: half_at(block + 64); break;
            case Type::iq1_m: {
                const uint16_t half = random_half(random);
                for (int j = 0; j < 4; ++j) {
                    auto& top = block[48 + 2 * j + 1];
                    top = (top & std::byte{15}) | static_cast<std::byte>((half >> 4 * j & 15) << 4);
                }
                break;
            }
            case Type::mxfp4:  // exponents 0 and 1 are subnormal
                block[0] = static_cast<std::byte>(random() % 4 ? 100 + random() % 50 : random() % 3);
                break;
            default: break;
        }
    }
}

/// Matrices of random weights, `count` of [rows, cols] with `gap` bytes between them.
struct TestMatrix {
    GuardedBytes memory{1};
    Matrix matrix;

    TestMatrix(Type type, int rows, int cols, std::mt19937& random, int count = 1, int gap = 0) {
        const size_t one = row_bytes(type, static_cast<uint64_t>(cols)) * static_cast<size_t>(rows);
        const size_t stride = one + static_cast<size_t>(gap);
        memory = GuardedBytes(stride * static_cast<size_t>(count - 1) + one);
        for (int i = 0; i < count; ++i) fill_blocks(type, memory.data() + stride * static_cast<size_t>(i), one, random);
        matrix = {type, rows, cols, count, static_cast<int64_t>(stride), memory.data(), nullptr};
    }

    const std::byte* row(int which, int r) const {
        return matrix.data + matrix.stride * which +
               row_bytes(matrix.type, static_cast<uint64_t>(matrix.cols)) * static_cast<uint64_t>(r);
    }
};

}  // namespace strata::cpu
