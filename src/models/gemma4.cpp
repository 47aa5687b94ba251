#include "models/gemma4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "models/common.h"
#include "models/loader.h"

namespace strata {
namespace {

/// The heads of one layer.
struct Heads {
    bool window = false;                          // sees the last W rows; else all
    int count = 0, kv_count = 0, head_width = 0;  // H, G, d

    int query_width() const { return count * head_width; }
    int kv_width() const { return kv_count * head_width; }
};

/// The routed experts beside a layer's dense block.
struct Experts {
    const float* dense_out_norm = nullptr;  // post_ffw_norm_1
    const float* router_norm = nullptr;     // ffn_gate_inp.scale / sqrt(D)
    Matrix router;                          // [E]
    int used = 0;                           // K
    const float* in_norm = nullptr;         // pre_ffw_norm_2
    ExpertSet routed;
    const float* scale = nullptr;     // [E], of an expert's output; null: ones
    const float* out_norm = nullptr;  // post_ffw_norm_2
};

struct Layer {
    Heads shape;
    const float* attention_norm = nullptr;
    Matrix query;  // [H d]
    Matrix key;    // [G d]; absent: the layer reads the rows of another one
    Matrix value;  // [G d]; absent: values come from the key's product
    Matrix out;
    HeadSpec heads;  // norms and caches
    AttentionSpec attend;
    const float* attention_out_norm = nullptr;

    const float* dense_norm = nullptr;
    SharedExpert dense;
    std::optional<Experts> experts;
    const float* out_norm = nullptr;
    float scale = 1;  // of the whole stream
};

/// What the files of the model and of its draft model have in common: their numbers, and the way through a layer.
class Layers {
  public:
    Layers(Loader& load, Device& device);

    int width = 0;       // D
    int vocabulary = 0;  // V
    int window = 0;      // W
    float eps = 0;
    std::vector<Heads> heads;  // [L]
    std::vector<int> inner;    // [L], F

    /// A layer's weights, but for keys, values and experts.
    Layer load_layer(Loader& load, int index) const;
    void start(Call& call) const;
    void run(const Layer& layer, Call& call) const;

  private:
    void run_attention(const Layer& layer, Call& call) const;
    void run_feed_forward(const Layer& layer, Call& call) const;
    void run_experts(const Experts& layer, Call& call, Rows out) const;

    Device& dev_;
    RopeSpec window_rope_, global_rope_;
};

/// What the draft model reads of the model.
struct Trunk {
    const Matrix& embedding;
    int width, vocabulary, window;
    std::span<const Layer> layers;
};

/// Guesses from a stack of layers without keys and values: they read those of the model's last two layers.
class Assistant : public DraftBlock {
  public:
    Assistant(Loader& load, Device& device, const Trunk& trunk, int max_rows);

    bool keeps_rows() const override { return false; }
    void fill(Call&, Rows) override {}
    void guess(Call& call, Rows before) override;

  private:
    Device& dev_;
    Layers layers_;
    Matrix embedding_;       // the model's
    int model_width_;        // B
    Matrix join_;            // nextn.pre_projection {2B, Da}
    Matrix hidden_;          // nextn.post_projection {Da, B}
    Matrix head_;            // its own token_embd
    const float* out_norm_;  // output_norm
    std::vector<Layer> stack_;
    std::vector<int32_t> every_row_;  // 0, 1, ..
};

class Gemma4 : public Model {
  public:
    Gemma4(Loader& load, Device& device, const ModelOptions& options);

    const ModelFacts& facts() const override { return facts_; }
    const StateLayout& layout() const override { return layout_; }
    void start(Call& call) override;
    void layer(int index, Call& call) override { layers_.run(stack_[static_cast<size_t>(index)], call); }
    void finish(Call& call) override;
    void settle(Call&) override {}
    DraftBlock* draft() override { return assistant_.get(); }

    /// Refuses a draft model that does not fit.
    Result<void> load_assistant(const gguf::File& file, const gguf::File& model_file, const ModelOptions& options);

  private:
    Layer load_layer(Loader& load, int index, const ModelOptions& options);
    Experts load_experts(Loader& load, int index);

    Device& dev_;
    Layers layers_;
    ModelFacts facts_;
    StateLayout layout_;
    int expert_inner_ = 0;  // Fe
    float cap_ = 0;
    Matrix embedding_, head_;
    const float* output_norm_ = nullptr;
    std::vector<Layer> stack_;
    std::unique_ptr<Assistant> assistant_;
};

// ---- what the files say
// ------------------------------------------------------------------------------------------------

Layers::Layers(Loader& load, Device& device) : dev_(device) {
    const int layers = load.integer("block_count", 1, 4096);
    width = load.integer("embedding_length", 32, 1 << 20);
    vocabulary = static_cast<int>(load.dimension("token_embd.weight", 1));
    eps = load.number("attention.layer_norm_rms_epsilon");
    window = load.integer("attention.sliding_window", 1, 1 << 24);
    inner = load.per_layer("feed_forward_length", layers, 1, 1 << 20);
    load.require(load.integer_or("embedding_length_per_layer_input", 0, 0, INT32_MAX) == 0,
                 "per-layer embeddings (embedding_length_per_layer_input) are not supported");

    // Window and global layers differ in the number and the size of their heads.
    const std::vector<bool> windows = load.flags_per_layer("attention.sliding_window_pattern", layers);
    const auto head_counts = load.per_layer("attention.head_count", layers, 1, 4096);
    const auto kv_counts = load.has_key("attention.head_count_kv")
                               ? load.per_layer("attention.head_count_kv", layers, 1, 4096)
                               : head_counts;
    const auto head_width = [&](const std::string& kind) {
        const int keys = load.integer("attention.key_length" + kind, 32, 1024);
        load.require(load.integer("attention.value_length" + kind, 32, 1024) == keys,
                     "attention.value_length" + kind + " must equal attention.key_length" + kind);
        load.require(load.integer_or("rope.dimension_count" + kind, keys, 1, 4096) == keys,
                     "rope.dimension_count" + kind + " must equal attention.key_length" + kind);
        load.require(keys % 32 == 0, "attention.key_length" + kind + " must be a multiple of 32");
        return keys;
    };
    const int global_width = head_width(""), window_width = head_width("_swa");
    for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
        heads.push_back({windows[i], head_counts[i], kv_counts[i], windows[i] ? window_width : global_width});
        load.require(head_counts[i] % kv_counts[i] == 0,
                     "attention.head_count must be a multiple of attention.head_count_kv");
    }
    load.require(width % 32 == 0, "embedding_length must be a multiple of 32");

    // Global heads turn by angles that the file divides: most of their pairs hardly at all.
    load.refuse_rope_scaling();
    window_rope_ = plain_rope(window_width, load.number_or("rope.freq_base_swa", 10000.0f));
    global_rope_ = plain_rope(global_width, load.number_or("rope.freq_base", 10000.0f));
    const std::vector<float> divisors = load.host_vector("rope_freqs.weight", {global_width / 2});
    if (!load.ok()) return;
    for (size_t i = 0; i < divisors.size(); ++i) global_rope_.frequency[i] /= static_cast<double>(divisors[i]);
}

Layer Layers::load_layer(Loader& load, int index) const {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    Layer layer;
    layer.shape = heads[static_cast<size_t>(index)];
    const Heads& shape = layer.shape;
    layer.attention_norm = load.vector(name("attn_norm.weight"), {width});
    layer.query = load.matrix(name("attn_q.weight"), width, shape.query_width());
    layer.out = load.matrix(name("attn_output.weight"), shape.query_width(), width);
    layer.heads.query_norm = load.vector(name("attn_q_norm.weight"), {shape.head_width});
    layer.heads.eps = eps;
    layer.attend.kv_heads = shape.kv_count;
    layer.attend.scale = 1.0f;
    layer.attend.window = shape.window ? window : 0;
    layer.attention_out_norm = load.vector(name("post_attention_norm.weight"), {width});

    layer.dense_norm = load.vector(name("ffn_norm.weight"), {width});
    layer.dense = load.feed_forward(name(""), ".weight", Gate::gelu, width, inner[static_cast<size_t>(index)]);
    layer.out_norm = load.vector(name("post_ffw_norm.weight"), {width});
    if (load.has(name("layer_output_scale.weight")))
        if (const auto scale = load.host_vector(name("layer_output_scale.weight"), {1}); !scale.empty())
            layer.scale = scale[0];
    return layer;
}

Gemma4::Gemma4(Loader& load, Device& device, const ModelOptions& options) : dev_(device), layers_(load, device) {
    load.require(load.integer_or("attention.shared_kv_layers", 0, 0, INT32_MAX) == 0,
                 "layers without keys and values of their own (attention.shared_kv_layers) are not supported");
    // Its scales beside matrices would be taken for the experts' own factors.
    load.refuse_type(Type::nvfp4);
    facts_.architecture = load.architecture();
    facts_.pictures = ModelFacts::Pictures::line;
    facts_.pictures_whole = true;
    facts_.width = layers_.width;
    facts_.vocabulary = layers_.vocabulary;
    facts_.context = load.integer("context_length", 1, INT32_MAX);
    facts_.experts = load.integer_or("expert_count", 0, 0, 65536);
    if (facts_.experts > 0) {
        facts_.experts_used = load.integer("expert_used_count", 1, facts_.experts);
        expert_inner_ = load.integer("expert_feed_forward_length", 32, 1 << 20);
    }
    cap_ = load.number_or("final_logit_softcapping", 30.0f);
    load.require(cap_ > 0, "final_logit_softcapping must be positive");
    if (!load.ok()) return;

    embedding_ = load.matrix("token_embd.weight", layers_.width, layers_.vocabulary);
    head_ = load.has("output.weight") ? load.matrix("output.weight", layers_.width, layers_.vocabulary) : embedding_;
    output_norm_ = load.vector("output_norm.weight", {layers_.width});
    facts_.layers = static_cast<int>(layers_.heads.size());
    if (facts_.experts > 0) facts_.expert_layers = facts_.layers;
    for (int i = 0; i < facts_.layers && load.ok(); ++i) stack_.push_back(load_layer(load, i, options));
    load.refuse_biases();
    for (std::string& note : load.notes()) facts_.notes.push_back(std::move(note));
}

Layer Gemma4::load_layer(Loader& load, int index, const ModelOptions& options) {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    Layer layer = layers_.load_layer(load, index);
    const Heads& shape = layer.shape;
    layer.key = load.matrix(name("attn_k.weight"), layers_.width, shape.kv_width());
    if (shape.window || load.has(name("attn_v.weight")))
        layer.value = load.matrix(name("attn_v.weight"), layers_.width, shape.kv_width());
    layer.heads.key_norm = load.vector(name("attn_k_norm.weight"), {shape.head_width});
    layer.heads.value_norm = true;
    const Caches caches =
        add_caches(load, layout_, options, index,
                   {.heads = shape.kv_count, .head_width = shape.head_width, .window = layer.attend.window});
    layer.heads.keys = layer.attend.keys = caches.keys;
    layer.heads.values = layer.attend.values = caches.values;
    layer.attend.pictures_look_ahead = shape.window;
    if (facts_.experts > 0)
        layer.experts = load_experts(load, index);
    else
        load.require(!load.has(name("ffn_gate_inp.weight")),
                     "tensor " + name("ffn_gate_inp.weight") + " is there, but expert_count is 0");
    return layer;
}

Experts Gemma4::load_experts(Loader& load, int index) {
    const auto name = [&](const char* tensor) { return block_name(index, tensor); };
    const int width = layers_.width;
    Experts e;
    e.dense_out_norm = load.vector(name("post_ffw_norm_1.weight"), {width});
    std::vector<float> router_norm = load.host_vector(name("ffn_gate_inp.scale"), {width});
    for (float& w : router_norm) w /= std::sqrt(static_cast<float>(width));
    e.router_norm = load.upload(router_norm);
    e.used = facts_.experts_used;
    e.router = load.matrix(name("ffn_gate_inp.weight"), width, facts_.experts);
    e.in_norm = load.vector(name("pre_ffw_norm_2.weight"), {width});
    if (load.has(name("ffn_down_exps.scale"))) e.scale = load.vector(name("ffn_down_exps.scale"), {facts_.experts});
    e.routed = load.experts(name(""), index, Gate::gelu, width, expert_inner_, facts_.experts);
    e.out_norm = load.vector(name("post_ffw_norm_2.weight"), {width});
    return e;
}

// ---- the forward pass
// --------------------------------------------------------------------------------------------------

void Layers::start(Call& call) const {
    for (const size_t kind : {0, 1}) {
        const RopeSpec& rope = kind == 0 ? window_rope_ : global_rope_;
        call.tables[kind] = call.scratch->rows(call.rows, 2 * static_cast<int>(rope.frequency.size()));
        dev_.rope_table(call, rope, call.tables[kind]);
    }
}

void Layers::run(const Layer& layer, Call& call) const {
    run_attention(layer, call);
    run_feed_forward(layer, call);
    dev_.scale(call.residual, layer.scale, nullptr);
}

//  q = rope(rms(Wq h)), k = rope(rms(Wk h)), v = rms(Wv h), or rms(Wk h) without a Wv;   h = rms(x; attn_norm)
//  x = x + rms(Wo softmax(q k) v; post_attention_norm)
void Layers::run_attention(const Layer& layer, Call& call) const {
    Arena::Scope scope(*call.scratch);
    const Heads& shape = layer.shape;
    const bool own_rows = static_cast<bool>(layer.key);
    Activations h = call.scratch->activations(call.rows, width);
    Rows q = call.scratch->rows(call.rows, shape.query_width()), k, v;
    Activations heads = call.scratch->activations(call.rows, shape.query_width());
    dev_.norm(call.residual, layer.attention_norm, eps, h);

    std::array<Product, 3> products{{{layer.query, q}}};
    size_t count = 1;
    if (own_rows) {
        v = k = call.scratch->rows(call.rows, shape.kv_width());
        products[count++] = {layer.key, k};
    }
    if (layer.value) {
        v = call.scratch->rows(call.rows, shape.kv_width());
        products[count++] = {layer.value, v};
    }
    dev_.matmul(h, std::span(products).first(count));

    const HeadRows keys = own_rows ? as_heads(k, shape.kv_count) : HeadRows{};
    const HeadRows values = own_rows ? as_heads(v, shape.kv_count) : HeadRows{};
    dev_.prepare_heads(call, layer.heads, call.tables[shape.window ? 0 : 1], as_heads(q, shape.count), keys, values);
    dev_.attend(call, layer.attend, as_heads(q, shape.count), {}, heads);
    dev_.matmul(heads, std::array<Product, 1>{{{layer.out, h.values}}});
    dev_.add_norm(call.residual, h.values, layer.attention_out_norm, eps);
}

//  f = dense(rms(x; ffn_norm));   with experts: f = rms(f; post_ffw_norm_1) + rms(experts(x); post_ffw_norm_2)
//  x = x + rms(f; post_ffw_norm)
void Layers::run_feed_forward(const Layer& layer, Call& call) const {
    Arena::Scope scope(*call.scratch);
    Activations m = call.scratch->activations(call.rows, width);
    Rows f = call.scratch->rows(call.rows, width);
    dev_.norm(call.residual, layer.dense_norm, eps, m);
    dev_.feed_forward(layer.dense, m, f, false);
    if (layer.experts) {
        dev_.norm(f, layer.experts->dense_out_norm, eps, {f, {}});
        run_experts(*layer.experts, call, m.values);
        dev_.add(f, m.values);
    }
    dev_.add_norm(call.residual, f, layer.out_norm, eps);
}

//  S = the k largest of router (rms(x) / sqrt(D) * gate_inp_scale), their softmax p
//  out = rms(sum over S of p_e s_e expert_e(rms(x; pre_ffw_norm_2)); post_ffw_norm_2)
void Layers::run_experts(const Experts& layer, Call& call, Rows out) const {
    Arena::Scope scope(*call.scratch);
    Activations m = call.scratch->activations(call.rows, width);
    Rows scores = call.scratch->rows(call.rows, layer.router.rows);
    const Routing routing = call.scratch->routing(call.rows, layer.used);
    dev_.norm(call.residual, layer.router_norm, eps, {m.values, {}});
    dev_.matmul_float(m.values, std::array<Product, 1>{{{layer.router, scores}}});
    dev_.route(scores,
               {.score = RouteSpec::Score::softmax, .used = layer.used, .normalise = true, .expert_scale = layer.scale},
               routing);
    dev_.norm(call.residual, layer.in_norm, eps, m);
    dev_.experts(layer.routed, m, routing, {}, out, false);
    dev_.norm(out, layer.out_norm, eps, {out, {}});
}

//  x = sqrt(D) embed(t); a picture's row as it is
void Gemma4::start(Call& call) {
    call.residual = call.scratch->rows(call.rows, layers_.width);
    dev_.embed(call, embedding_, std::sqrt(static_cast<float>(layers_.width)), call.residual);
    layers_.start(call);
}

//  H = rms(x; output_norm);  logits = cap tanh(output H / cap) for the rows that want them
void Gemma4::finish(Call& call) {
    call.hidden = call.scratch->rows(call.rows, layers_.width);
    dev_.norm(call.residual, output_norm_, layers_.eps, {call.hidden, {}});
    head_logits(dev_, call, head_);
    if (call.logits.rows > 0) dev_.soft_cap(call.logits, cap_);
}

// ---- the draft model: a guess for the token after t, from t and the hidden row H before it
// ------------------------------

Assistant::Assistant(Loader& load, Device& device, const Trunk& trunk, int max_rows)
    : dev_(device),
      layers_(load, device),
      embedding_(trunk.embedding),
      model_width_(trunk.width),
      every_row_(static_cast<size_t>(max_rows)) {
    std::iota(every_row_.begin(), every_row_.end(), 0);
    const int count = static_cast<int>(layers_.heads.size());
    load.require(load.integer("embedding_length_out", 1, 1 << 20) == trunk.width,
                 "embedding_length_out is not the model's width of " + std::to_string(trunk.width));
    load.require(load.integer("nextn_predict_layers", 0, 4096) == count, "nextn_predict_layers must equal block_count");
    load.require(layers_.vocabulary == trunk.vocabulary, "its vocabulary has " + std::to_string(layers_.vocabulary) +
                                                             " tokens, the model's " +
                                                             std::to_string(trunk.vocabulary));
    load.require(layers_.window == trunk.window,
                 "attention.sliding_window is not the model's " + std::to_string(trunk.window));
    const size_t n = trunk.layers.size();
    load.require(n >= 2 && !trunk.layers[n - 1].shape.window && trunk.layers[n - 2].shape.window,
                 "it reads the model's last window layer and last global layer, and these are not its last two");
    if (!load.ok()) return;

    out_norm_ = load.vector("output_norm.weight", {layers_.width});
    head_ = load.matrix("token_embd.weight", layers_.width, layers_.vocabulary);
    join_ = load.matrix("nextn.pre_projection.weight", 2 * trunk.width, layers_.width);
    hidden_ = load.matrix("nextn.post_projection.weight", layers_.width, trunk.width);
    for (int i = 0; i < count && load.ok(); ++i) {
        Layer layer = layers_.load_layer(load, i);
        const Layer& read = trunk.layers[n - (layer.shape.window ? 2 : 1)];
        load.require(layer.shape.kv_count == read.shape.kv_count && layer.shape.head_width == read.shape.head_width,
                     "layer " + std::to_string(i) + " has " + std::to_string(layer.shape.kv_count) +
                         " key/value heads of " + std::to_string(layer.shape.head_width) +
                         ", the model's layer that it reads has " + std::to_string(read.shape.kv_count) + " of " +
                         std::to_string(read.shape.head_width));
        layer.attend.keys = read.attend.keys;
        layer.attend.values = read.attend.values;
        layer.attend.own_rows = false;
        stack_.push_back(layer);
    }
}

//  x = Wpre [sqrt(B) embed_model(t) ; H];  the layers;  y = rms(x; output_norm);  logits = embed y,  H' = Wpost y
void Assistant::guess(Call& call, Rows before) {
    const auto rows = static_cast<size_t>(call.rows);
    call.residual = call.scratch->rows(call.rows, layers_.width);
    layers_.start(call);
    {
        Arena::Scope scope(*call.scratch);
        Activations halves = call.scratch->activations(call.rows, 2 * model_width_);
        dev_.embed(call, embedding_, std::sqrt(static_cast<float>(model_width_)),
                   halves.values.columns(0, model_width_));
        dev_.gather(before, std::span(every_row_).first(rows), halves.values.columns(model_width_, model_width_));
        dev_.quantise(halves);
        dev_.matmul(halves, std::array<Product, 1>{{{join_, call.residual}}});
    }
    for (const Layer& layer : stack_) layers_.run(layer, call);
    Activations y = call.scratch->activations(call.rows, layers_.width);
    dev_.norm(call.residual, out_norm_, layers_.eps, y);
    call.hidden = y.values;
    head_logits(dev_, call, head_);
    call.hidden = call.scratch->rows(call.rows, model_width_);
    dev_.matmul(y, std::array<Product, 1>{{{hidden_, call.hidden}}});
}

Result<void> Gemma4::load_assistant(const gguf::File& file, const gguf::File& model_file, const ModelOptions& options) {
    Loader load(file, dev_);
    const Trunk trunk{embedding_, layers_.width, layers_.vocabulary, layers_.window, stack_};
    assistant_ = std::make_unique<Assistant>(load, dev_, trunk, options.max_call_rows);
    const gguf::Key *tokens = file.find_key("tokenizer.ggml.tokens"),
                    *model_tokens = model_file.find_key("tokenizer.ggml.tokens");
    load.refuse_biases();
    load.require(!tokens || !model_tokens || std::ranges::equal(tokens->bytes, model_tokens->bytes),
                 "its tokens are not the model's");
    for (const std::string& note : load.notes()) facts_.notes.push_back("draft model: " + note);
    return load.status();
}

}  // namespace

Result<std::unique_ptr<Model>> make_gemma4(const gguf::File& file, Device& device, const ModelOptions& options) {
    Loader load(file, device);
    auto model = std::make_unique<Gemma4>(load, device, options);
    STRATA_TRY(load.status());
    if (options.draft) STRATA_TRY(model->load_assistant(*options.draft, file, options));
    return Result<std::unique_ptr<Model>>(std::move(model));
}

}  // namespace strata
