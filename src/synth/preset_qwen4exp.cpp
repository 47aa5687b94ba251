// Qwen3.8-Flash-Next and its draft file: specs page qwen4exp, sections 1 to 3 and 6.
#include <cmath>

#include "synth/model.h"

namespace strata::synth {
namespace {

constexpr int kLayers = 48;
constexpr uint64_t kWidth = 2560, kStreams = 4, kMixerRank = 320;
constexpr uint64_t kHeads = 24, kKvHeads = 2, kHead = 256, kIndexHeads = 4, kIndexWidth = 128;
constexpr uint64_t kKeyHeads = 16, kValueHeads = 48, kState = 128, kTaps = 4;
constexpr uint64_t kInner = kState * kValueHeads, kChannels = 2 * kState * kKeyHeads + kInner;
constexpr uint64_t kExperts = 512, kUsed = 10, kExpertWidth = 640;
constexpr uint64_t kNgramRow = 160, kNgramHeads = 16, kNgramTaps = 4;
constexpr int kNgramLayer = 1;
constexpr uint64_t kNgramSizes[kNgramHeads] = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063,
                                               20000069, 20000077, 20000081, 20000093, 20000107, 20000147,
                                               20000153, 20000159, 20000161, 20000171};

bool is_attention(int layer) {
    return (layer + 1) % 4 == 0;
}

/// The table of a cut model is cut in proportion: whole, it has 51 G parameters.
std::vector<uint64_t> ngram_sizes(int layers) {
    std::vector<uint64_t> sizes;
    for (const uint64_t size : kNgramSizes) sizes.push_back(size * static_cast<uint64_t>(layers) / kLayers);
    return sizes;
}

void keys(Model& m, int layers, int drafts) {
    const int blocks = layers + drafts;
    m.u32("block_count", static_cast<uint64_t>(blocks));
    m.u32("context_length", 262144);
    m.u32("embedding_length", kWidth);
    m.u32("attention.head_count", kHeads);
    m.u32("attention.head_count_kv", kKvHeads);
    m.u32("attention.key_length", kHead);
    m.u32("attention.value_length", kHead);
    m.f32("attention.layer_norm_rms_epsilon", 1e-6f);
    m.u32("rope.dimension_count", 64);
    m.i32s("rope.dimension_sections", {11, 11, 10, 0});
    m.f32("rope.freq_base", 1e7f);
    m.u32("expert_count", kExperts);
    m.u32("expert_used_count", kUsed);
    m.u32("expert_feed_forward_length", kExpertWidth);
    m.u32("expert_shared_feed_forward_length", kExpertWidth);
    m.u32("ssm.conv_kernel", kTaps);
    m.u32("ssm.state_size", kState);
    m.u32("ssm.group_count", kKeyHeads);
    m.u32("ssm.time_step_rank", kValueHeads);
    m.u32("ssm.inner_size", kInner);
    m.u32("full_attention_interval", 4);
    std::vector<bool> recurrent;
    std::vector<int32_t> ratios;
    for (int i = 0; i < blocks; ++i) {
        const bool attends = i >= layers || is_attention(i);
        recurrent.push_back(!attends);
        ratios.push_back(attends ? 4 : 0);
    }
    m.flags("attention.recurrent_layers", recurrent);
    m.u32("hyper_connection.count", kStreams);
    m.u32("hyper_connection.low_rank", kMixerRank);
    m.u32("attention.indexer.head_count", kIndexHeads);
    m.u32("attention.indexer.key_length", kIndexWidth);
    m.u32("attention.indexer.top_k", 2048);
    m.i32s("attention.compress_ratios", ratios);
}

void ngram_keys(Model& m, int layers) {
    m.i32s("ple.layers", {kNgramLayer});
    m.u32("ple.ngram_size", 3);
    m.u32("ple.heads_per_ngram", kNgramHeads / 2);
    m.u32("ple.conv_kernel", kNgramTaps);
    m.u32("ple.eos_token_id", 248044);
    m.u32("ple.image_token_id", 248056);
    m.u32("embedding_length_per_layer_input", kNgramRow);
    m.u64s("ple.layer_multipliers", {23703573157769, 20109073645365, 8052911324071});
    const std::vector<uint64_t> sizes = ngram_sizes(layers);
    std::vector<uint64_t> offsets = {0};
    for (size_t i = 1; i < sizes.size(); ++i) offsets.push_back(offsets.back() + sizes[i - 1]);
    m.u64s("ple.head_offsets", offsets);
    m.u64s("ple.head_vocab_sizes", sizes);
}

/// Reads the streams: gates of a half on average, so the norm doubles what it lets through.
void mixer(Model& m, const std::string& name, bool inject) {
    m.norm(name + "_norm.weight", kStreams * kWidth, 2);
    m.plain(name + "_down.weight", {kStreams * kWidth, kMixerRank}, 2, Type::bf16);
    m.plain(name + "_up.weight", {kMixerRank, kStreams * kWidth}, 2, Type::bf16);
    if (inject) m.plain(name + "_inject.weight", {kStreams * kWidth, kStreams}, 1, Type::bf16);
}

void attention(Model& m) {
    m.matrix("attn_q.weight", kWidth, 2 * kHeads * kHead);
    m.matrix("attn_k.weight", kWidth, kKvHeads * kHead);
    m.matrix("attn_v.weight", kWidth, kKvHeads * kHead);
    m.matrix("attn_output.weight", kHeads * kHead, kWidth);
    m.norm("attn_q_norm.weight", kHead, 1.4f);
    m.norm("attn_k_norm.weight", kHead, 1.4f);
    m.plain("indexer.q_proj.weight", {kWidth, kIndexHeads * kIndexWidth}, 1, Type::bf16);
    m.plain("indexer.k_proj.weight", {kWidth, kIndexWidth}, 1, Type::bf16);
    m.norm("indexer.q_norm.weight", kIndexWidth);
    m.norm("indexer.k_norm.weight", kIndexWidth);
}

void delta_net(Model& m) {
    m.matrix("attn_qkv.weight", kWidth, kChannels);
    m.matrix("attn_gate.weight", kWidth, kInner);
    m.plain("ssm_conv1d.weight", {kTaps, kChannels});
    m.values("ssm_dt.bias", m.uniform("ssm_dt.bias", kValueHeads, -6.9f, -2.25f));
    std::vector<float> a = m.uniform("ssm_a", kValueHeads, 0, 2.7725887f);  // log A, A from 1 to 16
    for (float& log_a : a) log_a = -std::exp(log_a);
    m.values("ssm_a", std::move(a));
    m.matrix("ssm_alpha.weight", kWidth, kValueHeads);
    m.matrix("ssm_beta.weight", kWidth, kValueHeads);
    m.norm("ssm_norm.weight", kState);
    m.matrix("ssm_out.weight", kInner, kWidth);
}

void ngram(Model& m) {
    m.matrix("ple_key.weight", kWidth, kStreams * kWidth);
    m.matrix("ple_value.weight", kWidth, kWidth);
    m.norm("ple_norm_key.weight", kStreams * kWidth);
    m.norm("ple_norm_query.weight", kStreams * kWidth);
    m.norm("ple_norm_conv.weight", kStreams * kWidth);
    m.plain("ple_conv1d.weight", {kNgramTaps, kStreams * kWidth});
}

void experts(Model& m) {
    m.router("ffn_gate_inp.weight", kWidth, kExperts);
    m.experts("ffn_gate_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_up_exps.weight", kWidth, kExpertWidth, kExperts);
    m.experts("ffn_down_exps.weight", kExpertWidth, kWidth, kExperts);
    m.plain("ffn_gate_inp_shexp.weight", {kWidth});
    m.matrix("ffn_gate_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_up_shexp.weight", kWidth, kExpertWidth);
    m.matrix("ffn_down_shexp.weight", kExpertWidth, kWidth);
}

void begin(Model& m, int blocks) {
    m.vocabulary = &qwen_vocabulary();
    m.blocks = blocks;
    m.heads = kHeads;
    m.kv_heads = kKvHeads;
    m.expert_count = kExperts;
}

}  // namespace

void build_qwen4exp(Model& m, int layers) {
    begin(m, layers);
    keys(m, layers, 0);
    const bool table = layers > kNgramLayer;
    if (table) ngram_keys(m, layers);

    m.table("token_embd.weight", kWidth, m.vocabulary->size, 0.5f);
    m.matrix("output.weight", kWidth, m.vocabulary->size, 4);
    mixer(m, "output_hc", false);
    if (table) {
        uint64_t rows = 0;
        for (const uint64_t size : ngram_sizes(layers)) rows += size;
        m.table("per_layer_token_embd.weight", kNgramRow, (rows + 255) / 256 * 256, 1);
    }
    for (int i = 0; i < layers; ++i) {
        m.block(i);
        mixer(m, "hc_attn", true);
        mixer(m, "hc_ffn", true);
        if (is_attention(i))
            attention(m);
        else
            delta_net(m);
        if (i == kNgramLayer) ngram(m);
        experts(m);
    }
}

void build_qwen4exp_draft(Model& m, int layers) {
    begin(m, layers + 1);
    keys(m, layers, 1);
    m.u32("nextn_predict_layers", 1);
    m.flag("nextn_shared_target_tensors", true);
    m.block(layers);
    m.norm("nextn.enorm.weight", kWidth);
    m.norm("nextn.hnorm.weight", kStreams * kWidth);
    m.matrix("nextn.eh_proj.weight", 2 * kWidth, kWidth);
    mixer(m, "nextn.hc_head", false);
    mixer(m, "hc_attn", true);
    mixer(m, "hc_ffn", true);
    attention(m);
    experts(m);
}

}  // namespace strata::synth
