#include "synth/mix.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "quant/presets.h"

namespace strata::synth {
namespace {

/// Mixes made with override lists: routed experts by matrix, everything else Q8_0 but for the head.
struct ExpertMix {
    std::string_view name;
    uint32_t file_type;
    Type gate_up;
    Type down;
    Type edge_gate_up;  // in the first `first` and last `last` trunk layers, and in draft blocks where `draft`
    Type edge_down;
    int first, last;
    bool draft;
    std::string_view description;
};

constexpr ExpertMix kExpertMixes[] = {
    {"ud-q8_0", 7, Type::q8_0, Type::q8_0, Type::q8_0, Type::q8_0, 0, 0, false, "everything Q8_0, head Q6_K"},
    {"ud-q6_k", 18, Type::q6_k, Type::q6_k, Type::q8_0, Type::q8_0, 3, 2, false, "experts Q6_K"},
    {"ud-q4_k_m", 15, Type::q4_k, Type::q5_k, Type::q4_k, Type::q6_k, 3, 2, false,
     "experts Q4_K / Q5_K, downs at the edges Q6_K"},
    {"ud-q4_k_xl", 15, Type::q4_k, Type::q5_k, Type::q4_k, Type::q5_k, 0, 0, false, "experts Q4_K / Q5_K"},
    {"ud-q3_k_m", 12, Type::iq3_xxs, Type::iq4_xs, Type::q3_k, Type::q4_k, 2, 2, true,
     "experts IQ3_XXS / IQ4_XS, edges Q3_K / Q4_K"},
    {"ud-q3_k_xl", 12, Type::iq3_xxs, Type::iq4_xs, Type::iq3_xxs, Type::iq4_xs, 0, 0, false,
     "experts IQ3_XXS / IQ4_XS"},
    {"ud-iq3_xxs", 23, Type::iq2_s, Type::iq3_xxs, Type::iq2_s, Type::iq3_xxs, 0, 0, false, "experts IQ2_S / IQ3_XXS"},
    {"ud-q2_k_xl", 10, Type::iq2_xs, Type::iq3_xxs, Type::iq2_xs, Type::iq3_xxs, 0, 0, false,
     "experts IQ2_XS / IQ3_XXS"},
    {"ud-iq2_xxs", 19, Type::iq2_xxs, Type::iq3_xxs, Type::iq2_xxs, Type::iq3_xxs, 0, 0, false,
     "experts IQ2_XXS / IQ3_XXS"},
};

/// APEX: types by how near a layer is to the edges.
struct ApexMix {
    std::string_view name;
    Type edge, near, middle;         // routed experts
    Type shared_edge, shared_other;  // shared expert
    Type dense_edge, dense_other;    // attention and recurrent matrices
};
constexpr ApexMix kApexMixes[] = {
    {"apex-i-quality", Type::q6_k, Type::q5_k, Type::iq4_xs, Type::q8_0, Type::q8_0, Type::q6_k, Type::q6_k},
    {"apex-i-balanced", Type::q6_k, Type::q5_k, Type::q5_k, Type::q8_0, Type::q8_0, Type::q6_k, Type::q6_k},
    {"apex-i-compact", Type::q4_k, Type::q3_k, Type::q3_k, Type::q6_k, Type::q6_k, Type::q4_k, Type::q4_k},
    {"apex-i-mini", Type::q3_k, Type::q3_k, Type::iq2_s, Type::q5_k, Type::q4_k, Type::q4_k, Type::q3_k},
    {"apex-i-nano", Type::q3_k, Type::iq2_s, Type::iq2_xxs, Type::q5_k, Type::q4_k, Type::q4_k, Type::q3_k},
    {"apex-i-micro", Type::q3_k, Type::iq2_xs, Type::iq1_m, Type::q5_k, Type::q4_k, Type::q4_k, Type::q3_k},
};

bool is_expert(std::string_view rest) {
    return rest.find("_exps.") != std::string_view::npos;
}
bool is_shared_expert(std::string_view rest) {
    return rest.find("_shexp.") != std::string_view::npos;
}
bool is_down(std::string_view rest) {
    return rest.starts_with("ffn_down");
}

/// The head and the embedding of all override mixes. A tied embedding is the head.
Type outer(std::string_view rest, bool has_output) {
    return rest == "output.weight" || !has_output ? Type::q6_k : Type::q8_0;
}

template <class Rule>
std::vector<Type> by_rule(const MixModel& model, Rule rule) {
    const bool has_output = std::any_of(model.tensors.begin(), model.tensors.end(),
                                        [](const MixTensor& tensor) { return tensor.name == "output.weight"; });
    int trunk = model.blocks;  // draft blocks are the ones that hold nextn tensors
    for (const MixTensor& tensor : model.tensors) {
        const auto [block, rest] = split_block_name(tensor.name);
        if (block >= 0 && rest.starts_with("nextn.")) trunk = std::min(trunk, block);
    }
    std::vector<Type> types;
    for (const MixTensor& tensor : model.tensors) {
        const auto [block, rest] = split_block_name(tensor.name);
        Type type = Type::q8_0;
        if (tensor.fixed)
            type = *tensor.fixed;
        else if (rest == "output.weight" || rest == "token_embd.weight")
            type = fitting_type(outer(rest, has_output), static_cast<int64_t>(tensor.dims[0]));
        else if (rest == "per_layer_token_embd.weight")
            type = Type::iq4_nl;  // a huge table of short rows: as published files have it
        else
            type = fitting_type(rule(block, rest, trunk), static_cast<int64_t>(tensor.dims[0]));
        types.push_back(type);
    }
    return types;
}

std::vector<Type> apply_expert_mix(const ExpertMix& mix, const MixModel& model) {
    return by_rule(model, [&](int block, std::string_view rest, int trunk) {
        if (!is_expert(rest)) return Type::q8_0;
        const bool edge = block >= trunk ? mix.draft : block < mix.first || block >= trunk - mix.last;
        if (is_down(rest)) return edge ? mix.edge_down : mix.down;
        return edge ? mix.edge_gate_up : mix.gate_up;
    });
}

std::vector<Type> apply_apex(const ApexMix& mix, const MixModel& model) {
    return by_rule(model, [&](int block, std::string_view rest, int trunk) {
        const int from_edge = std::min(block, std::max(trunk - 1 - block, 0));
        if (is_expert(rest)) return from_edge < 5 ? mix.edge : from_edge < 10 ? mix.near : mix.middle;
        if (is_shared_expert(rest)) return from_edge < 5 ? mix.shared_edge : mix.shared_other;
        return block < 0 ? Type::q6_k : from_edge < 3 ? mix.dense_edge : mix.dense_other;
    });
}

constexpr std::string_view kExperts = "experts-";

/// A preset's name as mixes are written ("q4_k_m"; MXFP4_MOE is plain "mxfp4").
std::string stock_name(Preset preset) {
    if (preset == Preset::mxfp4_moe) return "mxfp4";
    std::string name(preset_name(preset));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return name;
}

std::vector<Type> apply_stock(Preset preset, const MixModel& model) {
    std::vector<PresetTensor> tensors;
    for (const MixTensor& tensor : model.tensors) {
        const auto dims = std::count_if(tensor.dims.begin(), tensor.dims.end(), [](uint64_t dim) { return dim > 1; });
        tensors.push_back({tensor.name, static_cast<int>(dims), static_cast<int64_t>(tensor.dims[0])});
    }
    const auto rules = preset_types(preset, {model.blocks, model.heads, model.kv_heads, model.experts, false}, tensors);
    std::vector<Type> types;  // what neither the model nor the rules fix would be kept from a source: half precision
    for (size_t i = 0; i < rules.size(); ++i)
        types.push_back(model.tensors[i].fixed ? *model.tensors[i].fixed : rules[i].value_or(Type::f16));
    return types;
}

}  // namespace

BlockName split_block_name(std::string_view name) {
    int block = -1;
    if (!name.starts_with("blk.")) return {-1, name};
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), block);
    if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {-1, name};
    return {block, name.substr(static_cast<size_t>(end - name.data()) + 1)};
}

std::vector<MixName> mixes() {
    std::vector<MixName> names;
    for (const ExpertMix& mix : kExpertMixes)
        names.push_back({std::string(mix.name), std::string(mix.description) + ", dense Q8_0, head Q6_K"});
    for (const ApexMix& mix : kApexMixes)
        names.push_back({std::string(mix.name), "types by distance from the first and last layer"});
    names.push_back(
        {"experts-TYPE", "every routed expert of one type (experts-iq2_s, experts-mxfp4, ...), dense Q8_0, head Q6_K"});
    for (const Preset preset : presets())
        names.push_back({stock_name(preset), "the usual quantiser's preset of this name"});
    return names;
}

Result<Mix> apply_mix(std::string_view name, const MixModel& model) {
    for (const ExpertMix& mix : kExpertMixes)
        if (mix.name == name) return Mix{apply_expert_mix(mix, model), mix.file_type};
    for (const ApexMix& mix : kApexMixes)
        if (mix.name == name) return Mix{apply_apex(mix, model), static_cast<uint32_t>(Preset::q4_k_m)};
    for (const Preset preset : presets())
        if (stock_name(preset) == name) return Mix{apply_stock(preset, model), static_cast<uint32_t>(preset)};
    if (name.starts_with(kExperts)) {
        const auto type = type_by_name(name.substr(kExperts.size()));
        if (type && (type_info(*type).quantised || *type == Type::f32 || *type == Type::f16 || *type == Type::bf16)) {
            const ExpertMix mix = {name, static_cast<uint32_t>(Preset::q8_0), *type, *type, *type, *type, 0, 0, false,
                                   {}};
            return Mix{apply_expert_mix(mix, model), mix.file_type};
        }
    }
    std::string message = "unknown mix '" + std::string(name) + "'; there are";
    const char* between = " ";
    for (const MixName& known : mixes()) {
        message += between + known.name;
        between = ", ";
    }
    return usage_error(std::move(message));
}

}  // namespace strata::synth
