#include "models/flint.h"

#include <array>
#include <optional>

#include "models/common.h"

namespace strata {
namespace {

// ---- what is inferred, not read from a source; a real file may correct it here

/// Of a router whose score function the file does not name.
constexpr RouteSpec::Score kScoreWhereNotNamed = RouteSpec::Score::softmax;
/// Chosen weights are normalised where the file does not say.
constexpr bool kNormaliseWhereNotSaid = true;
/// Said at loading. (The split rule of its text is inferred as well: text/pretokenizer.cpp, `flint`.)
constexpr const char* kUnverified =
    "flint was built from descriptions, never checked against a real file: the router's scores, the split rule of text "
    "and the chat template are inferred";

struct Shape {
    int layers, dense;                // dense: layers at the front without experts
    int width;                        // D
    int vocabulary;                   // V
    int heads, kv_heads, head_width;  // H, G, d
    int window;                       // Wn, the own token included
    int dense_inner;                  // of dense layers
    int experts, used;                // E, K
    int inner, shared_inner;
    float eps;
};

struct Experts {
    Matrix router;  // [E]
    RouteSpec route;
    ExpertSet routed;
    SharedExpert shared;
};

struct Layer {
    const float* attention_norm = nullptr;
    const float* ffn_norm = nullptr;
    Attention attention;
    std::optional<SharedExpert> dense;  // exactly one of the two
    std::optional<Experts> experts;
};

class Flint : public Model {
  public:
    Flint(Loader& load, Device& device, const ModelOptions& options);

    const ModelFacts& facts() const override { return facts_; }
    const StateLayout& layout() const override { return layout_; }
    void start(Call& call) override;
    void layer(int index, Call& call) override;
    void finish(Call& call) override;
    void settle(Call&) override {}

  private:
    void load_shape(Loader& load);
    void load_rope(Loader& load);
    RouteSpec load_route(Loader& load);
    Layer load_layer(Loader& load, int index, bool window, bool rope, const ModelOptions& options);
    Experts load_experts(Loader& load, int index);

    void run_experts(const Experts& layer, const Activations& u, Call& call);

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

Flint::Flint(Loader& load, Device& device, const ModelOptions& options) : dev_(device) {
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
    facts_.notes.push_back(kUnverified);

    // Which layers see a window and which turn are independent in the file.
    const std::vector<bool> windows = load.flags_per_layer("attention.sliding_window_pattern", s_.layers);
    const bool says_rope = load.has_key("attention.rope_pattern");
    const std::vector<bool> ropes = says_rope ? load.flags_per_layer("attention.rope_pattern", s_.layers) : windows;
    if (!says_rope)
        facts_.notes.push_back("the file has no attention.rope_pattern; window layers have rotary positions");

    embedding_ = load.matrix("token_embd.weight", s_.width, s_.vocabulary);
    head_ = load.matrix("output.weight", s_.width, s_.vocabulary);
    output_norm_ = load.vector("output_norm.weight", {s_.width});
    for (int i = 0; i < s_.layers && load.ok(); ++i) {
        const auto at = static_cast<size_t>(i);
        layers_.push_back(load_layer(load, i, windows[at], ropes[at], options));
    }
    load.refuse_biases();
    for (std::string& note : load.notes()) facts_.notes.push_back(std::move(note));
}

void Flint::load_shape(Loader& load) {
    s_.layers = load.integer("block_count", 1, 4096);
    s_.dense = load.integer("leading_dense_block_count", 0, s_.layers);
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

    s_.dense_inner = s_.dense > 0 ? load.integer("feed_forward_length", 32, 1 << 20) : 32;
    s_.experts = load.integer("expert_count", 1, 65536);
    s_.used = load.integer("expert_used_count", 1, 256);
    load.require(s_.used <= s_.experts, "expert_used_count is larger than expert_count");
    s_.inner = load.same_in_layers("expert_feed_forward_length", s_.dense, s_.layers, 32, 1 << 16);
    // One shared expert, whatever count the file gives for it.
    const int by_count = s_.inner * load.integer_or("expert_shared_count", 0, 0, 256);
    const auto by_tensor = static_cast<int>(load.dimension(block_name(s_.dense, "ffn_gate_shexp.weight"), 1));
    s_.shared_inner =
        load.integer_or("expert_shared_feed_forward_length", by_count > 0 ? by_count : by_tensor, 32, 1 << 20);
    load.require(s_.width % 32 == 0 && s_.head_width % 16 == 0 && s_.heads * s_.head_width % 32 == 0 &&
                     s_.dense_inner % 32 == 0 && s_.inner % 32 == 0 && s_.shared_inner % 32 == 0,
                 "widths must be multiples of 32 and head widths multiples of 16");
}

void Flint::load_rope(Loader& load) {
    load.refuse_rope_scaling();
    load.require(load.integer_or("rope.dimension_count", s_.head_width, 0, 4096) == s_.head_width,
                 "rope.dimension_count must be attention.key_length");
    const float base = load.number("rope.freq_base");
    load.require(base > 0, "rope.freq_base must be positive");
    if (load.ok()) rope_ = plain_rope(s_.head_width, base);
}

RouteSpec Flint::load_route(Loader& load) {
    RouteSpec route;
    route.score = kScoreWhereNotNamed;
    if (load.has_key("expert_gating_func")) {
        const int gating = load.integer("expert_gating_func", 0, 255);
        load.require(gating == 1 || gating == 2, "expert_gating_func must be 1 (softmax) or 2 (sigmoid)");
        route.score = gating == 2 ? RouteSpec::Score::sigmoid : RouteSpec::Score::softmax;
    }
    route.used = s_.used;
    route.normalise = load.flag_or("expert_weights_norm", kNormaliseWhereNotSaid);
    const float scale = load.number_or("expert_weights_scale", 1.0f);
    route.scale = scale == 0 ? 1.0f : scale;
    return route;
}

Layer Flint::load_layer(Loader& load, int index, bool window, bool rope, const ModelOptions& options) {
    const std::string prefix = block_name(index, "");
    Layer layer;
    layer.attention_norm = load.vector(prefix + "attn_norm.weight", {s_.width});
    layer.ffn_norm =
        load.vector(load.either(prefix + "ffn_norm.weight", prefix + "post_attention_norm.weight"), {s_.width});
    layer.attention = load_attention(load, layout_, options, index,
                                     {.width = s_.width,
                                      .heads = s_.heads,
                                      .kv_heads = s_.kv_heads,
                                      .head_width = s_.head_width,
                                      .window = window ? s_.window : 0,
                                      .rope = rope,
                                      .eps = s_.eps});
    layer.attention.attend.sinks =
        load.vector(load.either(prefix + "attn_sinks.weight", prefix + "attn_sinks"), {s_.heads});
    if (index < s_.dense)
        layer.dense = load.feed_forward(prefix, ".weight", Gate::silu, s_.width, s_.dense_inner);
    else
        layer.experts = load_experts(load, index);
    return layer;
}

Experts Flint::load_experts(Loader& load, int index) {
    const std::string prefix = block_name(index, "");
    Experts e;
    e.router = load.matrix(prefix + "ffn_gate_inp.weight", s_.width, s_.experts);
    e.route = load_route(load);
    if (load.has(prefix + "exp_probs_b.bias")) e.route.bias = load.vector(prefix + "exp_probs_b.bias", {s_.experts});
    e.routed = load.experts(prefix, index - s_.dense, Gate::silu, s_.width, s_.inner, s_.experts);
    e.shared = load.feed_forward(prefix, "_shexp.weight", Gate::silu, s_.width, s_.shared_inner);
    load.require(
        !load.has(prefix + "ffn_gate_inp_shexp.weight"),
        "a gate on the shared expert is not supported for this architecture (" + prefix + "ffn_gate_inp_shexp.weight)");
    return e;
}

// ---- the forward pass

void Flint::start(Call& call) {
    call.residual = call.scratch->rows(call.rows, s_.width);
    call.tables[0] = call.scratch->rows(call.rows, s_.head_width);
    dev_.embed(call, embedding_, 1.0f, call.residual);
    dev_.rope_table(call, rope_, call.tables[0]);
}

//  x = x + attention(rms(x; attn_norm));  x = x + ffn(rms(x; ffn_norm))
void Flint::layer(int index, Call& call) {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    Arena::Scope scope(*call.scratch);
    Activations u = call.scratch->activations(call.rows, s_.width);
    dev_.norm(call.residual, layer.attention_norm, s_.eps, u);
    run_attention(dev_, call, layer.attention, call.tables[0], u, call.residual, true);
    dev_.norm(call.residual, layer.ffn_norm, s_.eps, u);
    if (layer.dense)
        dev_.feed_forward(*layer.dense, u, call.residual, true);
    else
        run_experts(*layer.experts, u, call);
}

//  s = softmax or sigmoid of router u;  the K largest of s (+ bias);  x += sum w_e expert_e(u) + shared(u)
void Flint::run_experts(const Experts& layer, const Activations& u, Call& call) {
    Arena::Scope scope(*call.scratch);
    Rows logits = call.scratch->rows(call.rows, s_.experts);
    const Routing routing = call.scratch->routing(call.rows, s_.used);
    dev_.matmul_float(u.values, std::array<Product, 1>{{{layer.router, logits}}});
    dev_.route(logits, layer.route, routing);
    dev_.experts(layer.routed, u, routing, layer.shared, call.residual, true);
}

//  H = rms(x; output_norm);  logits = output H for the rows that want them
void Flint::finish(Call& call) {
    call.hidden = call.scratch->rows(call.rows, s_.width);
    dev_.norm(call.residual, output_norm_, s_.eps, {call.hidden, {}});
    head_logits(dev_, call, head_);
}

}  // namespace

Result<std::unique_ptr<Model>> make_flint(const gguf::File& file, Device& device, const ModelOptions& options) {
    return load_model<Flint>(file, device, options);
}

}  // namespace strata
