// Gemma 4 26B-A4B and its draft model: specs page gemma4, sections 1 to 3.
#include <algorithm>

#include "synth/model.h"

namespace strata::synth {
namespace {

constexpr uint64_t kWidth = 2816, kHeads = 16, kFfn = 2112, kExperts = 128, kUsed = 8, kExpertWidth = 704;
constexpr uint64_t kWindow = 1024;
constexpr uint64_t kDraftWidth = 1024, kDraftFfn = 8192;

// The embedding is the head as well. Were it large in the stream, the likeliest token would always be the one just
// read: so the stream starts small (0.2), the layers add much more (2 each), and the last norm sets the logits' spread.
constexpr float kEmbedding = 0.2f / 53.066f, kAdded = 2, kLastNorm = 20;

struct Kind {
    bool window;
    uint64_t head, kv_heads;
};
Kind kind_of(bool global) {
    return global ? Kind{false, 512, 2} : Kind{true, 256, 8};
}

void common_keys(Model& m, const std::vector<bool>& global) {
    m.u32("context_length", 262144);
    m.u32("attention.head_count", kHeads);
    std::vector<int32_t> kv_heads;
    std::vector<bool> windows;
    for (const bool g : global) {
        kv_heads.push_back(static_cast<int32_t>(kind_of(g).kv_heads));
        windows.push_back(!g);
    }
    m.i32s("attention.head_count_kv", kv_heads);
    m.f32("rope.freq_base", 1e6f);
    m.f32("rope.freq_base_swa", 1e4f);
    m.f32("attention.layer_norm_rms_epsilon", 1e-6f);
    m.u32("attention.key_length", 512);
    m.u32("attention.value_length", 512);
    m.u32("attention.key_length_swa", 256);
    m.u32("attention.value_length_swa", 256);
    m.u32("attention.sliding_window", kWindow);
    m.flags("attention.sliding_window_pattern", windows);
    m.u32("embedding_length_per_layer_input", 0);
    m.u32("rope.dimension_count", 512);
    m.u32("rope.dimension_count_swa", 256);
}

void rope_freqs(Model& m) {  // a quarter of a global head turns
    std::vector<float> divisors(256, 1e30f);
    std::fill(divisors.begin(), divisors.begin() + 64, 1.0f);
    m.values("rope_freqs.weight", std::move(divisors));
}

}  // namespace

void build_gemma4(Model& m, int layers) {
    m.vocabulary = &gemma_vocabulary();
    m.blocks = layers;
    m.heads = kHeads;
    m.kv_heads = 8;
    m.expert_count = kExperts;
    std::vector<bool> global;
    for (int i = 0; i < layers; ++i) global.push_back(i % 6 == 5);

    m.u32("block_count", static_cast<uint64_t>(layers));
    m.u32("embedding_length", kWidth);
    m.u32("feed_forward_length", kFfn);
    common_keys(m, global);
    m.u32("attention.shared_kv_layers", 0);
    m.f32("final_logit_softcapping", 30);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", kUsed);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.keys.set<float>("general.sampling.temp", 1.0f);
    m.keys.set<int32_t>("general.sampling.top_k", 64);
    m.keys.set<float>("general.sampling.top_p", 0.95f);

    m.table("token_embd.weight", kWidth, m.vocabulary->size, kEmbedding);
    m.norm("output_norm.weight", kWidth, kLastNorm);
    rope_freqs(m);
    for (int i = 0; i < layers; ++i) {
        const Kind kind = kind_of(global[static_cast<size_t>(i)]);
        m.block(i);
        m.norm("attn_norm.weight", kWidth);
        m.matrix("attn_q.weight", kWidth, kHeads * kind.head);
        m.matrix("attn_k.weight", kWidth, kind.kv_heads * kind.head);
        if (kind.window) m.matrix("attn_v.weight", kWidth, kind.kv_heads * kind.head);
        // Scores have no factor: a spread of 2 needs keys of 2 / sqrt(head).
        m.norm("attn_k_norm.weight", kind.head, kind.window ? 2.0f / 16 : 2.0f / 22.6f);
        m.matrix("attn_output.weight", kHeads * kind.head, kWidth);
        m.norm("attn_q_norm.weight", kind.head);
        m.norm("post_attention_norm.weight", kWidth, kAdded);
        m.norm("layer_output_scale.weight", 1, 1, 0.05f);
        m.norm("ffn_norm.weight", kWidth);
        m.matrix("ffn_gate.weight", kWidth, kFfn);
        m.matrix("ffn_up.weight", kWidth, kFfn);
        m.matrix("ffn_down.weight", kFfn, kWidth);
        m.norm("post_ffw_norm.weight", kWidth, kAdded);
        m.router("ffn_gate_inp.weight", kWidth, kExperts);
        m.norm("ffn_gate_inp.scale", kWidth, 53.066f);  // undoes the 1 / sqrt(width) of the router's input
        m.norm("pre_ffw_norm_2.weight", kWidth);
        m.norm("post_ffw_norm_1.weight", kWidth);
        m.norm("post_ffw_norm_2.weight", kWidth);
        m.experts("ffn_gate_up_exps.weight", kWidth, 2 * kExpertWidth, kExperts);
        m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
        m.norm("ffn_down_exps.scale", kExperts);
    }
}

void build_gemma4_assistant(Model& m, int layers) {
    m.vocabulary = &gemma_vocabulary();
    m.blocks = layers;
    m.heads = kHeads;
    m.kv_heads = 8;
    std::vector<bool> global(static_cast<size_t>(layers), false);
    global.back() = true;

    m.u32("block_count", static_cast<uint64_t>(layers));
    m.u32("embedding_length", kDraftWidth);
    m.u32("embedding_length_out", kWidth);
    m.u32("feed_forward_length", kDraftFfn);
    common_keys(m, global);
    m.u32("attention.shared_kv_layers", static_cast<uint64_t>(layers));
    m.u32("nextn_predict_layers", static_cast<uint64_t>(layers));

    m.table("token_embd.weight", kDraftWidth, m.vocabulary->size, 4.0f / 32);
    m.norm("output_norm.weight", kDraftWidth);
    rope_freqs(m);
    m.matrix("nextn.pre_projection.weight", 2 * kWidth, kDraftWidth, 1.4f / kLastNorm);
    m.matrix("nextn.post_projection.weight", kDraftWidth, kWidth, kLastNorm);
    for (int i = 0; i < layers; ++i) {
        const Kind kind = kind_of(global[static_cast<size_t>(i)]);
        m.block(i);
        m.norm("attn_norm.weight", kDraftWidth);
        m.matrix("attn_q.weight", kDraftWidth, kHeads * kind.head);
        m.matrix("attn_output.weight", kHeads * kind.head, kDraftWidth);
        m.norm("attn_q_norm.weight", kind.head);
        m.norm("post_attention_norm.weight", kDraftWidth);
        m.norm("layer_output_scale.weight", 1, 1, 0.05f);
        m.norm("ffn_norm.weight", kDraftWidth);
        m.matrix("ffn_gate.weight", kDraftWidth, kDraftFfn);
        m.matrix("ffn_up.weight", kDraftWidth, kDraftFfn);
        m.matrix("ffn_down.weight", kDraftFfn, kDraftWidth);
        m.norm("post_ffw_norm.weight", kDraftWidth);
    }
}

}  // namespace strata::synth
