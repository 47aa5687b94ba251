// Qwen3.6-35B-A3B and Clover-35B-A3B: specs page qwen35moe, sections 1 to 3 and 12.
#include <cmath>

#include "synth/model.h"

namespace strata::synth {
namespace {

constexpr uint64_t kWidth = 2048, kHeads = 16, kKvHeads = 2, kHead = 256;
constexpr uint64_t kKeyHeads = 16, kValueHeads = 32, kState = 128, kTaps = 4;
constexpr uint64_t kChannels = kState * (2 * kKeyHeads + kValueHeads);
constexpr uint64_t kExperts = 256, kUsed = 8, kExpertWidth = 512;

bool is_attention(int layer) {
    return (layer + 1) % 4 == 0;
}

void delta_net(Model& m, bool clover) {
    m.matrix("attn_qkv.weight", kWidth, kChannels);
    m.matrix("attn_gate.weight", kWidth, kState * kValueHeads);
    m.plain("ssm_conv1d.weight", {kTaps, kChannels});
    // Decays from fast to slow: A from 1 to 16, steps from 0.001 to 0.1 before the softplus.
    std::vector<float> a = m.uniform("ssm_a", kValueHeads, 0, 2.7725887f);  // log A
    if (!clover)
        for (float& log_a : a) log_a = -std::exp(log_a);
    m.values("ssm_dt.bias", m.uniform("ssm_dt.bias", kValueHeads, -6.9f, -2.25f));
    m.values("ssm_a", std::move(a));
    m.matrix("ssm_alpha.weight", kWidth, kValueHeads);
    m.matrix("ssm_beta.weight", kWidth, kValueHeads);
    m.norm("ssm_norm.weight", kState);
    m.matrix("ssm_out.weight", kState * kValueHeads, kWidth);
}

void attention(Model& m) {
    m.matrix("attn_q.weight", kWidth, 2 * kHeads * kHead);
    m.matrix("attn_k.weight", kWidth, kKvHeads * kHead);
    m.matrix("attn_v.weight", kWidth, kKvHeads * kHead);
    m.norm("attn_q_norm.weight", kHead, 1.4f);  // scores spread by 2: attention picks, as a trained one does
    m.norm("attn_k_norm.weight", kHead, 1.4f);
    m.matrix("attn_output.weight", kHeads * kHead, kWidth);
}

void experts(Model& m, Type router) {
    m.router("ffn_gate_inp.weight", kWidth, kExperts, 1.5f, router);
    m.experts("ffn_gate_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_up_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
    m.plain("ffn_gate_inp_shexp.weight", {kWidth}, 1, router);
    m.matrix("ffn_gate_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_up_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_down_shexp.weight", kExpertWidth, kWidth);
}

void build(Model& m, int layers, bool clover) {
    const int drafts = !clover && m.options().draft ? 1 : 0;
    m.vocabulary = &qwen_vocabulary();
    const uint64_t vocabulary = m.vocabulary->size;
    m.blocks = layers + drafts;
    m.heads = kHeads;
    m.kv_heads = kKvHeads;
    m.expert_count = kExperts;

    m.u32("block_count", static_cast<uint64_t>(m.blocks));
    m.u32("context_length", clover ? 131072 : 262144);
    m.u32("embedding_length", kWidth);
    m.u32("attention.head_count", kHeads);
    m.u32("attention.head_count_kv", kKvHeads);
    m.u32("attention.key_length", kHead);
    m.u32("attention.value_length", kHead);
    m.f32("attention.layer_norm_rms_epsilon", 1e-6f);
    m.u32("rope.dimension_count", 64);
    if (!clover) m.i32s("rope.dimension_sections", {11, 11, 10, 0});
    m.f32("rope.freq_base", 1e7f);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", kUsed);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.u32("expert_shared_feed_forward_length", kExpertWidth);
    if (clover) m.u32("expert_shared_count", 1);
    m.u32("ssm.conv_kernel", kTaps);
    m.u32("ssm.state_size", kState);
    m.u32("ssm.group_count", kKeyHeads);
    m.u32("ssm.time_step_rank", kValueHeads);
    m.u32("ssm.inner_size", kState * kValueHeads);
    m.u32("full_attention_interval", 4);
    std::vector<bool> recurrent;
    for (int i = 0; i < m.blocks; ++i) recurrent.push_back(i < layers && !is_attention(i));
    m.flags("attention.recurrent_layers", recurrent);
    if (drafts) m.u32("nextn_predict_layers", 1);

    m.table("token_embd.weight", kWidth, vocabulary, 0.5f);
    m.norm("output_norm.weight", kWidth);
    m.matrix("output.weight", kWidth, vocabulary, 4);
    for (int i = 0; i < layers; ++i) {
        m.block(i);
        m.norm("attn_norm.weight", kWidth);
        m.norm("post_attention_norm.weight", kWidth);
        if (is_attention(i))
            attention(m);
        else
            delta_net(m, clover);
        experts(m, Type::f32);
    }
    if (drafts) {
        m.block(layers);
        m.norm("attn_norm.weight", kWidth);
        m.norm("post_attention_norm.weight", kWidth);
        attention(m);
        experts(m, Type::bf16);  // as published files have it
        m.matrix("nextn.eh_proj.weight", 2 * kWidth, kWidth);
        m.norm("nextn.enorm.weight", kWidth);
        m.norm("nextn.hnorm.weight", kWidth);
        m.norm("nextn.shared_head_norm.weight", kWidth);
    }
}

}  // namespace

void build_qwen36(Model& model, int layers) {
    build(model, layers, false);
}
void build_clover(Model& model, int layers) {
    build(model, layers, true);
}

}  // namespace strata::synth
