#include <algorithm>
#include <cmath>

#include "synth/mix.h"
#include "synth/model.h"
#include "synth/synth.h"

namespace strata::synth {
namespace {

Result<const ModelPreset*> find_preset(std::string_view name) {
    for (const ModelPreset& preset : model_presets())
        if (preset.name == name) return &preset;
    std::string message = "unknown preset '" + std::string(name) + "'; there are ";
    for (const ModelPreset& preset : model_presets()) {
        if (&preset != &model_presets().front()) message += ", ";
        message += preset.name;
    }
    return usage_error(std::move(message));
}

/// A number as a flag's value: no locale, no trailing zeros.
std::string short_number(float value) {
    std::string text = std::to_string(value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
}

/// The command line that makes the same file, for its description.
std::string flags_of(const Options& options) {
    std::string text = " --like " + options.preset;
    if (options.layers) text += " --layers " + std::to_string(options.layers);
    text += " --mix " + options.mix + " --seed " + std::to_string(options.seed);
    if (options.skew != 1) text += " --skew " + short_number(options.skew);
    if (!options.draft) text += " --no-draft";
    return text;
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
    static const std::vector<ModelPreset> presets = {
        {"qwen3.6-35b-a3b", "Qwen3.6-35B-A3B", "qwen35moe", 40, 1, build_qwen36},
        {"clover-35b-a3b", "Clover-35B-A3B-Preview", "clover_moe", 40, 1, build_clover},
        {"gemma-4-26b-a4b", "Gemma 4 26B-A4B", "gemma4", 30, 1, build_gemma4},
        {"gemma-4-26b-a4b-assistant", "Gemma 4 26B-A4B draft model", "gemma4-assistant", 4, 4, build_gemma4_assistant},
        {"lfm2.5-24b-a2b", "LFM2.5-24B-A2B", "lfm2moe", 40, 1, build_lfm25_24b},
        {"lfm2-8b-a1b", "LFM2-8B-A1B", "lfm2moe", 24, 1, build_lfm2_8b},
        {"kolibri-1", "Kolibri 1 78B-A3.5B", "kolibri1", 50, 1, build_kolibri1},
        {"flint-40b-a2.5b", "Flint 40B-A2.5B", "flint", 49, 1, build_flint},
        {"deepseek-v4-flash", "DeepSeek V4 Flash", "deepseek4", 43, 1, build_deepseek4},
        {"deepseek-v4-flash-draft", "DeepSeek V4 Flash draft block", "deepseek4", 43, 1, build_deepseek4_draft},
        {"glm-5.3-flash", "GLM 5.3 Flash", "glm5-next", 45, 1, build_glm5_next},
        {"qwen3.8-flash-next", "Qwen3.8-Flash-Next", "qwen4exp", 48, 1, build_qwen4exp},
        {"qwen3.8-flash-next-draft", "Qwen3.8-Flash-Next draft block", "qwen4exp", 48, 1, build_qwen4exp_draft},
    };
    return presets;
}

std::vector<PresetName> presets() {
    std::vector<PresetName> names;
    for (const ModelPreset& preset : model_presets()) names.push_back({preset.name, preset.title});
    return names;
}

Result<Model> shapes(const Options& options) {
    STRATA_TRY_ASSIGN(const ModelPreset* const preset, find_preset(options.preset));
    const int layers = options.layers == 0 ? preset->layers : options.layers;
    if (layers < 1 || layers > preset->layers || layers % preset->step != 0)
        return usage_error(std::string(preset->name) + " has " + std::to_string(preset->layers) +
                           " layers; it cannot be made with " + std::to_string(options.layers));
    if (!(options.skew >= 0 && options.skew <= 10)) return usage_error("the skew of experts must be from 0 to 10");

    Model model(preset->architecture, options);
    model.title = preset->title;
    if (layers != preset->layers)
        model.title += ", " + std::to_string(layers) + " of " + std::to_string(preset->layers) + " layers";
    model.keys.set_string("general.type", "model");
    model.keys.set_string("general.name", "Synthetic " + model.title);
    model.keys.set_string("general.description", "Random weights: polystrata synth" + flags_of(options));
    model.keys.set<uint32_t>("general.quantization_version", 2);
    preset->build(model, layers);
    return model;
}

Result<Plan> plan(const Options& options) {
    STRATA_TRY_ASSIGN(Model model, shapes(options));
    STRATA_TRY_ASSIGN(const Mix mix, apply_mix(options.mix, model.mix_model()));
    model.keys.set<uint32_t>("general.file_type", mix.file_type);
    add_tokenizer(model.keys, *model.vocabulary);

    Plan plan;
    plan.options = options;
    plan.title = model.title;
    for (size_t i = 0; i < model.slots.size(); ++i) {
        Slot& slot = model.slots[i];
        uint64_t elements = 1;
        for (const uint64_t dim : slot.dims) elements *= dim;
        plan.parameters += elements;
        plan.contents.tensors.push_back({std::move(slot.name), mix.types[i], std::move(slot.dims)});
        plan.fills.push_back(std::move(slot.fill));
    }
    plan.contents.keys = std::move(model.keys);
    STRATA_TRY_ASSIGN(const gguf::Layout layout, gguf::lay_out(plan.contents, "synthetic.gguf"));
    plan.file_bytes = layout.total_size();
    return plan;
}

}  // namespace strata::synth
