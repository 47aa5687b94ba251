#include "models/kolibri1.h"

#include <array>

#include "models/common.h"

namespace strata {
namespace {

struct Shape {
    int layers;
    int width;                        // D
    int vocabulary;                   // V
    int heads, kv_heads, head_width;  // H, G, d
    int window;                       // Wn, the own token included
    int experts, used;                // E, K
    int inner, shared_inner;
    float eps;
};

struct Layer {
    const float* attention_norm = nullptr;
    const float* after_attention_norm = nullptr;
    const float* experts_norm = nullptr;
    const float* after_experts_norm = nullptr;
    Attention attention;
    Matrix router;  // [E]
    RouteSpec route;
    ExpertSet routed;
    SharedExpert shared;
};

class Kolibri1 : public Model {
  public:
    Kolibri1(Loader& load, Device& device, const ModelOptions& options);

    const ModelFacts& facts() const override { return facts_; }
    const StateLayout& layout() const override { return layout_; }
    void start(Call& call) override;
    void layer(int index, Call& call) override;
    void finish(Call& call) override;
    void settle(Call&) override {}

  private:
    void load_shape(Loader& load);
    void load_rope(Loader& load);
    std::vector<bool> window_layers(Loader& load);
    Layer load_layer(Loader& load, int index, bool window, const ModelOptions& options);
    RouteSpec load_route(Loader& load, int index);

    void run_experts(const Layer& layer, const Activations& u, Rows out, Call& call);

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

Kolibri1::Kolibri1(Loader& load, Device& device, const ModelOptions& options) : dev_(device) {
    load_shape(load);
    if (load.ok()) load_rope(load);
    if (!load.ok()) return;

    facts_.architecture = load.architecture();
    facts_.layers = facts_.expert_layers = s_.layers;
    facts_.width = s_.width;
    facts_.vocabulary = s_.vocabulary;
    facts_.context = load.integer("context_length", 1, INT32_MAX);
    facts_.experts = s_.experts;
    facts_.experts_used = s_.used;

    embedding_ = load.matrix("token_embd.weight", s_.width, s_.vocabulary);
    head_ = load.has("output.weight") ? load.matrix("output.weight", s_.width, s_.vocabulary) : embedding_;
    output_norm_ = load.vector("output_norm.weight", {s_.width});
    const std::vector<bool> windows = window_layers(load);
    for (int i = 0; i < s_.layers && load.ok(); ++i)
        layers_.push_back(load_layer(load, i, windows[static_cast<size_t>(i)], options));
    load.refuse_biases();
    for (std::string& note : load.notes()) facts_.notes.push_back(std::move(note));
}

void Kolibri1::load_shape(Loader& load) {
    s_.layers = load.integer("block_count", 1, 4096);
    s_.width = load.integer("embedding_length", 32, 1 << 20);
    s_.vocabulary = static_cast<int>(load.dimension("token_embd.weight", 1));
    s_.heads = load.integer("attention.head_count", 1, 4096);
    s_.kv_heads = load.integer("attention.head_count_kv", 1, 4096);
    s_.head_width = load.integer("attention.key_length", 16, 1024);
    load.require(load.integer("attention.value_length", 16, 1024) == s_.head_width,
                 "attention.key_length and attention.value_length differ");
    load.require(s_.heads % s_.kv_heads == 0, "attention.head_count must be a multiple of attention.head_count_kv");
    s_.window = load.integer("attention.sliding_window", 1, 1 << 24);
    s_.eps = load.number("attention.layer_norm_rms_epsilon");

    s_.experts = load.integer("expert_count", 1, 65536);
    s_.used = load.integer("expert_used_count", 1, 256);
    load.require(s_.used <= s_.experts, "expert_used_count is larger than expert_count");
    s_.inner = load.same_in_layers("expert_feed_forward_length", 0, s_.layers, 32, 1 << 20);
    load.require(load.integer_or("expert_shared_count", 1, 0, 65536) == 1, "expert_shared_count must be 1");
    s_.shared_inner = load.integer_or("expert_shared_feed_forward_length", s_.inner, 32, 1 << 20);
    load.require(s_.width % 32 == 0 && s_.head_width % 16 == 0 && s_.heads * s_.head_width % 32 == 0 &&
                     s_.inner % 32 == 0 && s_.shared_inner % 32 == 0,
                 "widths must be multiples of 32 and head widths multiples of 16");
}

/// Only window layers turn, all values of a head.
void Kolibri1::load_rope(Loader& load) {
    load.refuse_rope_scaling();
    load.require(load.integer_or("rope.dimension_count", s_.head_width, 0, 4096) == s_.head_width,
                 "rope.dimension_count must be attention.key_length");
    const float base =
        load.number_or(load.has_key("rope.freq_base_swa") ? "rope.freq_base_swa" : "rope.freq_base", 10000);
    load.require(base > 0, "rope.freq_base must be positive");
    if (load.ok()) rope_ = plain_rope(s_.head_width, base);
}

/// A flag a layer, or one number P: all but every P-th layer.
std::vector<bool> Kolibri1::window_layers(Loader& load) {
    const char* key = "attention.sliding_window_pattern";
    if (load.is_array(key)) return load.flags_per_layer(key, s_.layers);
    if (!load.has_key(key))
        facts_.notes.push_back("the file has no attention.sliding_window_pattern; every fifth layer sees everything");
    const int period = load.integer_or(key, 5, 1, 4096);
    std::vector<bool> windows;
    for (int i = 0; i < s_.layers; ++i) windows.push_back(i % period < period - 1);
    return windows;
}

Layer Kolibri1::load_layer(Loader& load, int index, bool window, const ModelOptions& options) {
    const std::string prefix = block_name(index, "");
    Layer layer;
    layer.attention_norm = load.vector(prefix + "attn_norm.weight", {s_.width});
    layer.after_attention_norm = load.vector(prefix + "post_attention_norm.weight", {s_.width});
    layer.experts_norm = load.vector(prefix + "ffn_norm.weight", {s_.width});
    layer.after_experts_norm = load.vector(prefix + "post_ffw_norm.weight", {s_.width});
    layer.attention = load_attention(load, layout_, options, index,
                                     {.width = s_.width,
                                      .heads = s_.heads,
                                      .kv_heads = s_.kv_heads,
                                      .head_width = s_.head_width,
                                      .window = window ? s_.window : 0,
                                      .rope = window,
                                      .eps = s_.eps});
    layer.router = load.matrix(prefix + "ffn_gate_inp.weight", s_.width, s_.experts);
    layer.route = load_route(load, index);
    layer.routed = load.experts(prefix, index, Gate::silu, s_.width, s_.inner, s_.experts);
    layer.shared = load.feed_forward(prefix, "_shexp.weight", Gate::silu, s_.width, s_.shared_inner);
    return layer;
}

RouteSpec Kolibri1::load_route(Loader& load, int index) {
    // Converters write this model's rule under two numbers.
    const int gating = load.integer("expert_gating_func", 0, 255);
    load.require(gating == 2 || gating == 5, "expert_gating_func must be 2 or 5 for this architecture");
    const float scale = load.number_or("expert_weights_scale", 1.0f);
    load.require(scale == 0 || scale == 1, "expert_weights_scale must be 1 for this architecture");
    return {.score = RouteSpec::Score::sigmoid,
            .used = s_.used,
            .bias = load.vector(block_name(index, "exp_probs_b.bias"), {s_.experts}),
            .bias_on_logit = true,
            .normalise = load.flag_or("expert_weights_norm", false)};
}

// ---- the forward pass

void Kolibri1::start(Call& call) {
    call.residual = call.scratch->rows(call.rows, s_.width);
    call.tables[0] = call.scratch->rows(call.rows, s_.head_width);
    dev_.embed(call, embedding_, 1.0f, call.residual);
    dev_.rope_table(call, rope_, call.tables[0]);
}

//  x = x + rms(attention(rms(x; attn_norm)); post_attention_norm)
//  x = x + rms(experts(rms(x; ffn_norm)); post_ffw_norm)
void Kolibri1::layer(int index, Call& call) {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    Arena::Scope scope(*call.scratch);
    Activations u = call.scratch->activations(call.rows, s_.width);
    Rows out = call.scratch->rows(call.rows, s_.width);
    dev_.norm(call.residual, layer.attention_norm, s_.eps, u);
    run_attention(dev_, call, layer.attention, call.tables[0], u, out, false);
    dev_.add_norm(call.residual, out, layer.after_attention_norm, s_.eps);
    dev_.norm(call.residual, layer.experts_norm, s_.eps, u);
    run_experts(layer, u, out, call);
    dev_.add_norm(call.residual, out, layer.after_experts_norm, s_.eps);
}

//  z = router u;  the K largest of z + bias, weights sigmoid(z);  out = sum w_e expert_e(u) + shared(u)
void Kolibri1::run_experts(const Layer& layer, const Activations& u, Rows out, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows logits = call.scratch->rows(call.rows, s_.experts);
    const Routing routing = call.scratch->routing(call.rows, s_.used);
    dev_.matmul_float(u.values, std::array<Product, 1>{{{layer.router, logits}}});
    dev_.route(logits, layer.route, routing);
    dev_.experts(layer.routed, u, routing, layer.shared, out, false);
}

//  H = rms(x; output_norm);  logits = output H for the rows that want them
void Kolibri1::finish(Call& call) {
    call.hidden = call.scratch->rows(call.rows, s_.width);
    dev_.norm(call.residual, output_norm_, s_.eps, {call.hidden, {}});
    head_logits(dev_, call, head_);
}

}  // namespace

Result<std::unique_ptr<Model>> make_kolibri1(const gguf::File& file, Device& device, const ModelOptions& options) {
    return load_model<Kolibri1>(file, device, options);
}

}  // namespace strata
