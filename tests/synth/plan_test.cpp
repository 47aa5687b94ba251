// Plans against what is published of the real models, and what the writer promises.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>

#include "gguf/file.h"
#include "synth/mix.h"
#include "synth/model.h"
#include "synth/synth.h"

namespace strata::synth {
namespace {

namespace fs = std::filesystem;

Plan plan_of(std::string preset, std::string mix, int layers = 0, bool draft = true) {
    auto made = plan({.preset = std::move(preset), .mix = std::move(mix), .layers = layers, .draft = draft});
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::move(made).value();
}

Type type_of(const Plan& plan, std::string_view name) {
    for (const gguf::TensorSpec& tensor : plan.contents.tensors)
        if (tensor.name == name) return tensor.type;
    ADD_FAILURE() << "no tensor " << name;
    return Type::i64;
}

struct Counts {
    size_t tensors;
    uint64_t parameters;
};
Counts counts_of(std::string preset, bool draft = true) {
    const auto model = shapes({.preset = std::move(preset), .draft = draft});
    EXPECT_TRUE(model.ok());
    Counts counts{model->slots.size(), 0};
    for (const Slot& slot : model->slots) {
        uint64_t elements = 1;
        for (const uint64_t dim : slot.dims) elements *= dim;
        counts.parameters += elements;
    }
    return counts;
}

TEST(SynthPlan, TensorsAndParametersAreThoseOfTheRealModels) {
    EXPECT_EQ(counts_of("qwen3.6-35b-a3b").tensors, 753u);
    EXPECT_EQ(counts_of("qwen3.6-35b-a3b", false).tensors, 733u);
    EXPECT_EQ(counts_of("gemma-4-26b-a4b").tensors, 658u);
    EXPECT_EQ(counts_of("gemma-4-26b-a4b-assistant").tensors, 49u);
    EXPECT_EQ(counts_of("kolibri-1").tensors, 903u);
    EXPECT_EQ(counts_of("kolibri-1").parameters, 78103074560u);
    EXPECT_EQ(counts_of("flint-40b-a2.5b").parameters, 39785287456u);
    EXPECT_NEAR(static_cast<double>(counts_of("lfm2-8b-a1b").parameters), 8.34e9, 5e6);
    EXPECT_EQ(counts_of("deepseek-v4-flash").tensors, 1328u);
    EXPECT_NEAR(static_cast<double>(counts_of("deepseek-v4-flash").parameters), 284.3e9, 5e7);
    EXPECT_EQ(counts_of("glm-5.3-flash").tensors, 1412u);
    EXPECT_NEAR(static_cast<double>(counts_of("glm-5.3-flash").parameters), 320.8e9, 5e7);
    EXPECT_NEAR(static_cast<double>(counts_of("glm-5.3-flash", false).parameters), 313.3e9, 5e7);
}

TEST(SynthPlan, SizesAreThoseOfPublishedFiles) {
    const auto gigabytes = [](const Plan& plan) { return static_cast<double>(plan.file_bytes) / 1e9; };
    EXPECT_NEAR(gigabytes(plan_of("qwen3.6-35b-a3b", "ud-q4_k_m")), 22.7, 0.05);
    EXPECT_NEAR(gigabytes(plan_of("qwen3.6-35b-a3b", "ud-q3_k_m")), 17.0, 0.05);
    EXPECT_NEAR(gigabytes(plan_of("qwen3.6-35b-a3b", "q4_k_m", 0, false)), 21.16, 0.01);
    EXPECT_NEAR(gigabytes(plan_of("qwen3.6-35b-a3b", "q3_k_m", 0, false)), 16.75, 0.015);
    EXPECT_NEAR(gigabytes(plan_of("gemma-4-26b-a4b-assistant", "q8_0")), 0.46, 0.005);
    EXPECT_NEAR(gigabytes(plan_of("flint-40b-a2.5b", "q8_0")), 42.34, 0.05);
    EXPECT_NEAR(gigabytes(plan_of("lfm2.5-24b-a2b", "q8_0")), 25.5, 0.05);
    EXPECT_NEAR(gigabytes(plan_of("deepseek-v4-flash", "ud-iq2_xxs")), 90.9, 0.05);
    EXPECT_NEAR(gigabytes(plan_of("qwen3.8-flash-next-draft", "q8_0")), 2.79, 0.02);
}

TEST(SynthPlan, MixesGiveTheTypesThatTheyName) {
    const Plan q4 = plan_of("qwen3.6-35b-a3b", "ud-q4_k_m");
    EXPECT_EQ(type_of(q4, "blk.20.ffn_gate_exps.weight"), Type::q4_k);
    EXPECT_EQ(type_of(q4, "blk.20.ffn_down_exps.weight"), Type::q5_k);
    EXPECT_EQ(type_of(q4, "blk.39.ffn_down_exps.weight"), Type::q6_k);
    EXPECT_EQ(type_of(q4, "blk.40.ffn_down_exps.weight"), Type::q5_k);
    EXPECT_EQ(type_of(q4, "blk.0.attn_qkv.weight"), Type::q8_0);
    EXPECT_EQ(type_of(q4, "output.weight"), Type::q6_k);
    EXPECT_EQ(type_of(q4, "blk.0.ffn_gate_inp.weight"), Type::f32);
    EXPECT_EQ(type_of(q4, "blk.40.ffn_gate_inp.weight"), Type::bf16);
    EXPECT_EQ(type_of(plan_of("qwen3.6-35b-a3b", "experts-iq2_s"), "blk.5.ffn_up_exps.weight"), Type::iq2_s);
    // Rows of 704 are no whole blocks of 256: the type that quantisers fall back to.
    const Plan gemma = plan_of("gemma-4-26b-a4b", "ud-q4_k_m");
    EXPECT_EQ(type_of(gemma, "blk.0.ffn_gate_up_exps.weight"), Type::q4_k);
    EXPECT_EQ(type_of(gemma, "blk.9.ffn_down_exps.weight"), Type::q5_1);
    EXPECT_EQ(type_of(gemma, "token_embd.weight"), Type::q6_k);  // the head, too
}

TEST(SynthPlan, EveryPresetTakesEveryMix) {
    for (const PresetName& preset : presets()) {
        const auto model = shapes({.preset = std::string(preset.name)});
        ASSERT_TRUE(model.ok());
        for (const MixName& known : mixes()) {
            const std::string name = known.name == "experts-TYPE" ? "experts-mxfp4" : known.name;
            const auto mix = apply_mix(name, model->mix_model());
            ASSERT_TRUE(mix.ok()) << preset.name << " " << name << ": " << mix.error().message;
            for (size_t i = 0; i < model->slots.size(); ++i)
                EXPECT_TRUE(gguf::tensor_bytes({model->slots[i].name, mix->types[i], model->slots[i].dims}).ok())
                    << preset.name << " " << name << " " << model->slots[i].name;
        }
    }
}

TEST(SynthPlan, EveryPresetCanBeCut) {
    for (const PresetName& preset : presets()) {
        if (preset.name.ends_with("assistant")) continue;  // four layers are what a draft model has
        for (const int layers : {1, 2, 5}) {
            const auto model = shapes({.preset = std::string(preset.name), .layers = layers});
            ASSERT_TRUE(model.ok()) << model.error().message;
            for (const Slot& slot : model->slots)
                EXPECT_LE(split_block_name(slot.name).block, layers) << preset.name << " " << slot.name;
        }
    }
}

TEST(SynthPlan, CutLayersKeepTheirPatternTheirBytesAndTheDraftBlock) {
    const Plan whole = plan_of("qwen3.6-35b-a3b", "experts-q4_k"), cut = plan_of("qwen3.6-35b-a3b", "experts-q4_k", 6);
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < whole.fills.size(); ++i) places[whole.contents.tensors[i].name] = i;
    int attention = 0;
    for (size_t i = 0; i < cut.fills.size(); ++i) {
        const std::string& name = cut.contents.tensors[i].name;
        attention += name.ends_with("attn_q.weight");
        if (name.starts_with("blk.6.")) continue;  // the draft block moved
        ASSERT_TRUE(places.contains(name)) << name;
        const size_t j = places[name];
        EXPECT_EQ(cut.contents.tensors[i].dims, whole.contents.tensors[j].dims);
        EXPECT_EQ(cut.contents.tensors[i].type, whole.contents.tensors[j].type);
        const Filler a(cut.contents.tensors[i], cut.fills[i], 1), b(whole.contents.tensors[j], whole.fills[j], 1);
        std::vector<std::byte> first(std::min(a.piece_bytes(), a.bytes())), second(first.size());
        a.make(0, first);
        b.make(0, second);
        EXPECT_EQ(first, second) << name;
    }
    EXPECT_EQ(attention, 2);  // layer 3 and the draft block
    EXPECT_TRUE(std::any_of(cut.contents.tensors.begin(), cut.contents.tensors.end(),
                            [](const auto& tensor) { return tensor.name == "blk.6.nextn.eh_proj.weight"; }));
}

TEST(SynthPlan, UnknownNamesAreAnsweredWithTheKnownOnes) {
    const auto preset = plan({.preset = "gpt-9"});
    ASSERT_FALSE(preset.ok());
    EXPECT_EQ(preset.error().kind, ErrorKind::usage);
    EXPECT_NE(preset.error().message.find("qwen3.6-35b-a3b, "), std::string::npos) << preset.error().message;
    const auto mix = plan({.preset = "lfm2-8b-a1b", .mix = "q9"});
    ASSERT_FALSE(mix.ok());
    EXPECT_EQ(mix.error().kind, ErrorKind::usage);
    EXPECT_NE(mix.error().message.find("ud-q4_k_m"), std::string::npos) << mix.error().message;
    EXPECT_FALSE(plan({.preset = "lfm2-8b-a1b", .mix = "experts-q9"}).ok());
    EXPECT_FALSE(plan({.preset = "lfm2-8b-a1b", .layers = 25}).ok());
    EXPECT_FALSE(plan({.preset = "lfm2-8b-a1b", .layers = -1}).ok());
    EXPECT_FALSE(plan({.preset = "lfm2-8b-a1b", .skew = -1}).ok());
}

/// A plan small enough to write in a test.
Plan small_plan() {
    Plan plan;
    plan.options.seed = 5;
    plan.contents.keys.set_string("general.architecture", "x");
    const auto add = [&](const char* name, Type type, std::vector<uint64_t> dims) {
        plan.contents.tensors.push_back({name, type, std::move(dims)});
        plan.fills.push_back({.spread = 0.02f});
    };
    add("a", Type::q4_k, {2048, 1500});  // pieces of more than one tensor, odd ends
    add("b", Type::f32, {1001});
    add("c", Type::mxfp4, {32, 99999});
    return plan;
}

class SynthWrite : public testing::Test {
  protected:
    SynthWrite() {
        std::string pattern = (fs::temp_directory_path() / "strata-synth-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
    }
    ~SynthWrite() override { fs::remove_all(folder_); }
    std::string bytes(const fs::path& path) {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    fs::path folder_;
};

TEST_F(SynthWrite, TheBytesDoNotDependOnTheNumberOfThreads) {
    const Plan plan = small_plan();
    ASSERT_TRUE(write(plan, folder_ / "1.gguf", false, {}, 1).ok());
    ASSERT_TRUE(write(plan, folder_ / "5.gguf", false, {}, 5).ok());
    EXPECT_EQ(bytes(folder_ / "1.gguf"), bytes(folder_ / "5.gguf"));
    EXPECT_TRUE(gguf::File::open(folder_ / "1.gguf").ok());
}

TEST_F(SynthWrite, ProgressEndsWithEverythingAndCanStopIt) {
    uint64_t last = 0, all = 1;
    ASSERT_TRUE(write(small_plan(), folder_ / "m.gguf", false, [&](uint64_t done, uint64_t total) {
                    last = done;
                    all = total;
                    return true;
                }).ok());
    EXPECT_EQ(last, all);
    Plan large = small_plan();
    large.contents.tensors[0].dims = {2048, 300000};  // long enough to be stopped
    const auto stopped = write(
        large, folder_ / "n.gguf", false, [](uint64_t, uint64_t) { return false; }, 1);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, "cancelled");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(SynthWrite, AnExistingFileIsKept) {
    std::ofstream(folder_ / "m.gguf") << "precious";
    EXPECT_EQ(write(small_plan(), folder_ / "m.gguf").error().code, "exists");
    EXPECT_EQ(bytes(folder_ / "m.gguf"), "precious");
    EXPECT_TRUE(write(small_plan(), folder_ / "m.gguf", true).ok());
}

}  // namespace
}  // namespace strata::synth
