#include "quant/presets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <initializer_list>

namespace strata {
namespace {

using P = Preset;
using T = Type;

struct PresetInfo {
    Preset preset;
    std::string_view name;
    Type type;  // of tensors that no rule names
};

constexpr PresetInfo kPresets[] = {
    {P::f32, "F32", T::f32},
    {P::f16, "F16", T::f16},
    {P::bf16, "BF16", T::bf16},
    {P::q4_0, "Q4_0", T::q4_0},
    {P::q4_1, "Q4_1", T::q4_1},
    {P::q5_0, "Q5_0", T::q5_0},
    {P::q5_1, "Q5_1", T::q5_1},
    {P::q8_0, "Q8_0", T::q8_0},
    {P::q2_k, "Q2_K", T::q2_k},
    {P::q2_k_s, "Q2_K_S", T::q2_k},
    {P::q3_k_s, "Q3_K_S", T::q3_k},
    {P::q3_k_m, "Q3_K_M", T::q3_k},
    {P::q3_k_l, "Q3_K_L", T::q3_k},
    {P::q4_k_s, "Q4_K_S", T::q4_k},
    {P::q4_k_m, "Q4_K_M", T::q4_k},
    {P::q5_k_s, "Q5_K_S", T::q5_k},
    {P::q5_k_m, "Q5_K_M", T::q5_k},
    {P::q6_k, "Q6_K", T::q6_k},
    {P::iq1_s, "IQ1_S", T::iq1_s},
    {P::iq1_m, "IQ1_M", T::iq1_m},
    {P::iq2_xxs, "IQ2_XXS", T::iq2_xxs},
    {P::iq2_xs, "IQ2_XS", T::iq2_xs},
    {P::iq2_s, "IQ2_S", T::iq2_xs},
    {P::iq2_m, "IQ2_M", T::iq2_s},
    {P::iq3_xxs, "IQ3_XXS", T::iq3_xxs},
    {P::iq3_xs, "IQ3_XS", T::iq3_s},
    {P::iq3_s, "IQ3_S", T::iq3_s},
    {P::iq3_m, "IQ3_M", T::iq3_s},
    {P::iq4_nl, "IQ4_NL", T::iq4_nl},
    {P::iq4_xs, "IQ4_XS", T::iq4_xs},
    {P::tq1_0, "TQ1_0", T::tq1_0},
    {P::tq2_0, "TQ2_0", T::tq2_0},
    {P::mxfp4_moe, "MXFP4_MOE", T::mxfp4},
    {P::nvfp4, "NVFP4", T::nvfp4},
    {P::q1_0, "Q1_0", T::q1_0},
    {P::q2_0, "Q2_0", T::q2_0},
};

const PresetInfo& info_of(Preset preset) {
    return *std::find_if(std::begin(kPresets), std::end(kPresets), [&](const auto& p) { return p.preset == preset; });
}

bool one_of(Preset preset, std::initializer_list<Preset> list) {
    return std::find(list.begin(), list.end(), preset) != list.end();
}

bool has(std::string_view name, std::string_view part) {
    return name.find(part) != std::string_view::npos;
}

bool untouched(const PresetTensor& tensor) {
    if (tensor.dims < 2 || !tensor.name.ends_with("weight")) return true;
    for (const char* part : {"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "ssm_conv1d",
                             "shortconv.conv.weight", "per_layer_model_proj", "altup", "laurel",
                             "indexer.k_proj.weight", "indexer.q_proj.weight", "position_embd", "patch_embd"})
        if (has(tensor.name, part)) return true;
    return false;
}

/// The number N of "blk.N.", 0 for tensors outside of blocks.
int block_index(std::string_view name) {
    int index = 0;
    if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), index);
    return index;
}

/// The rules, applied to the tensors of a file in order.
class Rules {
  public:
    Rules(Preset preset, const PresetModel& model, std::span<const PresetTensor> tensors)
        : preset_(preset), model_(model) {
        for (const PresetTensor& tensor : tensors) {
            has_output_ = has_output_ || tensor.name == "output.weight";
            value_tensors_ += !untouched(tensor) && value_like(tensor.name);
        }
        grouped_ = model.kv_heads > 0 && model.heads / model.kv_heads >= 4;
    }

    Type choose(const PresetTensor& tensor) {
        const std::string_view name = tensor.name;
        if (one_of(preset_, {P::f32, P::f16, P::bf16})) return standard();
        const bool output = name == "output.weight" || (name == "token_embd.weight" && !has_output_);
        if (preset_ == P::mxfp4_moe) return tensor.dims >= 3 && !output ? T::mxfp4 : T::q8_0;
        return fitting_type(output                                                     ? output_type(tensor.width)
                            : name == "token_embd.weight"                              ? embedding_type()
                            : value_like(name)                                         ? value_type(value_index_++)
                            : has(name, "attn_k.weight") || has(name, "attn_q.weight") ? query_key_type()
                            : has(name, "attn_output.weight")                          ? attention_output_type()
                            : has(name, "ffn_down")                        ? down_type(block_index(name), down_index_++)
                            : has(name, "ffn_gate") || has(name, "ffn_up") ? gate_up_type(block_index(name))
                                                                           : standard(),
                            tensor.width);
    }

  private:
    static bool value_like(std::string_view name) {
        return has(name, "attn_v.weight") || has(name, "attn_qkv.weight") || has(name, "attn_kv_b.weight");
    }

    Type standard() const { return info_of(preset_).type; }

    /// The first and last eighth of n and every third between them.
    static bool more(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

    Type output_type(int64_t width) const {
        if (width % type_info(standard()).block != 0) return T::q8_0;
        if (one_of(preset_, {P::iq1_s, P::iq1_m, P::iq2_xxs, P::iq2_xs, P::iq2_s, P::iq2_m, P::iq3_xxs}))
            return T::q5_k;
        return preset_ == P::q8_0 ? T::q8_0 : T::q6_k;
    }

    Type embedding_type() const {
        if (one_of(preset_, {P::iq1_s, P::iq1_m, P::iq2_xxs, P::iq2_xs})) return T::q2_k;
        if (one_of(preset_, {P::iq2_s, P::iq2_m, P::iq3_xxs})) return T::iq3_s;
        if (one_of(preset_, {P::tq1_0, P::tq2_0, P::q2_0})) return T::q4_k;
        return standard();
    }

    /// Number j of the tensors that hold values.
    Type value_type(int j) const {
        switch (preset_) {
            case P::iq1_s:
            case P::iq1_m:
            case P::iq2_xxs:
            case P::iq2_xs: return grouped_ || model_.experts >= 4 ? T::q4_k : T::q2_k;
            case P::iq2_s:
            case P::iq2_m: return grouped_ || model_.experts >= 4 ? T::q4_k : T::iq3_s;
            case P::q2_k: return grouped_ ? T::q4_k : T::q3_k;
            case P::q2_k_s:
            case P::iq3_xs:
            case P::iq3_s: return grouped_ ? T::q4_k : standard();
            case P::iq3_xxs: return grouped_ ? T::q4_k : model_.importance ? T::iq3_xxs : T::iq3_s;
            case P::iq3_m: return T::q4_k;
            case P::q3_k_m: return j < 2 ? T::q5_k : T::q4_k;
            case P::q3_k_l: return T::q5_k;
            case P::iq4_nl:
            case P::iq4_xs: return grouped_ ? T::q5_k : standard();
            case P::q4_k_m:
            case P::q5_k_m: return more(j, value_tensors_) ? T::q6_k : standard();
            case P::q4_k_s: return j < 4 ? T::q5_k : standard();
            default: return standard();
        }
    }

    Type query_key_type() const {
        if (preset_ == P::iq3_xs) return T::iq3_xxs;
        return preset_ == P::iq3_xxs ? T::iq2_s : standard();
    }

    Type attention_output_type() const {
        if (preset_ == P::q2_k) return T::q3_k;
        if (one_of(preset_, {P::iq3_xxs, P::iq2_s, P::iq2_m})) return T::iq3_s;
        if (one_of(preset_, {P::q3_k_m, P::iq3_m})) return T::q4_k;
        if (preset_ == P::q3_k_l) return T::q5_k;
        return one_of(preset_, {P::iq1_s, P::iq1_m}) ? T::iq2_xxs : standard();
    }

    /// Block i, number j of the down projections in the file.
    Type down_type(int i, int j) const {
        const int n = model_.layers;
        const bool early = i < n / 8;
        switch (preset_) {
            case P::q2_k: return T::q3_k;
            case P::q2_k_s: return early ? T::q4_k : standard();
            case P::iq3_xxs: return model_.importance ? standard() : early ? T::q4_k : T::q3_k;
            case P::q3_k_m: return i < n / 16 ? T::q5_k : T::q4_k;
            case P::q3_k_l: return T::q5_k;
            case P::iq3_m: return early ? T::q4_k : standard();
            case P::q4_k_m:
            case P::q5_k_m: return more(i, n) ? T::q6_k : standard();
            case P::q4_k_s: return early ? T::q5_k : standard();
            case P::iq4_nl:
            case P::iq4_xs: return early && !model_.importance ? T::q5_k : standard();
            case P::q4_0: return early && model_.importance ? T::q4_1 : standard();
            case P::q5_0: return early && model_.importance ? T::q5_1 : standard();
            case P::iq1_s:
            case P::iq1_m:
            case P::iq2_xxs:
            case P::iq2_xs: return j < n / 8 ? T::q2_k : standard();
            case P::iq2_s:
            case P::iq2_m: return j < n / 8 ? T::iq3_s : standard();
            default: return standard();
        }
    }

    Type gate_up_type(int i) const {
        const int n = model_.layers;
        return preset_ == P::iq3_xs && i >= n / 8 && i < 7 * n / 8 ? T::iq3_xxs : standard();
    }

    Preset preset_;
    PresetModel model_;
    bool has_output_ = false;
    bool grouped_ = false;  // at least four query heads a kv head
    int value_tensors_ = 0;
    int value_index_ = 0;
    int down_index_ = 0;
};

}  // namespace

Type fitting_type(Type type, int64_t width) {
    if (width % type_info(type).block == 0) return type;
    switch (type) {
        case T::q2_k:
        case T::q3_k:
        case T::q2_0:
        case T::tq1_0:
        case T::tq2_0: type = T::q4_0; break;
        case T::q4_k: type = T::q5_0; break;
        case T::q5_k: type = T::q5_1; break;
        case T::q6_k: type = T::q8_0; break;
        default: type = T::iq4_nl; break;
    }
    return width % type_info(type).block == 0 ? type : T::f16;
}

std::vector<Preset> presets() {
    std::vector<Preset> all;
    for (const PresetInfo& info : kPresets) all.push_back(info.preset);
    return all;
}

std::optional<Preset> preset_by_name(std::string_view name) {
    const auto same = [](char a, char b) { return std::toupper(static_cast<unsigned char>(a)) == b; };
    for (const PresetInfo& info : kPresets)
        if (std::equal(name.begin(), name.end(), info.name.begin(), info.name.end(), same)) return info.preset;
    return std::nullopt;
}

std::string_view preset_name(Preset preset) {
    return info_of(preset).name;
}

std::vector<std::optional<Type>> preset_types(Preset preset, const PresetModel& model,
                                              std::span<const PresetTensor> tensors) {
    Rules rules(preset, model, tensors);
    std::vector<std::optional<Type>> out;
    out.reserve(tensors.size());
    for (const PresetTensor& tensor : tensors) {
        if (untouched(tensor))
            out.push_back(std::nullopt);
        else
            out.push_back(rules.choose(tensor));
    }
    return out;
}

}  // namespace strata
