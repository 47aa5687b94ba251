#include <gmock/gmock.h>

#include "models/harness.h"

namespace strata::test {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void(gguf::Contents&)>& edit, std::vector<std::string>* notes = nullptr) {
    return test::refusal("flint/tiny.gguf", edit, notes);
}

TEST(FlintLoader, SaysWhatIsInferredInOneLine) {
    std::vector<std::string> notes;
    EXPECT_EQ(refusal([](gguf::Contents&) {}, &notes), "");
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_THAT(notes[0], HasSubstr("inferred"));
}

TEST(FlintLoader, NamesWhatIsMissingOrMisshapen) {
    for (const char* key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
          "attention.head_count_kv", "attention.key_length", "attention.value_length",
          "attention.layer_norm_rms_epsilon", "rope.freq_base", "expert_count", "expert_used_count",
          "expert_feed_forward_length", "leading_dense_block_count", "attention.sliding_window",
          "attention.sliding_window_pattern"}) {
        const std::string name = "flint." + std::string(key);
        EXPECT_THAT(refusal([&](gguf::Contents& c) { c.keys.remove(name); }), HasSubstr(name));
    }
    for (const char* name : {"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_sinks.weight",
                             "blk.1.ffn_norm.weight", "blk.1.ffn_gate.weight", "blk.2.ffn_gate_shexp.weight",
                             "blk.6.ffn_gate_inp.weight", "blk.4.attn_output.weight"})
        EXPECT_THAT(refusal([&](gguf::Contents& c) { tensor(c, name).name = "gone"; }),
                    HasSubstr(std::string(name) + " is missing"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { tensor(c, "blk.3.attn_sinks.weight").dims = {2}; }),
                HasSubstr("blk.3.attn_sinks.weight is [2], wanted [6]"));
}

TEST(FlintLoader, RefusesWhatItWouldComputeWrongly) {
    const auto set = [](const char* key, uint32_t value) {
        return refusal([&](gguf::Contents& c) { c.keys.set<uint32_t>("flint." + std::string(key), value); });
    };
    EXPECT_THAT(set("expert_gating_func", 3), HasSubstr("expert_gating_func"));
    EXPECT_THAT(set("rope.dimension_count", 16), HasSubstr("rope.dimension_count"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.tensors.push_back({"blk.2.ffn_gate_inp_shexp.weight", Type::f32, {64}});
                }),
                HasSubstr("blk.2.ffn_gate_inp_shexp.weight"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.tensors.push_back({"blk.2.attn_k.bias", Type::f32, {64}});
                }),
                HasSubstr("blk.2.attn_k.bias"));
}

TEST(FlintLoader, TakesOtherNamesAndForms) {
    std::vector<std::string> notes;
    EXPECT_EQ(refusal(
                  [](gguf::Contents& c) {
                      tensor(c, "blk.2.attn_sinks.weight").name = "blk.2.attn_sinks";
                      tensor(c, "blk.3.ffn_norm.weight").name = "blk.3.post_attention_norm.weight";
                      tensor(c, "blk.4.ffn_gate_exps.weight").dims = {64, 64, 9};
                      tensor(c, "blk.4.ffn_gate_exps.weight").name = "blk.4.ffn_gate_up_exps.weight";
                      tensor(c, "blk.4.ffn_up_exps.weight").name = "guest";
                      c.keys.remove("flint.attention.rope_pattern");
                      c.keys.remove("flint.expert_shared_feed_forward_length");
                      c.keys.remove("flint.expert_shared_count");
                      const std::vector<uint32_t> inner = {32};
                      c.keys.set_array<uint32_t>("flint.expert_feed_forward_length", inner);
                  },
                  &notes),
              "");
    ASSERT_EQ(notes.size(), 3u);
    EXPECT_THAT(notes[1], HasSubstr("rope_pattern"));
    EXPECT_THAT(notes[2], HasSubstr("guest"));
}

}  // namespace
}  // namespace strata::test
