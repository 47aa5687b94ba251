// Flint 40B-A2.5B: specs page flint, sections 1 to 3. The rope base is not published; 1e6 stands in for it.
#include <algorithm>

#include "synth/model.h"

namespace strata::synth {

void build_flint(Model& m, int layers) {
    constexpr uint64_t kWidth = 2048, kHeads = 32, kKvHeads = 4, kHead = 128, kFfn = 6144;
    constexpr uint64_t kExperts = 256, kExpertWidth = 512, kSharedWidth = 1024;
    constexpr int kDense = 2;
    m.vocabulary = &flint_vocabulary();
    m.blocks = layers;
    m.heads = kHeads;
    m.kv_heads = kKvHeads;
    m.expert_count = kExperts;
    const auto is_global = [](int i) { return i == 0 || i == 48 || i % 4 == 1; };

    m.u32("block_count", static_cast<uint64_t>(layers));
    m.u32("context_length", 262144);
    m.u32("embedding_length", kWidth);
    m.u32("feed_forward_length", kFfn);
    m.u32("attention.head_count", kHeads);
    m.u32("attention.head_count_kv", kKvHeads);
    m.u32("attention.key_length", kHead);
    m.u32("attention.value_length", kHead);
    m.f32("attention.layer_norm_rms_epsilon", 1e-6f);
    m.f32("rope.freq_base", 1e6f);
    m.u32("rope.dimension_count", kHead);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", 6);
    m.u32("expert_shared_count", kSharedWidth / kExpertWidth);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.u32("expert_shared_feed_forward_length", kSharedWidth);
    m.u32("leading_dense_block_count", static_cast<uint64_t>(std::min(kDense, layers)));
    m.flag("expert_weights_norm", true);
    m.f32("expert_weights_scale", 1);
    m.u32("attention.sliding_window", 513);
    std::vector<bool> windows;
    for (int i = 0; i < layers; ++i) windows.push_back(!is_global(i));
    m.flags("attention.sliding_window_pattern", windows);
    m.flags("attention.rope_pattern", windows);
    m.u32("vocab_size", m.vocabulary->size);

    m.table("token_embd.weight", kWidth, m.vocabulary->size, 0.5f);
    m.norm("output_norm.weight", kWidth);
    m.matrix("output.weight", kWidth, m.vocabulary->size, 4);
    for (int i = 0; i < layers; ++i) {
        m.block(i);
        m.norm("attn_norm.weight", kWidth);
        m.norm("ffn_norm.weight", kWidth);
        m.matrix("attn_q.weight", kWidth, kHeads * kHead);
        m.matrix("attn_k.weight", kWidth, kKvHeads * kHead);
        m.matrix("attn_v.weight", kWidth, kKvHeads * kHead);
        m.matrix("attn_output.weight", kHeads * kHead, kWidth);
        m.norm("attn_q_norm.weight", kHead, 1.4f);
        m.norm("attn_k_norm.weight", kHead, 1.4f);
        m.values("attn_sinks.weight", m.uniform("attn_sinks.weight", kHeads, -1, 1));
        if (i < kDense) {
            m.matrix("ffn_gate.weight", kWidth, kFfn);
            m.matrix("ffn_up.weight", kWidth, kFfn);
            m.matrix("ffn_down.weight", kFfn, kWidth);
            continue;
        }
        m.router("ffn_gate_inp.weight", kWidth, kExperts);
        m.experts("ffn_gate_exps.weight", kWidth, kExpertWidth, kExperts);
        m.experts("ffn_up_exps.weight", kWidth, kExpertWidth, kExperts);
        m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
        m.matrix("ffn_gate_shexp.weight", kWidth, kSharedWidth);
        m.matrix("ffn_up_shexp.weight", kWidth, kSharedWidth);
        m.matrix("ffn_down_shexp.weight", kSharedWidth, kWidth);
    }
}

}  // namespace strata::synth
