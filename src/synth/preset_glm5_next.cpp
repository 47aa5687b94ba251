// GLM 5.3 Flash: specs page glm5-next, sections 1 to 3 and 6.
#include <algorithm>
#include <cmath>

#include "synth/model.h"

namespace strata::synth {
namespace {

constexpr uint64_t kWidth = 4096, kStreams = 4, kMixes = (2 + kStreams) * kStreams;
constexpr uint64_t kHeads = 64, kState = 128, kTaps = 4, kInner = kHeads * kState;
constexpr uint64_t kQueryRank = 1536, kLatent = 512, kKey = 256, kValue = 256;
constexpr uint64_t kIndexHeads = 32, kIndexWidth = 128, kPool = 4;
constexpr uint64_t kFfn = 12288, kExperts = 288, kUsed = 8, kExpertWidth = 2048;
constexpr int kDense = 3;

bool is_sparse(int layer) {
    return layer % 4 == 3;
}

void mixer(Model& m, const std::string& name) {
    m.matrix(name + "_fn.weight", kStreams * kWidth, kMixes);
    m.values(name + "_base.weight", std::vector<float>(kMixes, 0.0f));
    m.values(name + "_scale.weight", std::vector<float>(3, 1.0f));
}

void delta_attention(Model& m) {
    m.matrix("attn_q.weight", kWidth, kInner);
    m.matrix("attn_k.weight", kWidth, kInner);
    m.matrix("attn_v.weight", kWidth, kInner);
    for (const char* part : {"q", "k", "v"}) m.plain(std::string("ssm_conv1d_") + part + ".weight", {kTaps, 1, kInner});
    m.matrix("ssm_f_a.weight", kWidth, kState);
    m.matrix("ssm_f_b.weight", kState, kInner);
    m.values("ssm_dt.bias", m.uniform("ssm_dt.bias", kInner, -6, -2));  // decays of 0.01 to 0.5 a token, before A
    std::vector<float> a = m.uniform("ssm_a", kHeads, 0, 0.7f);         // log A
    for (float& log_a : a) log_a = -std::exp(log_a);
    m.values("ssm_a", std::move(a));
    m.matrix("ssm_beta.weight", kWidth, kHeads);
    m.matrix("ssm_g_a.weight", kWidth, kState);
    m.matrix("ssm_g_b.weight", kState, kInner);
    m.norm("ssm_norm.weight", kState);
    m.matrix("attn_output.weight", kInner, kWidth);
}

void sparse_attention(Model& m) {
    m.matrix("attn_q_a.weight", kWidth, kQueryRank);
    m.norm("attn_q_a_norm.weight", kQueryRank);
    m.matrix("attn_q_b.weight", kQueryRank, kHeads * kKey);
    m.matrix("attn_kv_a_mqa.weight", kWidth, kLatent);
    m.norm("attn_kv_a_norm.weight", kLatent);
    m.experts("attn_k_b.weight", kKey, kLatent, kHeads);  // one matrix a head
    m.experts("attn_v_b.weight", kLatent, kValue, kHeads);
    m.matrix("attn_output.weight", kHeads * kValue, kWidth);
    m.matrix("indexer.attn_q_b.weight", kQueryRank, kIndexHeads * kIndexWidth);
    m.matrix("indexer.attn_k.weight", kWidth, kIndexWidth);
    m.norm("indexer.k_norm.weight", kIndexWidth);
    m.values("indexer.k_norm.bias", m.uniform("indexer.k_norm.bias", kIndexWidth, -0.1f, 0.1f));
    m.matrix("indexer.proj.weight", kWidth, kIndexHeads);
    m.matrix("indexer.kpool_gate.weight", kWidth, kIndexWidth);
    m.plain("indexer.kpool_ape.weight", {kIndexWidth, kPool});
}

void experts(Model& m) {
    m.router("ffn_gate_inp.weight", kWidth, kExperts);
    m.norm("exp_probs_b.bias", kExperts, 0.02f, 1);
    m.experts("ffn_gate_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_up_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
    m.matrix("ffn_gate_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_up_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_down_shexp.weight", kExpertWidth, kWidth);
}

}  // namespace

void build_glm5_next(Model& m, int layers) {
    const int drafts = m.options().draft ? 1 : 0;
    m.vocabulary = &glm_vocabulary();
    m.blocks = layers + drafts;
    m.heads = kHeads;
    m.kv_heads = 1;
    m.expert_count = kExperts;
    const auto blocks = static_cast<size_t>(m.blocks);

    m.u32("block_count", blocks);
    if (drafts) m.u32("nextn_predict_layers", 1);
    m.u32("context_length", 1048576);
    m.u32("embedding_length", kWidth);
    m.u32("feed_forward_length", kFfn);
    m.u32("vocab_size", m.vocabulary->size);
    m.u32("attention.head_count", kHeads);
    std::vector<int32_t> kinds;
    for (int i = 0; i < m.blocks; ++i) kinds.push_back(i >= layers || is_sparse(i));
    m.i32s("attention.head_count_kv", kinds);
    m.f32("attention.layer_norm_rms_epsilon", 1e-5f);
    m.f32("attention.layer_norm_epsilon", 1e-6f);
    m.u32("attention.q_lora_rank", kQueryRank);
    m.u32("attention.kv_lora_rank", kLatent);
    m.u32("attention.key_length", kLatent);
    m.u32("attention.value_length", kLatent);
    m.u32("attention.key_length_mla", kKey);
    m.u32("attention.value_length_mla", kValue);
    m.u32("rope.dimension_count", 0);
    m.u32("ssm.conv_kernel", kTaps);
    m.u32("kda.head_dim", kState);
    m.f32("kda.gate_lower_bound", -5);
    m.u32("attention.indexer.head_count", kIndexHeads);
    m.u32("attention.indexer.key_length", kIndexWidth);
    m.u32("attention.indexer.top_k", 2048);
    m.u32("attention.indexer.kpool", kPool);
    m.flag("attention.indexer.kpool_select_tail", true);
    m.flags("attention.indexer.types", std::vector<bool>(static_cast<size_t>(layers), true));
    m.u32("hyper_connection.count", kStreams);
    m.u32("hyper_connection.sinkhorn_iterations", 20);
    m.f32("hyper_connection.epsilon", 1e-6f);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", kUsed);
    m.u32("expert_shared_count", 1);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.u32("expert_shared_feed_forward_length", kExpertWidth);
    m.u32("leading_dense_block_count", static_cast<uint64_t>(std::min(kDense, layers)));
    m.u32("expert_gating_func", 2);
    m.flag("expert_weights_norm", true);
    m.f32("expert_weights_scale", 2.5f);
    m.f32s("swiglu_clamp_exp", std::vector<float>(blocks, 10.0f));
    m.f32s("swiglu_clamp_shexp", std::vector<float>(blocks, 10.0f));

    m.table("token_embd.weight", kWidth, m.vocabulary->size, 0.5f);
    m.norm("output_norm.weight", kWidth);
    m.matrix("output.weight", kWidth, m.vocabulary->size, 4);
    for (int i = 0; i < m.blocks; ++i) {
        m.block(i);
        m.norm("attn_norm.weight", kWidth);
        m.norm("ffn_norm.weight", kWidth);
        const bool draft = i >= layers;
        if (!draft) {
            mixer(m, "hc_attn");
            mixer(m, "hc_ffn");
        }
        if (draft || is_sparse(i))
            sparse_attention(m);
        else
            delta_attention(m);
        if (!draft && i < kDense) {
            m.matrix("ffn_gate.weight", kWidth, kFfn);
            m.matrix("ffn_up.weight", kWidth, kFfn);
            m.matrix("ffn_down.weight", kFfn, kWidth);
        } else {
            experts(m);
        }
        if (draft) {
            m.matrix("nextn.eh_proj.weight", 2 * kWidth, kWidth);
            m.norm("nextn.enorm.weight", kWidth);
            m.norm("nextn.hnorm.weight", kWidth);
            m.norm("nextn.shared_head_norm.weight", kWidth);
        }
    }
}

}  // namespace strata::synth
