// LFM2.5-24B-A2B and LFM2-8B-A1B: specs page lfm2moe, sections 1 to 3.
#include <algorithm>

#include "synth/model.h"

namespace strata::synth {
namespace {

constexpr uint64_t kWidth = 2048, kHeads = 32, kKvHeads = 8, kHead = 64, kTaps = 3;
constexpr int kDense = 2;

// The head is the embedding: the stream starts small, so that the token just read does not win every time.
constexpr float kEmbedding = 0.05f, kLastNorm = 1.77f;

struct Shape {
    std::vector<int> attention;
    uint64_t ffn, experts, expert_width;
    bool large_vocabulary;
};

void build(Model& m, int layers, const Shape& shape) {
    m.vocabulary = &lfm_vocabulary(shape.large_vocabulary);
    m.blocks = layers;
    m.heads = kHeads;
    m.kv_heads = kKvHeads;
    m.expert_count = static_cast<int>(shape.experts);
    const auto attends = [&](int i) {
        return std::find(shape.attention.begin(), shape.attention.end(), i) != shape.attention.end();
    };

    m.u32("block_count", static_cast<uint64_t>(layers));
    m.u32("context_length", 128000);
    m.u32("embedding_length", kWidth);
    m.u32("feed_forward_length", shape.ffn);
    m.u32("attention.head_count", kHeads);
    std::vector<int32_t> kv_heads;
    for (int i = 0; i < layers; ++i) kv_heads.push_back(attends(i) ? kKvHeads : 0);
    m.i32s("attention.head_count_kv", kv_heads);
    m.f32("attention.layer_norm_rms_epsilon", 1e-5f);
    m.f32("rope.freq_base", 1e6f);
    m.u32("expert_count", shape.experts);
    m.u32("expert_used_count", 4);
    m.u32("expert_feed_forward_length", shape.expert_width);
    m.u32("leading_dense_block_count", static_cast<uint64_t>(std::min(kDense, layers)));
    m.u32("expert_gating_func", 2);
    m.u32("shortconv.l_cache", kTaps);
    m.u32("vocab_size", m.vocabulary->size);

    m.table("token_embd.weight", kWidth, m.vocabulary->size, kEmbedding);
    m.norm("token_embd_norm.weight", kWidth, kLastNorm);
    for (int i = 0; i < layers; ++i) {
        m.block(i);
        m.norm("attn_norm.weight", kWidth);
        m.norm("ffn_norm.weight", kWidth);
        if (attends(i)) {
            m.matrix("attn_q.weight", kWidth, kHeads * kHead);
            m.matrix("attn_k.weight", kWidth, kKvHeads * kHead);
            m.matrix("attn_v.weight", kWidth, kKvHeads * kHead);
            m.norm("attn_q_norm.weight", kHead, 1.4f);
            m.norm("attn_k_norm.weight", kHead, 1.4f);
            m.matrix("attn_output.weight", kHeads * kHead, kWidth);
        } else {
            m.matrix("shortconv.in_proj.weight", kWidth, 3 * kWidth);
            m.plain("shortconv.conv.weight", {kTaps, kWidth});
            m.matrix("shortconv.out_proj.weight", kWidth, kWidth, 0.5f);
        }
        if (i < kDense) {
            m.matrix("ffn_gate.weight", kWidth, shape.ffn);
            m.matrix("ffn_up.weight", kWidth, shape.ffn);
            m.matrix("ffn_down.weight", shape.ffn, kWidth);
        } else {
            m.router("ffn_gate_inp.weight", kWidth, shape.experts);
            m.norm("exp_probs_b.bias", shape.experts, 0.02f, 1);
            m.experts("ffn_gate_exps.weight", kWidth, shape.expert_width, shape.experts);
            m.experts("ffn_up_exps.weight", kWidth, shape.expert_width, shape.experts);
            m.experts("ffn_down_exps.weight", shape.expert_width, kWidth, shape.experts);
        }
    }
}

}  // namespace

void build_lfm25_24b(Model& model, int layers) {
    build(model, layers, {{2, 6, 10, 14, 18, 22, 26, 30, 34, 38}, 11776, 64, 1536, true});
}
void build_lfm2_8b(Model& model, int layers) {
    build(model, layers, {{2, 6, 10, 14, 18, 21}, 7168, 32, 1792, false});
}

}  // namespace strata::synth
