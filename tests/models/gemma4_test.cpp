// What only this architecture has: pictures whose rows see each other, a draft model that reads the model's caches, and
// what its loader takes and refuses. Prompts and windows: prompts_test.cpp.
#include <cstring>
#include <gmock/gmock.h>

#include "models/harness.h"

namespace strata::test {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = "gemma4/tiny.gguf";
constexpr const char* kDraft = "gemma4/tiny-assistant.gguf";

nlohmann::json reference(const std::string& name) {
    static const nlohmann::json all = read_json("gemma4/reference.json");
    return find_case(all, name);
}

/// A case's segments, one call each: tokens, or a picture's rows.
Logits read_segments(Session& session, const nlohmann::json& c) {
    Logits all;
    for (const auto& segment : c.at("segments")) {
        Logits rows;
        if (segment.contains("tokens")) {
            rows = session.call(segment.at("tokens").get<std::vector<int32_t>>());
        } else {
            Picture picture{segment.at("rows"), 1, {}};
            std::ifstream file(data("gemma4/" + segment.at("rows_file").get<std::string>()), std::ios::binary);
            picture.rows.resize(segment.at("rows").get<size_t>() * segment.at("width").get<size_t>());
            file.read(reinterpret_cast<char*>(picture.rows.data()),
                      static_cast<std::streamsize>(picture.rows.size() * sizeof(float)));
            rows = session.picture(picture);
        }
        all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
}

void expect_chain(Session& session, const nlohmann::json& draft, float allowed) {
    const auto position = draft.at("position").get<int>();
    auto token = draft.at("start_token").get<int32_t>();
    std::vector<float> hidden = session.hidden().back();
    for (size_t i = 0; i < draft.at("tokens").size(); ++i) {
        SCOPED_TRACE("run " + std::to_string(i));
        const Logits logits = session.draft({token}, position, {hidden});
        expect_logits(draft.at("logits")[i].get<std::vector<float>>(), logits[0], {allowed, 1e-3});
        hidden = session.draft_hidden[0];
        const auto wanted = draft.at("hidden")[i].get<std::vector<float>>();
        for (size_t v = 0; v < hidden.size(); ++v) EXPECT_NEAR(hidden[v], wanted[v], allowed);
        token = static_cast<int32_t>(argmax(logits[0]));
        ASSERT_EQ(token, draft.at("tokens")[i].get<int32_t>());
    }
}

TEST(Gemma4, PicturesAndGuessesGiveTheReferenceValues) {
    Session session(data(kModel), {}, {}, data(kDraft));
    for (const char* name : {"short", "mid", "mid_split", "long", "picture"}) {
        SCOPED_TRACE(name);
        const auto c = reference(name);
        session.restart();
        const Logits rows = read_segments(session, c);
        const Tolerance allowed{0.08f, 5e-4, 0.1f};
        expect_case(c, rows, allowed);
        const auto hidden = c.at("hidden_last").get<std::vector<float>>();
        for (size_t i = 0; i < hidden.size(); ++i) EXPECT_NEAR(session.hidden().back()[i], hidden[i], 0.05);
        expect_chain(session, c.at("draft"), 0.12f);
        expect_greedy(session, rows.back(), c, allowed);
    }
}

TEST(Gemma4, PicturesAndGuessesWithFloatWeightsComeClose) {
    const FloatTwin model(kModel), draft(kDraft);
    Session session(model.path(), {}, {.cache_type = Type::f32}, draft.path());
    for (const char* name : {"short", "mid", "mid_split", "long", "picture"}) {
        SCOPED_TRACE(name);
        const auto c = reference(name);
        session.restart();
        const Logits rows = read_segments(session, c);
        expect_case(c, rows, {0.01f, 1e-5, 0.01f});
        expect_chain(session, c.at("draft"), 0.02f);
        expect_greedy(session, rows.back(), c, {0.01f, 1e-5, 0.01f});
    }
}

TEST(Gemma4, AskingTheDraftModelChangesNothing) {
    const auto c = reference("mid");
    Session plain(data(kModel)), asked(data(kModel), {}, {}, data(kDraft));
    read_segments(plain, c);
    read_segments(asked, c);
    for (int32_t token = 30; token < 40; ++token) {
        const int rows = asked.state().rows;
        const std::vector<float> hidden = asked.hidden().back();
        asked.draft({token}, rows, {hidden});
        asked.draft({token + 1}, rows, {asked.draft_hidden[0]});
        EXPECT_EQ(asked.call({token}), plain.call({token}));
    }
}

TEST(Gemma4, ADraftModelAtTheStartOfAConversationGuessesSomething) {
    Session session(data(kModel), {}, {}, data(kDraft));
    const Logits logits = session.draft({2}, 0, {std::vector<float>(96, 0.0f)});
    for (const float v : logits[0]) EXPECT_TRUE(std::isfinite(v));
}

// ---- what is refused
// ------------------------------------------------------------------------------------------------------------

std::string refusal(const std::function<void(gguf::Contents&)>& edit) {
    return test::refusal(kModel, edit);
}

TEST(Gemma4Loader, NamesWhatIsMissingOrMisshapen) {
    EXPECT_EQ(refusal([](gguf::Contents&) {}), "");
    for (const char* key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
          "attention.key_length", "attention.value_length", "attention.key_length_swa", "attention.value_length_swa",
          "attention.sliding_window", "attention.sliding_window_pattern", "attention.layer_norm_rms_epsilon",
          "expert_used_count", "expert_feed_forward_length"}) {
        const std::string name = "gemma4." + std::string(key);
        EXPECT_THAT(refusal([&](gguf::Contents& c) { c.keys.remove(name); }), HasSubstr(name));
    }
    for (const char* tensor_name : {"token_embd.weight",
                                    "output_norm.weight",
                                    "rope_freqs.weight",
                                    "attn_norm",
                                    "attn_q",
                                    "attn_k",
                                    "attn_v",
                                    "attn_q_norm",
                                    "attn_k_norm",
                                    "attn_output",
                                    "post_attention_norm",
                                    "ffn_norm",
                                    "ffn_gate",
                                    "ffn_up",
                                    "ffn_down",
                                    "post_ffw_norm",
                                    "ffn_gate_inp",
                                    "ffn_gate_inp.scale",
                                    "pre_ffw_norm_2",
                                    "post_ffw_norm_1",
                                    "post_ffw_norm_2",
                                    "ffn_down_exps"}) {
        std::string name = tensor_name;
        if (name.find('.') == std::string::npos) name += ".weight";
        if (!name.starts_with("token") && !name.starts_with("output") && !name.starts_with("rope"))
            name = "blk.3." + name;
        EXPECT_THAT(refusal([&](gguf::Contents& c) { tensor(c, name).name = "gone"; }),
                    HasSubstr(name + " is missing"));
        if (name == "token_embd.weight") continue;  // its rows are the vocabulary
        EXPECT_THAT(refusal([&](gguf::Contents& c) { tensor(c, name).dims.back() += 32; }),
                    HasSubstr(name + " is ["));
    }
}

TEST(Gemma4Loader, RefusesWhatItWouldComputeWrongly) {
    const auto with = [](const char* key, uint32_t value) {
        return refusal([&](gguf::Contents& c) { c.keys.set<uint32_t>("gemma4." + std::string(key), value); });
    };
    EXPECT_THAT(with("attention.shared_kv_layers", 2), HasSubstr("attention.shared_kv_layers"));
    EXPECT_THAT(with("embedding_length_per_layer_input", 16), HasSubstr("per-layer embeddings"));
    EXPECT_THAT(with("attention.value_length", 32), HasSubstr("attention.value_length must equal"));
    EXPECT_THAT(with("attention.value_length_swa", 64), HasSubstr("attention.value_length_swa must equal"));
    EXPECT_THAT(with("rope.dimension_count", 16), HasSubstr("rope.dimension_count must equal"));
    EXPECT_THAT(with("attention.head_count_kv", 4), HasSubstr("multiple of attention.head_count_kv"));
    EXPECT_THAT(with("expert_count", 0), HasSubstr("blk.0.ffn_gate_inp.weight is there, but expert_count is 0"));
    EXPECT_THAT(refusal([](gguf::Contents& c) { c.keys.set<float>("gemma4.rope.scaling.factor", 8); }),
                HasSubstr("rope.scaling.factor"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    c.tensors.push_back({"blk.1.attn_q.bias", Type::f32, {192}});
                }),
                HasSubstr("blk.1.attn_q.bias"));
    EXPECT_THAT(refusal([](gguf::Contents& c) {
                    tensor(c, "blk.1.attn_q.weight") = {"blk.1.attn_q.weight", Type::nvfp4, {64, 288}};
                }),
                HasSubstr("blk.1.attn_q.weight is NVFP4"));
}

TEST(Gemma4Loader, TakesOtherForms) {
    EXPECT_EQ(refusal([](gguf::Contents& c) {
                  tensor(c, "blk.0.ffn_down_exps.scale").name = "blk.0.odd";
                  tensor(c, "blk.1.layer_output_scale.weight").name = "blk.1.odd";
                  tensor(c, "blk.2.ffn_gate_up_exps.weight") = {"blk.2.ffn_gate_exps.weight", Type::f16, {96, 32, 7}};
                  c.tensors.push_back({"blk.2.ffn_up_exps.weight", Type::f16, {96, 32, 7}});
                  c.tensors.push_back({"blk.2.attn_v.weight", Type::f16, {96, 128}});
                  c.tensors.push_back({"output.weight", Type::f16, {96, 291}});
                  const std::vector<uint32_t> inner(5, 40);
                  c.keys.set_array<uint32_t>("gemma4.feed_forward_length", inner);
                  c.keys.remove("gemma4.final_logit_softcapping");
              }),
              "");
    // A dense model: layers without routed experts.
    EXPECT_EQ(refusal([](gguf::Contents& c) {
                  c.keys.remove("gemma4.expert_count");
                  std::erase_if(c.tensors, [](const gguf::TensorSpec& t) {
                      return t.name.find("exps") != std::string::npos || t.name.find("gate_inp") != std::string::npos;
                  });
              }),
              "");
}

/// The sentence with which a model refuses a draft model that was changed by `edit`.
std::string draft_refusal(const std::function<void(gguf::Contents&)>& edit) {
    const EditedFile draft(kDraft, edit);
    try {
        Session(data(kModel), {}, {}, draft.path());
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST(Gemma4Loader, RefusesADraftModelThatDoesNotFit) {
    EXPECT_EQ(draft_refusal([](gguf::Contents&) {}), "");
    const auto with = [](const char* key, uint32_t value) {
        return draft_refusal(
            [&](gguf::Contents& c) { c.keys.set<uint32_t>("gemma4-assistant." + std::string(key), value); });
    };
    EXPECT_THAT(with("embedding_length_out", 64), HasSubstr("embedding_length_out is not the model's width of 96"));
    EXPECT_THAT(with("nextn_predict_layers", 2), HasSubstr("nextn_predict_layers must equal block_count"));
    EXPECT_THAT(with("attention.sliding_window", 25), HasSubstr("attention.sliding_window is not the model's 24"));
    EXPECT_THAT(with("attention.head_count_kv", 3), HasSubstr("layer 3 has 3 key/value heads of 64"));
    EXPECT_THAT(draft_refusal([](gguf::Contents& c) {
                    tensor(c, "token_embd.weight").dims = {64, 290};
                }),
                HasSubstr("its vocabulary has 290 tokens, the model's 291"));
    for (const char* name : {"nextn.pre_projection.weight", "nextn.post_projection.weight", "blk.2.attn_q.weight",
                             "blk.3.ffn_down.weight", "output_norm.weight"})
        EXPECT_THAT(draft_refusal([&](gguf::Contents& c) { tensor(c, name).name = "gone"; }),
                    HasSubstr(std::string(name) + " is missing"));
    EXPECT_THAT(draft_refusal([](gguf::Contents& c) { c.keys.remove("gemma4-assistant.embedding_length_out"); }),
                HasSubstr("gemma4-assistant.embedding_length_out"));
    EXPECT_THAT(draft_refusal([](gguf::Contents& c) {
                    std::vector<std::string> tokens(291, "x");
                    c.keys.set_strings("tokenizer.ggml.tokens", tokens);
                }),
                HasSubstr("its tokens are not the model's"));
}

TEST(Gemma4Loader, SaysWhatADraftModelIs) {
    auto file = gguf::File::open(data(kDraft));
    auto device = CpuDevice::create();
    const auto model = make_model(*file, **device, {});
    ASSERT_FALSE(model);
    EXPECT_THAT(model.error().message, HasSubstr("is a draft model: give it as --draft-model"));
}

}  // namespace
}  // namespace strata::test
