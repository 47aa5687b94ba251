#include "models/qwen35moe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "models/common.h"
#include "models/loader.h"

namespace strata {
namespace {

struct Shape {
    int width;                                    // D
    int vocabulary;                               // V
    int heads, kv_heads, head_width;              // attention: H, KV, dh
    int key_heads, value_heads, net_width, taps;  // delta net: Hk, Hv, d, K
    int experts, used, inner, shared_inner;       // E, k, F, Fs
    float eps;

    int channels() const { return net_width * (2 * key_heads + value_heads); }  // C
    int net_out() const { return net_width * value_heads; }                     // Hv d
};

struct GatedAttention {
    Matrix query_and_gate;  // [H][query dh | gate dh] rows
    Matrix key, value;      // [KV dh]
    Matrix out;
    HeadSpec heads;  // norms and caches
    AttentionSpec attend;
};

struct DeltaNet {
    Matrix qkv;    // [C]
    Matrix z;      // [Hv d]
    Matrix alpha;  // [Hv]
    Matrix beta;   // [Hv]
    Matrix out;
    DeltaNetSpec net;
};

struct Experts {
    Matrix router;         // [E]
    Matrix shared_weight;  // [1]
    ExpertSet routed;
    SharedExpert shared;
};

struct Layer {
    const float* mixer_norm = nullptr;
    const float* experts_norm = nullptr;
    std::optional<GatedAttention> attention;  // exactly one of the two
    std::optional<DeltaNet> delta_net;
    Experts experts;
};

/// The draft block: one attention layer with experts over [token half | hidden half].
struct Block {
    const float* token_norm = nullptr;   // enorm
    const float* hidden_norm = nullptr;  // hnorm
    const float* head_norm = nullptr;
    Matrix join;  // eh_proj {2D, D}
    Matrix embedding, head;
    Layer layer;
};

/// Interleaved sections: pair i follows one axis of the position; frequencies are those of plain partial rotary.
RopeSpec interleaved_rope(int rotated, double base, const std::vector<int>& sections) {
    RopeSpec rope;
    const int pairs = rotated / 2;
    int cycle = 0;
    for (int s : sections) cycle += s;
    for (int i = 0; i < pairs; ++i) {
        double frequency = std::pow(base, -2.0 * i / rotated);
        uint8_t axis = 0;
        if (cycle > 0) {
            const int j = i % cycle;
            if (j % 3 == 1 && j < 3 * sections[1])
                axis = 1;
            else if (j % 3 == 2 && j < 3 * sections[2])
                axis = 2;
            else if (!(j % 3 == 0 && j < 3 * sections[0]))
                frequency = 0;  // no section's: does not turn
        }
        rope.frequency.push_back(frequency);
        rope.axis.push_back(axis);
    }
    return rope;
}

class Qwen35Moe : public Model, public DraftBlock {
  public:
    Qwen35Moe(Loader& load, Device& device, const ModelOptions& options);

    const ModelFacts& facts() const override { return facts_; }
    const StateLayout& layout() const override { return layout_; }
    void start(Call& call) override;
    void layer(int index, Call& call) override { run_layer(layers_[static_cast<size_t>(index)], call); }
    void finish(Call& call) override;
    void settle(Call& call) override;
    DraftBlock* draft() override { return block_ ? this : nullptr; }

    void fill(Call& call, Rows before) override;
    void guess(Call& call, Rows before) override;

  private:
    void load_shape(Loader& load, const std::vector<bool>& recurrent);
    void load_rope(Loader& load);
    static std::vector<bool> recurrent_layers(Loader& load, int blocks, int trunk);
    Layer load_layer(Loader& load, int index, bool recurrent, const ModelOptions& options);
    GatedAttention load_attention(Loader& load, int index, const ModelOptions& options);
    DeltaNet load_delta_net(Loader& load, int index);
    Experts load_experts(Loader& load, int index);
    Block load_block(Loader& load, int index, const ModelOptions& options);

    void run_layer(const Layer& layer, Call& call);
    void run_attention(const GatedAttention& layer, const Activations& a, Call& call);
    void run_delta_net(const DeltaNet& layer, const Activations& a, Call& call);
    void run_experts(const Experts& layer, const Activations& m, Call& call);
    Rows join_halves(Call& call, Rows before);

    Device& dev_;
    Shape s_{};
    ModelFacts facts_;
    StateLayout layout_;
    RopeSpec rope_;
    Matrix embedding_, head_;
    const float* output_norm_ = nullptr;
    std::vector<Layer> layers_;
    std::optional<Block> block_;
};

// ---- what the file says
// ------------------------------------------------------------------------------------------------

Qwen35Moe::Qwen35Moe(Loader& load, Device& device, const ModelOptions& options) : dev_(device) {
    const int blocks = load.integer("block_count", 1, 4096);
    const int drafts = load.integer_or("nextn_predict_layers", 0, 0, blocks - 1);
    const int trunk = blocks - drafts;
    const std::vector<bool> recurrent = recurrent_layers(load, blocks, trunk);
    if (load.ok()) load_shape(load, recurrent);
    if (load.ok()) load_rope(load);
    if (!load.ok()) return;

    facts_.architecture = load.architecture();
    if (facts_.architecture == "qwen35moe") facts_.pictures = ModelFacts::Pictures::grid;
    facts_.layers = trunk;
    facts_.width = s_.width;
    facts_.vocabulary = s_.vocabulary;
    facts_.context = load.integer("context_length", 1, INT32_MAX);
    facts_.experts = s_.experts;
    facts_.experts_used = s_.used;

    embedding_ = load.matrix("token_embd.weight", s_.width, s_.vocabulary);
    head_ = load.has("output.weight") ? load.matrix("output.weight", s_.width, s_.vocabulary) : embedding_;
    output_norm_ = load.vector("output_norm.weight", {s_.width});
    for (int i = 0; i < trunk && load.ok(); ++i) {
        layers_.push_back(load_layer(load, i, recurrent[static_cast<size_t>(i)], options));
        facts_.recurrent = facts_.recurrent || layers_.back().delta_net;
    }
    if (drafts == 1) block_ = load_block(load, trunk, options);
    if (drafts > 1)
        facts_.notes.push_back("the file has " + std::to_string(drafts) + " draft blocks; they are not used");
    facts_.draft_expert_layers = block_ ? 1 : 0;
    facts_.expert_layers = trunk + facts_.draft_expert_layers;
    load.refuse_biases();
    for (std::string& note : load.notes()) facts_.notes.push_back(std::move(note));
}

void Qwen35Moe::load_shape(Loader& load, const std::vector<bool>& recurrent) {
    s_.width = load.integer("embedding_length", 32, 1 << 20);
    s_.vocabulary = static_cast<int>(load.dimension("token_embd.weight", 1));
    // Head counts may differ by layer in the file; those of attention layers are meant.
    const auto attention =
        static_cast<size_t>(std::find(recurrent.begin(), recurrent.end(), false) - recurrent.begin());
    const auto heads = [&](const char* key) {
        const std::vector<int> counts = load.per_layer(key, static_cast<int>(recurrent.size()), 0, 4096);
        return counts[std::min(attention, counts.size() - 1)];
    };
    s_.heads = heads("attention.head_count");
    s_.kv_heads = load.has_key("attention.head_count_kv") ? heads("attention.head_count_kv") : s_.heads;
    load.require(s_.heads > 0 && s_.kv_heads > 0 && s_.heads % s_.kv_heads == 0,
                 "attention.head_count must be a multiple of attention.head_count_kv");
    if (!load.ok()) return;
    s_.head_width = load.integer_or("attention.key_length", s_.width / s_.heads, 16, 4096);
    load.require(load.integer_or("attention.value_length", s_.head_width, 16, 4096) == s_.head_width,
                 "attention.key_length and attention.value_length differ");
    s_.eps = load.number("attention.layer_norm_rms_epsilon");
    s_.taps = load.integer("ssm.conv_kernel", 2, 16);
    s_.net_width = load.integer("ssm.state_size", 16, 4096);
    s_.key_heads = load.integer("ssm.group_count", 1, 4096);
    s_.value_heads = load.integer("ssm.time_step_rank", 1, 4096);
    load.require(load.ok() && s_.value_heads % s_.key_heads == 0,
                 "ssm.time_step_rank must be a multiple of ssm.group_count");
    load.require(load.ok() && load.integer("ssm.inner_size", 1, INT32_MAX) == s_.net_out(),
                 "ssm.inner_size must be ssm.state_size * ssm.time_step_rank");
    s_.experts = load.integer("expert_count", 1, 65536);
    s_.used = load.integer("expert_used_count", 1, 256);
    load.require(s_.used <= s_.experts, "expert_used_count is larger than expert_count");
    load.require(load.integer_or("expert_group_count", 1, 0, 65536) <= 1,
                 "expert groups (expert_group_count > 1) are not supported");
    s_.inner = load.integer("expert_feed_forward_length", 32, 1 << 20);
    const auto tensor_inner = static_cast<int>(load.dimension("blk.0.ffn_gate_shexp.weight", 1));
    s_.shared_inner = load.integer_or("expert_shared_feed_forward_length", tensor_inner, 32, 1 << 20);
    load.require(s_.width % 32 == 0 && s_.inner % 32 == 0 && s_.shared_inner % 32 == 0 && s_.head_width % 16 == 0 &&
                     s_.net_width % 16 == 0 && s_.net_out() % 32 == 0 && s_.heads * s_.head_width % 32 == 0,
                 "widths must be multiples of 32 and head widths multiples of 16");
}

void Qwen35Moe::load_rope(Loader& load) {
    load.refuse_rope_scaling();
    const int rotated = load.integer_or("rope.dimension_count", s_.head_width, 2, std::max(s_.head_width, 2));
    load.require(rotated % 2 == 0, "rope.dimension_count must be even");
    std::vector<int> sections;
    if (load.has_key("rope.dimension_sections")) {
        sections = load.integers("rope.dimension_sections", 0, 4096);
        load.require(sections.size() == 3 || sections.size() == 4,
                     "rope.dimension_sections must have three or four entries");
    } else if (load.architecture() == "qwen35moe") {
        load.require(rotated == 64, "rope.dimension_sections is missing");
        sections = {11, 11, 10, 0};
    }
    const float base = load.number_or("rope.freq_base", 10000.0f);
    load.require(base > 0, "rope.freq_base must be positive");
    if (load.ok()) rope_ = interleaved_rope(rotated, base, sections);
}

std::vector<bool> Qwen35Moe::recurrent_layers(Loader& load, int blocks, int trunk) {
    if (load.has_key("attention.recurrent_layers")) return load.flags_per_layer("attention.recurrent_layers", blocks);
    const int interval = load.integer_or("full_attention_interval", 4, 1, 4096);
    std::vector<bool> recurrent;
    for (int i = 0; i < blocks; ++i) recurrent.push_back(i < trunk && (i + 1) % interval != 0);
    return recurrent;
}

Layer Qwen35Moe::load_layer(Loader& load, int index, bool recurrent, const ModelOptions& options) {
    Layer layer;
    layer.mixer_norm = load.vector(block_name(index, "attn_norm.weight"), {s_.width});
    layer.experts_norm = load.vector(block_name(index, "post_attention_norm.weight"), {s_.width});
    if (recurrent)
        layer.delta_net = load_delta_net(load, index);
    else
        layer.attention = load_attention(load, index, options);
    layer.experts = load_experts(load, index);
    return layer;
}

GatedAttention Qwen35Moe::load_attention(Loader& load, int index, const ModelOptions& options) {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    const int q = 2 * s_.heads * s_.head_width, kv = s_.kv_heads * s_.head_width;
    GatedAttention a;
    const auto qkv =
        load.matrices(name("attn_qkv.weight"), s_.width,
                      {{name("attn_q.weight"), q}, {name("attn_k.weight"), kv}, {name("attn_v.weight"), kv}});
    a.query_and_gate = qkv[0];
    a.key = qkv[1];
    a.value = qkv[2];
    a.out = load.matrix(name("attn_output.weight"), s_.heads * s_.head_width, s_.width);
    a.heads.query_norm = load.vector(name("attn_q_norm.weight"), {s_.head_width});
    a.heads.key_norm = load.vector(name("attn_k_norm.weight"), {s_.head_width});
    a.heads.eps = s_.eps;
    const Caches caches =
        add_caches(load, layout_, options, index,
                   {.heads = s_.kv_heads, .head_width = s_.head_width, .draft = index >= facts_.layers});
    a.heads.keys = a.attend.keys = caches.keys;
    a.heads.values = a.attend.values = caches.values;
    a.attend.kv_heads = s_.kv_heads;
    a.attend.scale = 1.0f / std::sqrt(static_cast<float>(s_.head_width));
    return a;
}

DeltaNet Qwen35Moe::load_delta_net(Loader& load, int index) {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    DeltaNet d;
    d.qkv = load.matrix(name("attn_qkv.weight"), s_.width, s_.channels());
    d.z = load.matrix(name("attn_gate.weight"), s_.width, s_.net_out());
    d.alpha = load.matrix(name("ssm_alpha.weight"), s_.width, s_.value_heads);
    d.beta = load.matrix(name("ssm_beta.weight"), s_.width, s_.value_heads);
    d.out = load.matrix(name("ssm_out.weight"), s_.net_out(), s_.width);
    d.net.key_heads = s_.key_heads;
    d.net.value_heads = s_.value_heads;
    d.net.width = s_.net_width;
    d.net.taps = s_.taps;
    d.net.eps = s_.eps;
    d.net.conv = load.vector(name("ssm_conv1d.weight"), {s_.taps, s_.channels()});
    d.net.dt = load.vector(name("ssm_dt.bias"), {s_.value_heads});
    d.net.norm = load.vector(name("ssm_norm.weight"), {s_.net_width});

    // clover_moe stores A_log, qwen35moe -exp(A_log): there a positive value is a file of the other kind.
    std::vector<float> decay = load.host_vector(name("ssm_a"), {s_.value_heads});
    for (float& a : decay) {
        if (load.architecture() == "clover_moe") a = -std::exp(a);
        load.require(a <= 0, name("ssm_a") + " has a positive value: it holds A_log, convert the file again");
    }
    d.net.decay = load.upload(decay);

    const auto floats = [](int64_t n) { return static_cast<uint64_t>(n) * sizeof(float); };
    const int64_t values = s_.net_out();
    d.net.state = layout_.add({.kind = PartSpec::Kind::block,
                               .name = name("s"),
                               .type = Type::f32,
                               .bytes = floats(values * s_.net_width),
                               .log_bytes = floats(s_.value_heads * (2 * s_.net_width + 2))});
    d.net.history = layout_.add({.kind = PartSpec::Kind::block,
                                 .name = name("conv"),
                                 .type = Type::f32,
                                 .bytes = floats(int64_t{s_.taps - 1} * s_.channels()),
                                 .log_bytes = floats(s_.channels())});
    return d;
}

Experts Qwen35Moe::load_experts(Loader& load, int index) {
    const std::string prefix = block_name(index, "");
    Experts e;
    e.router = load.matrix(prefix + "ffn_gate_inp.weight", s_.width, s_.experts);
    e.shared_weight = load.matrix(prefix + "ffn_gate_inp_shexp.weight", s_.width, 1);
    e.routed = load.experts(prefix, index, Gate::silu, s_.width, s_.inner, s_.experts);
    e.shared = load.feed_forward(prefix, "_shexp.weight", Gate::silu, s_.width, s_.shared_inner);
    return e;
}

Block Qwen35Moe::load_block(Loader& load, int index, const ModelOptions& options) {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    const auto vocabulary = [&](const char* tensor, const Matrix& otherwise) {
        return load.has(name(tensor)) ? load.matrix(name(tensor), s_.width, s_.vocabulary) : otherwise;
    };
    Block b;
    b.token_norm = load.vector(name("nextn.enorm.weight"), {s_.width});
    b.hidden_norm = load.vector(name("nextn.hnorm.weight"), {s_.width});
    b.head_norm = load.has(name("nextn.shared_head_norm.weight"))
                      ? load.vector(name("nextn.shared_head_norm.weight"), {s_.width})
                      : output_norm_;
    b.join = load.matrix(name("nextn.eh_proj.weight"), 2 * s_.width, s_.width);
    b.embedding = vocabulary("nextn.embed_tokens.weight", embedding_);
    b.head = vocabulary("nextn.shared_head_head.weight", head_);
    b.layer = load_layer(load, index, false, options);
    return b;
}

// ---- the forward pass
// --------------------------------------------------------------------------------------------------

void Qwen35Moe::start(Call& call) {
    call.residual = call.scratch->rows(call.rows, s_.width);
    call.tables[0] = call.scratch->rows(call.rows, 2 * static_cast<int>(rope_.frequency.size()));
    dev_.embed(call, embedding_, 1.0f, call.residual);
    dev_.rope_table(call, rope_, call.tables[0]);
}

//  x = x + mixer(rms(x; attn_norm));  x = x + experts(rms(x; post_attention_norm))
void Qwen35Moe::run_layer(const Layer& layer, Call& call) {
    Arena::Scope scope(*call.scratch);
    Activations a = call.scratch->activations(call.rows, s_.width);
    dev_.norm(call.residual, layer.mixer_norm, s_.eps, a);
    if (layer.delta_net)
        run_delta_net(*layer.delta_net, a, call);
    else
        run_attention(*layer.attention, a, call);
    dev_.norm(call.residual, layer.experts_norm, s_.eps, a);
    run_experts(layer.experts, a, call);
}

//  [q | gate], k, v = products;  q, k = rope(rms(.));  out = W_o (softmax(q k / sqrt(dh)) v * sigmoid(gate))
void Qwen35Moe::run_attention(const GatedAttention& layer, const Activations& a, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows qg = call.scratch->rows(call.rows, 2 * s_.heads * s_.head_width);
    Rows k = call.scratch->rows(call.rows, s_.kv_heads * s_.head_width);
    Rows v = call.scratch->rows(call.rows, s_.kv_heads * s_.head_width);
    Activations heads = call.scratch->activations(call.rows, s_.heads * s_.head_width);
    dev_.matmul(a, std::array<Product, 3>{{{layer.query_and_gate, qg}, {layer.key, k}, {layer.value, v}}});

    // A head's query and its gate lie side by side.
    const HeadRows q{qg.data, call.rows, s_.heads, s_.head_width, qg.stride, 2 * s_.head_width};
    HeadRows gate = q;
    gate.data += s_.head_width;
    dev_.prepare_heads(call, layer.heads, call.tables[0], q, as_heads(k, s_.kv_heads), as_heads(v, s_.kv_heads));
    dev_.attend(call, layer.attend, q, gate, heads);
    dev_.matmul_add(heads, layer.out, call.residual);
}

//  u, z, alpha, beta = products (the decays' from unrounded rows);  out = W_o delta_net(u, z, alpha, beta)
void Qwen35Moe::run_delta_net(const DeltaNet& layer, const Activations& a, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows u = call.scratch->rows(call.rows, s_.channels());
    Rows z = call.scratch->rows(call.rows, s_.net_out());
    Rows alpha = call.scratch->rows(call.rows, s_.value_heads);
    Rows beta = call.scratch->rows(call.rows, s_.value_heads);
    Activations y = call.scratch->activations(call.rows, s_.net_out());
    dev_.matmul(a, std::array<Product, 2>{{{layer.qkv, u}, {layer.z, z}}});
    dev_.matmul_float(a.values, std::array<Product, 2>{{{layer.alpha, alpha}, {layer.beta, beta}}});
    dev_.delta_net(call, layer.net, u, z, alpha, beta, y);
    dev_.matmul_add(y, layer.out, call.residual);
}

//  the k largest of softmax(router m), weights normalised;  x += sum w_e expert_e(m) + sigmoid(g m) shared(m)
void Qwen35Moe::run_experts(const Experts& layer, const Activations& m, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows scores = call.scratch->rows(call.rows, s_.experts);
    SharedExpert shared = layer.shared;
    shared.weight_logit = call.scratch->rows(call.rows, 1);
    const Routing routing = call.scratch->routing(call.rows, s_.used);
    dev_.matmul_float(m.values,
                      std::array<Product, 2>{{{layer.router, scores}, {layer.shared_weight, shared.weight_logit}}});
    dev_.route(scores, {.score = RouteSpec::Score::softmax, .used = s_.used}, routing);
    dev_.experts(layer.routed, m, routing, shared, call.residual, true);
}

//  H = rms(x; output_norm);  logits = output H for the rows that want them
void Qwen35Moe::finish(Call& call) {
    call.hidden = call.scratch->rows(call.rows, s_.width);
    dev_.norm(call.residual, output_norm_, s_.eps, {call.hidden, {}});
    head_logits(dev_, call, head_);
}

void Qwen35Moe::settle(Call& call) {
    for (const Layer& layer : layers_)
        if (layer.delta_net) dev_.delta_net(call, layer.delta_net->net, {}, {}, {}, {}, {});
}

// ---- the draft block: row p guesses token p + 1 from token p and the hidden row of token p - 1
// ------------------------------

//  y = eh_proj [rms(embed(x_p); enorm) ; rms(H_{p-1}; hnorm)]
Rows Qwen35Moe::join_halves(Call& call, Rows before) {
    call.residual = call.scratch->rows(call.rows, s_.width);
    call.tables[0] = call.scratch->rows(call.rows, 2 * static_cast<int>(rope_.frequency.size()));
    dev_.rope_table(call, rope_, call.tables[0]);

    Arena::Scope scope(*call.scratch);
    Activations halves = call.scratch->activations(call.rows, 2 * s_.width);
    Rows token = halves.values.columns(0, s_.width);
    dev_.embed(call, block_->embedding, 1.0f, token);
    dev_.norm(token, block_->token_norm, s_.eps, {token, {}});
    dev_.norm(before, block_->hidden_norm, s_.eps, {halves.values.columns(s_.width, s_.width), {}});
    dev_.quantise(halves);
    dev_.matmul(halves, std::array<Product, 1>{{{block_->join, call.residual}}});
    return call.residual;
}

void Qwen35Moe::fill(Call& call, Rows before) {
    join_halves(call, before);
    Arena::Scope scope(*call.scratch);
    const GatedAttention& layer = *block_->layer.attention;
    Activations a = call.scratch->activations(call.rows, s_.width);
    Rows k = call.scratch->rows(call.rows, s_.kv_heads * s_.head_width);
    Rows v = call.scratch->rows(call.rows, s_.kv_heads * s_.head_width);
    dev_.norm(call.residual, block_->layer.mixer_norm, s_.eps, a);
    dev_.matmul(a, std::array<Product, 2>{{{layer.key, k}, {layer.value, v}}});
    dev_.prepare_heads(call, layer.heads, call.tables[0], {}, as_heads(k, s_.kv_heads), as_heads(v, s_.kv_heads));
}

void Qwen35Moe::guess(Call& call, Rows before) {
    join_halves(call, before);
    run_layer(block_->layer, call);
    call.hidden = call.scratch->rows(call.rows, s_.width);
    dev_.norm(call.residual, block_->head_norm, s_.eps, {call.hidden, {}});
    head_logits(dev_, call, block_->head);
}

}  // namespace

Result<std::unique_ptr<Model>> make_qwen35moe(const gguf::File& file, Device& device, const ModelOptions& options) {
    return load_model<Qwen35Moe>(file, device, options);
}

}  // namespace strata
