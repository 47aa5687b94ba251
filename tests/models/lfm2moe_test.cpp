#include <gmock/gmock.h>

#include "models/harness.h"

namespace strata::test {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void(gguf::Contents&)>& edit) {
    return test::refusal("lfm2moe/tiny.gguf", edit);
}

TEST(Lfm2MoeLoader, NamesWhatIsMissingOrMisshapen) {
    EXPECT_EQ(refusal([](gguf::Contents&) {}), "");
    for (const char* key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
          "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count",
          "expert_feed_forward_length", "expert_gating_func", "shortconv.l_cache"}) {
        const std::string name = "lfm2moe." + std::string(key);
        EXPECT_THAT(refusal([&](gguf::Contents& c) { c.keys.remove(name); }), HasSubstr(name));
    }
    for (const char* name : {"token_embd.weight", "token_embd_norm.weight", "blk.0.shortconv.conv.weight",
                             "blk.1.ffn_gate.weight", "blk.2.attn_q_norm.weight", "blk.3.shortconv.in_proj.weight",
                             "blk.5.attn_v.weight", "blk.6.exp_probs_b.bias", "blk.6.ffn_down_exps.weight"})
        EXPECT_THAT(refusal([&](gguf::Contents& c) { tensor(c, name).name = "gone"; }),
                    HasSubstr(std::string(name) + " is missing"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    tensor(c, "blk.4.shortconv.in_proj.weight").dims = {64, 128};
                }),
                HasSubstr("blk.4.shortconv.in_proj.weight is [64, 128], wanted [64, 192]"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    tensor(c, "blk.6.ffn_gate_inp.weight").dims = {64, 9};
                }),
                HasSubstr("blk.6.ffn_gate_inp.weight is [64, 9], wanted [64, 10]"));
}

TEST(Lfm2MoeLoader, RefusesWhatItWouldComputeWrongly) {
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<uint32_t>("lfm2moe.attention.head_count_kv", 2); }),
                HasSubstr("attention.head_count_kv"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<uint32_t>("lfm2moe.expert_gating_func", 1); }),
                HasSubstr("expert_gating_func must be 2"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<float>("lfm2moe.expert_weights_scale", 2.5f); }),
                HasSubstr("expert_weights_scale"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<uint32_t>("lfm2moe.attention.sliding_window", 512); }),
                HasSubstr("sliding_window"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.keys.set_string("lfm2moe.rope.scaling.type", "yarn");
                    c.keys.set<float>("lfm2moe.rope.scaling.factor", 4);
                }),
                HasSubstr("rope scaling 'yarn'"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.tensors.push_back({"blk.3.shortconv.conv.bias", Type::f32, {64}});
                }),
                HasSubstr("blk.3.shortconv.conv.bias"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.tensors.push_back({"dense_2.weight", Type::f32, {64, 64}});
                }),
                HasSubstr("dense_2.weight"));
}

TEST(Lfm2MoeLoader, RefusesHeadsThatEightBitCachesCannotHold) {
    auto file = gguf::File::open(data("lfm2moe/tiny.gguf"));
    auto device = CpuDevice::create();
    const auto model = make_model(*file, **device, {.cache_type = Type::q8_0});
    ASSERT_FALSE(model);
    EXPECT_THAT(model.error().message, HasSubstr("attention heads of 16 values"));
}

TEST(Lfm2MoeLoader, TakesOtherNamesFormsAndGuests) {
    std::vector<std::string> notes;
    EXPECT_EQ(test::refusal(
                  "lfm2moe/tiny.gguf",
                  [](gguf::Contents& c) {
                      tensor(c, "token_embd_norm.weight").name = "output_norm.weight";
                      c.tensors.push_back({"output.weight", Type::f16, {64, 288}});
                      c.tensors.push_back({"blk.3.odd.weight", Type::f32, {64}});
                      tensor(c, "blk.2.attn_q.weight").name = "blk.2.attn_qkv.weight";
                      tensor(c, "blk.2.attn_qkv.weight").dims = {64, 128};
                      const std::vector<uint32_t> inner = {0, 0, 32, 32, 32, 32, 32};
                      c.keys.set_array<uint32_t>("lfm2moe.expert_feed_forward_length", inner);
                  },
                  &notes),
              "");
    ASSERT_EQ(notes.size(), 1u);  // the separate k and v of layer 2, and the odd one
    EXPECT_THAT(notes[0], HasSubstr("3 tensors are not part of this model"));
}

}  // namespace
}  // namespace strata::test
