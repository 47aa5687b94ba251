// DeepSeek V4 Flash and the draft block of its first release: specs page deepseek4, sections 1 to 3 and 6.1.
#include <string_view>

#include "synth/model.h"

namespace strata::synth {
namespace {

constexpr uint64_t kWidth = 4096, kStreams = 4, kMixes = (2 + kStreams) * kStreams;
constexpr uint64_t kHeads = 64, kHead = 512, kQueryRank = 1024, kGroups = 8, kOutputRank = 1024;
constexpr uint64_t kIndexHeads = 64, kIndexWidth = 128;
constexpr uint64_t kExperts = 256, kUsed = 6, kExpertWidth = 2048;
constexpr int kHashLayers = 3;

/// Rows that one pooled row stands for: 0 (no pooling) in the first two layers, then 4, 128, 4, ...
int ratio_of(int layer) {
    return layer < 2 ? 0 : layer % 2 == 0 ? 4 : 128;
}

void keys(Model& m, int layers, int drafts) {
    const auto blocks = static_cast<size_t>(layers + drafts);
    m.u32("block_count", blocks);
    m.u32("context_length", 1048576);
    m.u32("embedding_length", kWidth);
    m.u32("embedding_length_out", kStreams * kWidth);
    m.u32("feed_forward_length", kExpertWidth);
    m.u32("attention.head_count", kHeads);
    m.u32("attention.head_count_kv", 1);
    m.u32("attention.key_length", kHead);
    m.u32("attention.value_length", kHead);
    m.u32("rope.dimension_count", 64);
    m.f32("rope.freq_base", 1e4f);
    m.f32("attention.compress_rope_freq_base", 1.6e5f);
    m.text("rope.scaling.type", "yarn");
    m.f32("rope.scaling.factor", 16);
    m.u32("rope.scaling.original_context_length", 65536);
    m.f32("rope.scaling.yarn_beta_fast", 32);
    m.f32("rope.scaling.yarn_beta_slow", 1);
    m.f32("attention.layer_norm_rms_epsilon", 1e-6f);
    m.u32("attention.q_lora_rank", kQueryRank);
    m.u32("attention.sliding_window", 128);
    m.u32("attention.output_group_count", kGroups);
    m.u32("attention.output_lora_rank", kOutputRank);
    std::vector<int32_t> ratios;
    for (int i = 0; i < layers; ++i) ratios.push_back(ratio_of(i));
    ratios.push_back(0);  // files have one entry more, for a draft block
    m.i32s("attention.compress_ratios", ratios);
    m.u32("attention.indexer.head_count", kIndexHeads);
    m.u32("attention.indexer.key_length", kIndexWidth);
    m.u32("attention.indexer.top_k", 512);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", kUsed);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.u32("expert_shared_count", 1);
    m.f32("expert_weights_scale", 1.5f);
    m.flag("expert_weights_norm", true);
    m.u32("expert_gating_func", 4);
    m.f32s("swiglu_clamp_exp", std::vector<float>(blocks, 10.0f));
    m.f32s("swiglu_clamp_shexp", std::vector<float>(blocks, 10.0f));
    m.u32("hyper_connection.count", kStreams);
    m.u32("hyper_connection.sinkhorn_iterations", 20);
    m.f32("hyper_connection.epsilon", 1e-6f);
    m.u32("hash_layer_count", kHashLayers);
    if (drafts) m.u32("nextn_predict_layers", 1);
}

void mixer(Model& m, const std::string& name, uint64_t outputs, uint64_t scales) {
    m.plain(name + "_fn.weight", {kStreams * kWidth, outputs});
    m.values(name + "_base.weight", std::vector<float>(outputs, 0.0f));
    m.values(name + "_scale.weight", std::vector<float>(scales, 1.0f));
}

/// Pooling of rows by `ratio`; overlapping blocks (ratio 4) have two halves.
void compressor(Model& m, const std::string& name, uint64_t width, int ratio, std::optional<Type> type) {
    const uint64_t channels = ratio == 4 ? 2 * width : width;
    for (const char* part : {"_kv.weight", "_gate.weight"}) {
        if (type)
            m.plain(name + part, {kWidth, channels}, 1, *type);
        else
            m.matrix(name + part, kWidth, channels);
    }
    m.plain(name + "_ape.weight", {channels, static_cast<uint64_t>(ratio)});
    m.norm(name + "_norm.weight", width);
}

void block(Model& m, int number, int ratio, bool hashed) {
    m.block(number);
    mixer(m, "hc_attn", kMixes, 3);
    mixer(m, "hc_ffn", kMixes, 3);
    m.norm("attn_norm.weight", kWidth);
    m.norm("ffn_norm.weight", kWidth);
    m.values("attn_sinks.weight", std::vector<float>(kHeads, 0.0f));
    m.matrix("attn_q_a.weight", kWidth, kQueryRank);
    m.norm("attn_q_a_norm.weight", kQueryRank);
    m.matrix("attn_q_b.weight", kQueryRank, kHeads * kHead);
    m.matrix("attn_kv.weight", kWidth, kHead);
    m.norm("attn_kv_a_norm.weight", kHead, 1.5f);
    m.matrix("attn_output_a.weight", kHeads * kHead / kGroups, kGroups * kOutputRank);
    m.matrix("attn_output_b.weight", kGroups * kOutputRank, kWidth);
    if (ratio) compressor(m, "attn_compressor", kHead, ratio, {});
    if (ratio == 4) {
        m.matrix("indexer.proj.weight", kWidth, kIndexHeads);
        m.matrix("indexer.attn_q_b.weight", kQueryRank, kIndexHeads * kIndexWidth);
        compressor(m, "indexer_compressor", kIndexWidth, ratio, Type::bf16);
    }
    m.router("ffn_gate_inp.weight", kWidth, kExperts);
    if (hashed)
        m.add({m.name("ffn_gate_tid2eid.weight"),
               {kUsed, m.vocabulary->size},
               Type::i32,
               {.kind = Fill::Kind::distinct_ids, .limit = kExperts}});
    else
        m.values("exp_probs_b.bias", std::vector<float>(kExperts, 0.0f));
    m.experts("ffn_gate_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_up_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
    m.matrix("ffn_gate_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_up_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_down_shexp.weight", kExpertWidth, kWidth);
}

void begin(Model& m, int blocks) {
    m.vocabulary = &deepseek_vocabulary();
    m.blocks = blocks;
    m.heads = kHeads;
    m.kv_heads = 1;
    m.expert_count = kExperts;
}

void root(Model& m) {
    m.table("token_embd.weight", kWidth, m.vocabulary->size, 0.5f);
    m.norm("output_norm.weight", kWidth);
    m.matrix("output.weight", kWidth, m.vocabulary->size, 4);
    mixer(m, "output_hc", kStreams, 1);
}

}  // namespace

void build_deepseek4(Model& m, int layers) {
    begin(m, layers);
    keys(m, layers, 0);
    root(m);
    for (int i = 0; i < layers; ++i) block(m, i, ratio_of(i), i < kHashLayers);
}

void build_deepseek4_draft(Model& m, int layers) {
    begin(m, layers + 1);
    keys(m, layers, 1);
    root(m);
    block(m, layers, 0, false);
    m.matrix("nextn.eh_proj.weight", 2 * kWidth, kWidth);
    m.norm("nextn.enorm.weight", kWidth);
    m.norm("nextn.hnorm.weight", kWidth);
    m.norm("nextn.shared_head_norm.weight", kWidth);
}

}  // namespace strata::synth
