// Kolibri 1 (78B-A3.5B): specs page kolibri1, sections 1 to 3.
#include "synth/model.h"

namespace strata::synth {

void build_kolibri1(Model& m, int layers) {
    constexpr uint64_t kWidth = 2560, kHeads = 48, kKvHeads = 4, kHead = 128, kExperts = 384, kExpertWidth = 512;
    m.vocabulary = &kolibri_vocabulary();
    m.blocks = layers;
    m.heads = kHeads;
    m.kv_heads = kKvHeads;
    m.expert_count = kExperts;

    m.u32("block_count", static_cast<uint64_t>(layers));
    m.u32("context_length", 131072);
    m.u32("embedding_length", kWidth);
    m.u32("feed_forward_length", kExpertWidth);
    m.u32("attention.head_count", kHeads);
    m.u32("attention.head_count_kv", kKvHeads);
    m.u32("attention.key_length", kHead);
    m.u32("attention.value_length", kHead);
    m.f32("attention.layer_norm_rms_epsilon", 1e-6f);
    m.u32("attention.sliding_window", 513);
    std::vector<bool> windows;
    for (int i = 0; i < layers; ++i) windows.push_back(i % 5 != 4);
    m.flags("attention.sliding_window_pattern", windows);
    m.f32("rope.freq_base", 1e4f);
    m.u32("rope.dimension_count", kHead);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", 6);
    m.u32("expert_shared_count", 1);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.u32("expert_shared_feed_forward_length", kExpertWidth);
    m.u32("expert_gating_func", 5);
    m.flag("expert_weights_norm", false);
    m.u32("vocab_size", m.vocabulary->size);

    m.table("token_embd.weight", kWidth, m.vocabulary->size, 0.5f);
    m.norm("output_norm.weight", kWidth);
    m.matrix("output.weight", kWidth, m.vocabulary->size, 4);
    for (int i = 0; i < layers; ++i) {
        m.block(i);
        m.norm("attn_norm.weight", kWidth);
        m.norm("post_attention_norm.weight", kWidth, 0.5f);
        m.norm("ffn_norm.weight", kWidth);
        m.norm("post_ffw_norm.weight", kWidth, 0.5f);
        m.matrix("attn_q.weight", kWidth, kHeads * kHead);
        m.matrix("attn_k.weight", kWidth, kKvHeads * kHead);
        m.matrix("attn_v.weight", kWidth, kKvHeads * kHead);
        m.matrix("attn_output.weight", kHeads * kHead, kWidth);
        m.norm("attn_q_norm.weight", kHead, 1.4f);
        m.norm("attn_k_norm.weight", kHead, 1.4f);
        m.router("ffn_gate_inp.weight", kWidth, kExperts);
        m.norm("exp_probs_b.bias", kExperts, 0.1f, 1);
        m.experts("ffn_gate_exps.weight", kWidth, kExpertWidth, kExperts);
        m.experts("ffn_up_exps.weight", kWidth, kExpertWidth, kExperts);
        m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
        m.matrix("ffn_gate_shexp.weight", kWidth, kExpertWidth);
        m.matrix("ffn_up_shexp.weight", kWidth, kExpertWidth);
        m.matrix("ffn_down_shexp.weight", kExpertWidth, kWidth);
    }
}

}  // namespace strata::synth
