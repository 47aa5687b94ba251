#include "quant/types.h"

#include <array>
#include <cctype>

namespace strata {
namespace {

constexpr std::array<TypeInfo, 33> kTypes = {{
    {Type::f32, "F32", 1, 4, false},
    {Type::f16, "F16", 1, 2, false},
    {Type::q4_0, "Q4_0", 32, 18, true},
    {Type::q4_1, "Q4_1", 32, 20, true},
    {Type::q5_0, "Q5_0", 32, 22, true},
    {Type::q5_1, "Q5_1", 32, 24, true},
    {Type::q8_0, "Q8_0", 32, 34, true},
    {Type::q2_k, "Q2_K", 256, 84, true},
    {Type::q3_k, "Q3_K", 256, 110, true},
    {Type::q4_k, "Q4_K", 256, 144, true},
    {Type::q5_k, "Q5_K", 256, 176, true},
    {Type::q6_k, "Q6_K", 256, 210, true},
    {Type::iq2_xxs, "IQ2_XXS", 256, 66, true},
    {Type::iq2_xs, "IQ2_XS", 256, 74, true},
    {Type::iq3_xxs, "IQ3_XXS", 256, 98, true},
    {Type::iq1_s, "IQ1_S", 256, 50, true},
    {Type::iq4_nl, "IQ4_NL", 32, 18, true},
    {Type::iq3_s, "IQ3_S", 256, 110, true},
    {Type::iq2_s, "IQ2_S", 256, 82, true},
    {Type::iq4_xs, "IQ4_XS", 256, 136, true},
    {Type::i8, "I8", 1, 1, false},
    {Type::i16, "I16", 1, 2, false},
    {Type::i32, "I32", 1, 4, false},
    {Type::i64, "I64", 1, 8, false},
    {Type::f64, "F64", 1, 8, false},
    {Type::iq1_m, "IQ1_M", 256, 56, true},
    {Type::bf16, "BF16", 1, 2, false},
    {Type::tq1_0, "TQ1_0", 256, 54, true},
    {Type::tq2_0, "TQ2_0", 256, 66, true},
    {Type::mxfp4, "MXFP4", 32, 17, true},
    {Type::nvfp4, "NVFP4", 64, 36, true},
    {Type::q1_0, "Q1_0", 128, 18, true},
    {Type::q2_0, "Q2_0", 64, 18, true},
}};

/// Places in kTypes by code, plus one: products ask for every tile's type.
constexpr std::array<uint8_t, 64> kPlaces = [] {
    std::array<uint8_t, 64> places{};
    for (size_t i = 0; i < kTypes.size(); ++i)
        places[static_cast<size_t>(kTypes[i].type)] = static_cast<uint8_t>(i + 1);
    return places;
}();

}  // namespace

const TypeInfo* find_type(uint32_t code) {
    const uint8_t place = code < kPlaces.size() ? kPlaces[code] : uint8_t{0};
    return place > 0 ? &kTypes[place - 1u] : nullptr;
}

const TypeInfo& type_info(Type type) {
    const TypeInfo* info = find_type(static_cast<uint32_t>(type));
    return info ? *info : kTypes[0];
}

std::optional<Type> type_by_name(std::string_view name) {
    for (const TypeInfo& info : kTypes) {
        if (info.name.size() != name.size()) continue;
        bool same = true;
        for (size_t i = 0; i < name.size(); ++i)
            same = same && std::toupper(static_cast<unsigned char>(name[i])) == info.name[i];
        if (same) return info.type;
    }
    return std::nullopt;
}

}  // namespace strata
