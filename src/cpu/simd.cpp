#include "cpu/simd.h"

namespace strata::cpu {

Simd best_simd() {
    __builtin_cpu_init();
    const auto has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
    if (!has_avx2) return Simd::scalar;
    const auto has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
                            __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bitalg") &&
                            __builtin_cpu_supports("gfni");
    return has_avx512 ? Simd::avx512 : Simd::avx2;
}

std::string_view name_of(Simd simd) {
    switch (simd) {
        case Simd::scalar: return "scalar";
        case Simd::avx2: return "avx2";
        case Simd::avx512: return "avx512";
    }
    return "scalar";
}

std::optional<Simd> simd_by_name(std::string_view name) {
    for (const Simd simd : {Simd::scalar, Simd::avx2, Simd::avx512})
        if (name == name_of(simd)) return simd;
    return std::nullopt;
}

}  // namespace strata::cpu
