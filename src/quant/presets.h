// Which type each tensor of a file gets under a named preset ("Q4_K_M"): the rules by which most published files were
// made. Source: specs page quants, section 8.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/types.h"

namespace strata {

/// A preset; the value is what such a file's general.file_type says.
enum class Preset : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q8_0 = 7,
    q5_0 = 8,
    q5_1 = 9,
    q2_k = 10,
    q3_k_s = 11,
    q3_k_m = 12,
    q3_k_l = 13,
    q4_k_s = 14,
    q4_k_m = 15,
    q5_k_s = 16,
    q5_k_m = 17,
    q6_k = 18,
    iq2_xxs = 19,
    iq2_xs = 20,
    q2_k_s = 21,
    iq3_xs = 22,
    iq3_xxs = 23,
    iq1_s = 24,
    iq4_nl = 25,
    iq3_s = 26,
    iq3_m = 27,
    iq2_s = 28,
    iq2_m = 29,
    iq4_xs = 30,
    iq1_m = 31,
    bf16 = 32,
    tq1_0 = 36,
    tq2_0 = 37,
    mxfp4_moe = 38,
    nvfp4 = 39,
    q1_0 = 40,
    q2_0 = 41,
};

/// The preset with this name, in any case ("q4_k_m"), and the name of one.
std::optional<Preset> preset_by_name(std::string_view name);
std::string_view preset_name(Preset preset);

/// All of them.
std::vector<Preset> presets();

/// The type for rows of this width where `type`'s blocks do not divide them: what quantisers fall back to.
Type fitting_type(Type type, int64_t width);

/// What the rules read of a model.
struct PresetModel {
    int layers = 0;  // blocks, draft blocks included
    int heads = 0;   // of queries
    int kv_heads = 0;
    int experts = 0;          // 0: none
    bool importance = false;  // the quantiser has an importance matrix
};

struct PresetTensor {
    std::string name;
    int dims = 2;       // dimensions longer than 1
    int64_t width = 0;  // values of a row
};

/// The type of every tensor, in the order given, which must be the order of the file (some rules count). Nothing for
/// tensors that no preset touches: they keep the source's type, one-dimensional ones are F32. The presets F32, F16 and
/// BF16 give all others that type.
std::vector<std::optional<Type>> preset_types(Preset preset, const PresetModel& model,
                                              std::span<const PresetTensor> tensors);

}  // namespace strata
