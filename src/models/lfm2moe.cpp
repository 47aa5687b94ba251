#include "models/lfm2moe.h"

#include <algorithm>
#include <array>
#include <optional>

#include "models/common.h"

namespace strata {
namespace {

struct Shape {
    int layers, dense;                 // dense: layers at the front without experts
    int width;                         // D
    int vocabulary;                    // V
    std::vector<int> heads, kv_heads;  // of each layer; kv_heads 0: a convolution
    int head_width;                    // d
    int taps;                          // Lc
    int experts, used;                 // E, K
    std::vector<int> dense_inner;      // F of each layer
    int inner;                         // Fe
    float eps;
};

struct ShortConv {
    Matrix in;  // [B D | C D | z D] rows
    Matrix out;
    ShortConvSpec conv;
};

struct Experts {
    Matrix router;  // [E]
    RouteSpec route;
    ExpertSet routed;
};

struct Layer {
    const float* mixer_norm = nullptr;
    const float* ffn_norm = nullptr;
    std::optional<Attention> attention;  // exactly one of the two
    std::optional<ShortConv> conv;
    std::optional<SharedExpert> dense;  // exactly one of the two
    std::optional<Experts> experts;
};

class Lfm2Moe : public Model {
  public:
    Lfm2Moe(Loader& load, Device& device, const ModelOptions& options);

    const ModelFacts& facts() const override { return facts_; }
    const StateLayout& layout() const override { return layout_; }
    void start(Call& call) override;
    void layer(int index, Call& call) override;
    void finish(Call& call) override;
    void settle(Call& call) override;

  private:
    void load_shape(Loader& load);
    void load_rope(Loader& load);
    Layer load_layer(Loader& load, int index, const ModelOptions& options);
    ShortConv load_conv(Loader& load, int index);
    Experts load_experts(Loader& load, int index);

    void run_conv(const ShortConv& layer, const Activations& a, Call& call);
    void run_experts(const Experts& layer, const Activations& m, Call& call);

    Device& dev_;
    Shape s_{};
    ModelFacts facts_;
    StateLayout layout_;
    RopeSpec rope_;
    Matrix embedding_, head_;
    const float* output_norm_ = nullptr;
    std::vector<Layer> layers_;
};

// ---- what the file says

Lfm2Moe::Lfm2Moe(Loader& load, Device& device, const ModelOptions& options) : dev_(device) {
    load_shape(load);
    if (load.ok()) load_rope(load);
    if (!load.ok()) return;

    facts_.architecture = load.architecture();
    facts_.layers = s_.layers;
    facts_.width = s_.width;
    facts_.vocabulary = s_.vocabulary;
    facts_.context = load.integer("context_length", 1, INT32_MAX);
    facts_.expert_layers = s_.layers - s_.dense;
    facts_.experts = s_.experts;
    facts_.experts_used = s_.used;
    facts_.recurrent = true;

    embedding_ = load.matrix("token_embd.weight", s_.width, s_.vocabulary);
    head_ = load.has("output.weight") ? load.matrix("output.weight", s_.width, s_.vocabulary) : embedding_;
    // In spite of its usual name it stands before the head, not behind the embedding.
    output_norm_ = load.vector(load.either("token_embd_norm.weight", "output_norm.weight"), {s_.width});
    for (int i = 0; i < s_.layers && load.ok(); ++i) layers_.push_back(load_layer(load, i, options));
    load.refuse_biases();
    load.require(!load.has("dense_2.weight"),
                 "tensor dense_2.weight belongs to an embedding model, not to one that writes");
    facts_.notes = load.notes();
}

void Lfm2Moe::load_shape(Loader& load) {
    s_.layers = load.integer("block_count", 1, 4096);
    s_.dense = load.integer_or("leading_dense_block_count", 0, 0, s_.layers);
    s_.width = load.integer("embedding_length", 32, 1 << 20);
    s_.vocabulary = static_cast<int>(load.dimension("token_embd.weight", 1));
    s_.eps = load.number("attention.layer_norm_rms_epsilon");
    s_.taps = load.integer("shortconv.l_cache", 2, 16);

    s_.heads = load.per_layer("attention.head_count", s_.layers, 0, 4096);
    s_.kv_heads = load.per_layer("attention.head_count_kv", s_.layers, 0, 4096);
    if (!load.ok()) return;
    load.require(std::count(s_.kv_heads.begin(), s_.kv_heads.end(), 0) > 0,
                 "attention.head_count_kv has no 0: a model of this architecture has convolution layers");
    for (size_t i = 0; i < s_.heads.size(); ++i)
        load.require(s_.kv_heads[i] == 0 || (s_.heads[i] > 0 && s_.heads[i] % s_.kv_heads[i] == 0),
                     "attention.head_count must be a multiple of attention.head_count_kv");
    const int heads = *std::max_element(s_.heads.begin(), s_.heads.end());
    load.require(heads > 0, "attention.head_count is 0 in every layer");
    if (!load.ok()) return;
    s_.head_width = load.integer_or("attention.key_length", s_.width / heads, 16, 1024);
    load.require(load.integer_or("attention.value_length", s_.head_width, 16, 1024) == s_.head_width,
                 "attention.key_length and attention.value_length differ");
    load.require(load.integer_or("attention.sliding_window", 0, 0, INT32_MAX) == 0,
                 "attention.sliding_window is not supported for this architecture");

    if (s_.dense > 0) s_.dense_inner = load.per_layer("feed_forward_length", s_.layers, 0, 1 << 20);
    s_.experts = load.integer("expert_count", 1, 65536);
    s_.used = load.integer("expert_used_count", 1, 256);
    load.require(s_.used <= s_.experts, "expert_used_count is larger than expert_count");
    s_.inner = load.same_in_layers("expert_feed_forward_length", s_.dense, s_.layers, 32, 1 << 20);
    load.require(load.integer("expert_gating_func", 0, 255) == 2, "expert_gating_func must be 2 (sigmoid)");
    const float scale = load.number_or("expert_weights_scale", 1.0f);
    load.require(scale == 0 || scale == 1, "expert_weights_scale must be 1 for this architecture");
    if (!load.ok()) return;
    for (int i = 0; i < s_.dense; ++i)
        load.require(s_.dense_inner[static_cast<size_t>(i)] > 0 && s_.dense_inner[static_cast<size_t>(i)] % 32 == 0,
                     "feed_forward_length must be a multiple of 32 in dense layers");
    load.require(s_.width % 32 == 0 && s_.inner % 32 == 0 && s_.head_width % 16 == 0,
                 "widths must be multiples of 32 and attention.key_length of 16");
}

void Lfm2Moe::load_rope(Loader& load) {
    load.refuse_rope_scaling();
    const int rotated = load.integer_or("rope.dimension_count", s_.head_width, 2, s_.head_width);
    const float base = load.number_or("rope.freq_base", 10000.0f);
    load.require(rotated % 2 == 0 && base > 0, "rope.dimension_count must be even and rope.freq_base positive");
    if (load.ok()) rope_ = plain_rope(rotated, base);
}

Layer Lfm2Moe::load_layer(Loader& load, int index, const ModelOptions& options) {
    const auto i = static_cast<size_t>(index);
    const std::string prefix = block_name(index, "");
    Layer layer;
    layer.mixer_norm = load.vector(prefix + "attn_norm.weight", {s_.width});
    layer.ffn_norm = load.vector(prefix + "ffn_norm.weight", {s_.width});
    if (s_.kv_heads[i] == 0)
        layer.conv = load_conv(load, index);
    else
        layer.attention = load_attention(load, layout_, options, index,
                                         {.width = s_.width,
                                          .heads = s_.heads[i],
                                          .kv_heads = s_.kv_heads[i],
                                          .head_width = s_.head_width,
                                          .eps = s_.eps});
    if (index < s_.dense)
        layer.dense = load.feed_forward(prefix, ".weight", Gate::silu, s_.width, s_.dense_inner[i]);
    else
        layer.experts = load_experts(load, index);
    return layer;
}

ShortConv Lfm2Moe::load_conv(Loader& load, int index) {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    ShortConv c;
    c.in = load.matrix(name("shortconv.in_proj.weight"), s_.width, 3 * s_.width);
    c.out = load.matrix(name("shortconv.out_proj.weight"), s_.width, s_.width);
    c.conv.width = s_.width;
    c.conv.taps = s_.taps;
    c.conv.conv = load.vector(name("shortconv.conv.weight"), {s_.taps, s_.width});
    const uint64_t row = static_cast<uint64_t>(s_.width) * sizeof(float);
    c.conv.history = layout_.add({.kind = PartSpec::Kind::block,
                                  .name = name("conv"),
                                  .type = Type::f32,
                                  .bytes = static_cast<uint64_t>(s_.taps - 1) * row,
                                  .log_bytes = row});
    return c;
}

Experts Lfm2Moe::load_experts(Loader& load, int index) {
    const std::string prefix = block_name(index, "");
    Experts e;
    e.router = load.matrix(prefix + "ffn_gate_inp.weight", s_.width, s_.experts);
    e.route = {.score = RouteSpec::Score::sigmoid,
               .used = s_.used,
               .bias = load.vector(prefix + "exp_probs_b.bias", {s_.experts})};
    e.routed = load.experts(prefix, index - s_.dense, Gate::silu, s_.width, s_.inner, s_.experts);
    return e;
}

// ---- the forward pass

void Lfm2Moe::start(Call& call) {
    call.residual = call.scratch->rows(call.rows, s_.width);
    call.tables[0] = call.scratch->rows(call.rows, 2 * static_cast<int>(rope_.frequency.size()));
    dev_.embed(call, embedding_, 1.0f, call.residual);
    dev_.rope_table(call, rope_, call.tables[0]);
}

//  x = x + mixer(rms(x; attn_norm));  x = x + ffn(rms(x; ffn_norm))
void Lfm2Moe::layer(int index, Call& call) {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    Arena::Scope scope(*call.scratch);
    Activations a = call.scratch->activations(call.rows, s_.width);
    dev_.norm(call.residual, layer.mixer_norm, s_.eps, a);
    if (layer.conv)
        run_conv(*layer.conv, a, call);
    else
        run_attention(dev_, call, *layer.attention, call.tables[0], a, call.residual, true);
    dev_.norm(call.residual, layer.ffn_norm, s_.eps, a);
    if (layer.dense)
        dev_.feed_forward(*layer.dense, a, call.residual, true);
    else
        run_experts(*layer.experts, a, call);
}

//  [B | C | z] = in_proj a;  x += out_proj (C * conv(B * z))
void Lfm2Moe::run_conv(const ShortConv& layer, const Activations& a, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows bcz = call.scratch->rows(call.rows, 3 * s_.width);
    Activations y = call.scratch->activations(call.rows, s_.width);
    dev_.matmul(a, std::array<Product, 1>{{{layer.in, bcz}}});
    dev_.short_conv(call, layer.conv, bcz, y);
    dev_.matmul_add(y, layer.out, call.residual);
}

//  s = sigmoid(router m);  the K largest of s + bias, weights s normalised;  x += sum w_e expert_e(m)
void Lfm2Moe::run_experts(const Experts& layer, const Activations& m, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows logits = call.scratch->rows(call.rows, s_.experts);
    const Routing routing = call.scratch->routing(call.rows, s_.used);
    dev_.matmul_float(m.values, std::array<Product, 1>{{{layer.router, logits}}});
    dev_.route(logits, layer.route, routing);
    dev_.experts(layer.routed, m, routing, {}, call.residual, true);
}

//  H = rms(x; token_embd_norm);  logits = output H for the rows that want them
void Lfm2Moe::finish(Call& call) {
    call.hidden = call.scratch->rows(call.rows, s_.width);
    dev_.norm(call.residual, output_norm_, s_.eps, {call.hidden, {}});
    head_logits(dev_, call, head_);
}

void Lfm2Moe::settle(Call& call) {
    for (const Layer& layer : layers_)
        if (layer.conv) dev_.short_conv(call, layer.conv->conv, {}, {});
}

}  // namespace

Result<std::unique_ptr<Model>> make_lfm2moe(const gguf::File& file, Device& device, const ModelOptions& options) {
    return load_model<Lfm2Moe>(file, device, options);
}

}  // namespace strata
