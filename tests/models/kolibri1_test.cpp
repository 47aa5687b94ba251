#include <gmock/gmock.h>

#include "models/harness.h"

namespace strata::test {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = "kolibri1/tiny.gguf";

std::string refusal(const std::function<void(gguf::Contents&)>& edit) {
    return test::refusal(kModel, edit);
}

TEST(Kolibri1, EightBitCachesGiveTheReferenceLogits) {
    const auto reference = read_json("kolibri1/reference.json");
    const auto ids = ids_of(find_case(reference, "forty"));
    const auto& c = reference.at("kv_q8_0");
    const FloatTwin twin(kModel);
    Session session(twin.path(), {}, {.cache_type = Type::q8_0});
    const Logits rows = session.read(ids);
    // A tie: in layer 0, value 0 of row 6's second key is 65.4999985 steps (in float64, with the rule's float32 scale),
    // 1.5e-6 below the border between two codes where a float32 near 65 has a step of 7.6e-6. The reference's program
    // took 66, and one changed code moves every later row by up to 0.1. So rows are those of one side of the border or
    // of the other, for which the same float64 program was run with 65.
    const auto other_side = read_json("kolibri1/kv_q8_0_other_side.json");
    const auto distance = [&](const nlohmann::json& side) {
        const auto reference_row = side.at("logits").at("20").get<std::vector<float>>();
        float worst = 0;
        for (size_t i = 0; i < reference_row.size(); ++i)
            worst = std::max(worst, std::abs(reference_row[i] - rows[20][i]));
        return worst;
    };
    expect_case(distance(c) < distance(other_side) ? c : other_side, rows, {0.05f, 1e-3, 0.05f, 0.005f});
    session.restart();
    EXPECT_EQ(session.read(ids, {17, 1, 22}), rows);
}

TEST(Kolibri1, EightBitCachesTake34BytesFor32ValuesInRingsToo) {
    Session session(std::string(kModel), {}, {.cache_type = Type::q8_0, .max_call_rows = 32});
    int rings = 0;
    for (const PartSpec& part : session.model().layout().parts) {
        EXPECT_EQ(part.type, Type::q8_0);
        EXPECT_EQ(part.row_bytes(), static_cast<uint64_t>(part.width) / 32 * 34);
        if (part.kind != PartSpec::Kind::ring) continue;
        ++rings;
        EXPECT_EQ(part.window, 17);
        EXPECT_EQ(part.capacity, 16 + 32);
    }
    EXPECT_EQ(rings, 2 * 3);
}

TEST(Kolibri1Loader, NamesWhatIsMissingOrMisshapen) {
    EXPECT_EQ(refusal([](gguf::Contents&) {}), "");
    for (const char* key : {"block_count", "context_length", "embedding_length", "attention.head_count",
                            "attention.head_count_kv", "attention.key_length", "attention.value_length",
                            "attention.layer_norm_rms_epsilon", "attention.sliding_window", "expert_count",
                            "expert_used_count", "expert_feed_forward_length", "expert_gating_func"}) {
        const std::string name = "kolibri1." + std::string(key);
        EXPECT_THAT(refusal([&](gguf::Contents& c) { c.keys.remove(name); }), HasSubstr(name));
    }
    for (const char* name :
         {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.1.post_attention_norm.weight",
          "blk.2.ffn_norm.weight", "blk.3.post_ffw_norm.weight", "blk.4.attn_k_norm.weight", "blk.0.exp_probs_b.bias",
          "blk.1.ffn_up_exps.weight", "blk.2.ffn_down_shexp.weight"})
        EXPECT_THAT(refusal([&](gguf::Contents& c) { tensor(c, name).name = "gone"; }),
                    HasSubstr(std::string(name) + " is missing"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    tensor(c, "blk.3.attn_q.weight").dims = {64, 64};
                }),
                HasSubstr("blk.3.attn_q.weight is [64, 64], wanted [64, 192]"));
}

TEST(Kolibri1Loader, RefusesWhatItWouldComputeWrongly) {
    const auto set = [](const char* key, uint32_t value) {
        return refusal([&](gguf::Contents& c) { c.keys.set<uint32_t>("kolibri1." + std::string(key), value); });
    };
    EXPECT_THAT(set("expert_gating_func", 1), HasSubstr("expert_gating_func must be 2 or 5"));
    EXPECT_EQ(set("expert_gating_func", 2), "");
    EXPECT_THAT(set("expert_shared_count", 2), HasSubstr("expert_shared_count must be 1"));
    EXPECT_THAT(set("rope.dimension_count", 16), HasSubstr("rope.dimension_count"));
    EXPECT_THAT(set("attention.value_length", 16), HasSubstr("attention.value_length differ"));
    EXPECT_THAT(set("attention.sliding_window", 0), HasSubstr("attention.sliding_window"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<float>("kolibri1.expert_weights_scale", 2.5f); }),
                HasSubstr("expert_weights_scale"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    const std::vector<uint32_t> two = {32, 64, 32, 32, 32};
                    c.keys.set_array<uint32_t>("kolibri1.expert_feed_forward_length", two);
                }),
                HasSubstr("kolibri1.expert_feed_forward_length"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.tensors.push_back({"blk.1.attn_q.bias", Type::f32, {192}});
                }),
                HasSubstr("blk.1.attn_q.bias"));
}

/// Layers that keep a ring (w) or everything (g), by the model's layout.
std::string window_layers(const std::function<void(gguf::Contents&)>& edit, std::vector<std::string>* notes) {
    const EditedFile edited(kModel, edit);
    Session session(edited.path());
    std::string layers;
    for (const PartSpec& part : session.model().layout().parts)
        if (part.name.ends_with(".k")) layers += part.kind == PartSpec::Kind::ring ? 'w' : 'g';
    *notes = session.model().facts().notes;
    return layers;
}

TEST(Kolibri1Loader, ReadsTheWindowPatternInAllItsForms) {
    constexpr const char* key = "kolibri1.attention.sliding_window_pattern";
    std::vector<std::string> notes;
    EXPECT_EQ(window_layers([](gguf::Contents&) {}, &notes), "wgwwg");
    EXPECT_TRUE(notes.empty());
    EXPECT_EQ(window_layers(
                  [&](gguf::Contents& c) {
                      const std::vector<int32_t> flags = {1, 1, 0, 1, 0};
                      c.keys.set_array<int32_t>(key, flags);
                  },
                  &notes),
              "wwgwg");
    EXPECT_EQ(window_layers([&](gguf::Contents& c) { c.keys.set<uint32_t>(key, 2); }, &notes), "wgwgw");
    EXPECT_TRUE(notes.empty());
    EXPECT_EQ(window_layers([&](gguf::Contents& c) { c.keys.remove(key); }, &notes), "wwwwg");
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_THAT(notes[0], HasSubstr("sliding_window_pattern"));
}

}  // namespace
}  // namespace strata::test
