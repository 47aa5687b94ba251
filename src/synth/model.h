// A synthetic model under construction: what the presets speak.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/writer.h"
#include "synth/fill.h"
#include "synth/mix.h"
#include "synth/synth.h"
#include "synth/vocabulary.h"

namespace strata::synth {

struct Slot {
    std::string name;
    std::vector<uint64_t> dims;
    std::optional<Type> fixed;  // no mix changes it
    Fill fill;
};

/// Keys and tensors in file order. Spreads are chosen so that everything that flows stays around 1: a matrix's values
/// spread by gain / sqrt(inputs), so rows of unit inputs give outputs of size `gain`.
class Model {
  public:
    Model(std::string_view architecture, const Options& options) : architecture_(architecture), options_(options) {
        keys.set_string("general.architecture", architecture);
    }

    const Options& options() const { return options_; }

    // Keys under "ARCHITECTURE.".
    void u32(std::string_view key, uint64_t value) { keys.set<uint32_t>(full(key), static_cast<uint32_t>(value)); }
    void f32(std::string_view key, float value) { keys.set<float>(full(key), value); }
    void flag(std::string_view key, bool value) { keys.set<bool>(full(key), value); }
    void text(std::string_view key, std::string_view value) { keys.set_string(full(key), value); }
    void i32s(std::string_view key, const std::vector<int32_t>& values) { keys.set_array<int32_t>(full(key), values); }
    void f32s(std::string_view key, const std::vector<float>& values) { keys.set_array<float>(full(key), values); }
    void u64s(std::string_view key, const std::vector<uint64_t>& values) {
        keys.set_array<uint64_t>(full(key), values);
    }
    void flags(std::string_view key, const std::vector<bool>& values) { keys.set_bools(full(key), values); }

    // Tensors. Names get the prefix of the current block, "blk.N.".
    void block(int number) { prefix_ = "blk." + std::to_string(number) + "."; }
    void no_block() { prefix_.clear(); }

    /// A matrix of any type that the mix gives.
    void matrix(std::string_view name, uint64_t in, uint64_t out, float gain = 1);
    /// One matrix an expert, in one tensor.
    void experts(std::string_view name, uint64_t in, uint64_t out, uint64_t count, float gain = 1);
    /// Rows that are looked up, with values of this size (the token embedding).
    void table(std::string_view name, uint64_t width, uint64_t rows, float spread);
    /// A matrix that no mix touches.
    void plain(std::string_view name, std::vector<uint64_t> dims, float gain = 1, Type type = Type::f32);
    /// A vector around `mean`: norms and scales.
    void norm(std::string_view name, uint64_t width, float mean = 1, float spread = 0.1f);
    /// Exactly these numbers, F32.
    void values(std::string_view name, std::vector<float> values);
    /// A router's matrix: logits spread by 1.5, experts' rows of different size by the option `skew`.
    void router(std::string_view name, uint64_t in, uint64_t experts, float gain = 1.5f, Type type = Type::f32);
    void add(Slot slot) { slots.push_back(std::move(slot)); }
    std::string name(std::string_view rest) const { return prefix_ + std::string(rest); }

    /// Numbers for `values`, drawn for this tensor and seed: uniform from lo to hi.
    std::vector<float> uniform(std::string_view name, uint64_t count, float lo, float hi) const;

    /// What mixes look at.
    MixModel mix_model() const;

    gguf::KeyList keys;
    std::vector<Slot> slots;
    std::string title;
    const VocabularySpec* vocabulary = nullptr;
    int blocks = 0, heads = 0, kv_heads = 0, expert_count = 0;  // what mixes ask for

  private:
    std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }

    std::string architecture_;
    std::string prefix_;
    Options options_;
};

/// A preset: a real model's shapes.
struct ModelPreset {
    std::string_view name;
    std::string_view title;
    std::string_view architecture;
    int layers;  // trunk layers
    int step;    // `layers` of the options must be a multiple of this
    void (*build)(Model& model, int layers);
};
const std::vector<ModelPreset>& model_presets();

/// The model that the options ask for, without its types and its vocabulary. Refuses unknown presets and wrong numbers.
Result<Model> shapes(const Options& options);

// One function a preset, in preset_FAMILY.cpp.
void build_qwen36(Model& model, int layers);
void build_clover(Model& model, int layers);
void build_gemma4(Model& model, int layers);
void build_gemma4_assistant(Model& model, int layers);
void build_lfm25_24b(Model& model, int layers);
void build_lfm2_8b(Model& model, int layers);
void build_kolibri1(Model& model, int layers);
void build_flint(Model& model, int layers);
void build_deepseek4(Model& model, int layers);
void build_deepseek4_draft(Model& model, int layers);
void build_glm5_next(Model& model, int layers);
void build_qwen4exp(Model& model, int layers);
void build_qwen4exp_draft(Model& model, int layers);

}  // namespace strata::synth
