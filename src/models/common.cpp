#include "models/common.h"

#include <array>
#include <cmath>

namespace strata {

RopeSpec plain_rope(int rotated, double base) {
    RopeSpec rope;
    for (int i = 0; i < rotated / 2; ++i) rope.frequency.push_back(std::pow(base, -2.0 * i / rotated));
    rope.axis.assign(rope.frequency.size(), 0);
    return rope;
}

Caches add_caches(Loader& load, StateLayout& layout, const ModelOptions& options, int layer, const CacheShape& shape) {
    using Kind = PartSpec::Kind;
    load.require(options.cache_type != Type::q8_0 || shape.head_width % 32 == 0,
                 "attention heads of " + std::to_string(shape.head_width) +
                     " values are no multiple of 32, which --kv q8_0 needs; use --kv f16");
    const auto add = [&](const char* name) {
        return layout.add({.kind = shape.window > 0 ? Kind::ring : Kind::rows,
                           .name = block_name(layer, name),
                           .type = options.cache_type,
                           .width = shape.heads * shape.head_width,
                           .window = shape.window,
                           .capacity = shape.window > 0 ? shape.window - 1 + options.max_call_rows : 0,
                           .draft = shape.draft});
    };
    const PartId keys = add("k");
    return {keys, add("v")};
}

Attention load_attention(Loader& load, StateLayout& layout, const ModelOptions& options, int layer,
                         const AttentionShape& shape) {
    const auto name = [&](const char* tensor) { return block_name(layer, tensor); };
    const int q = shape.heads * shape.head_width, kv = shape.kv_heads * shape.head_width;
    Attention a;
    a.shape = shape;
    const auto qkv =
        load.matrices(name("attn_qkv.weight"), shape.width,
                      {{name("attn_q.weight"), q}, {name("attn_k.weight"), kv}, {name("attn_v.weight"), kv}});
    a.query = qkv[0];
    a.key = qkv[1];
    a.value = qkv[2];
    a.out = load.matrix(name("attn_output.weight"), q, shape.width);
    a.heads.query_norm = load.vector(name("attn_q_norm.weight"), {shape.head_width});
    a.heads.key_norm = load.vector(name("attn_k_norm.weight"), {shape.head_width});
    a.heads.eps = shape.eps;
    const Caches caches = add_caches(load, layout, options, layer,
                                     {.heads = shape.kv_heads, .head_width = shape.head_width, .window = shape.window});
    a.heads.keys = a.attend.keys = caches.keys;
    a.heads.values = a.attend.values = caches.values;
    a.attend.kv_heads = shape.kv_heads;
    a.attend.window = shape.window;
    a.attend.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_width));
    return a;
}

void run_attention(Device& device, Call& call, const Attention& layer, Rows rope, const Activations& x, Rows out,
                   bool add) {
    const AttentionShape& s = layer.shape;
    Arena::Scope scope(*call.scratch);
    Rows q = call.scratch->rows(call.rows, s.heads * s.head_width);
    Rows k = call.scratch->rows(call.rows, s.kv_heads * s.head_width);
    Rows v = call.scratch->rows(call.rows, s.kv_heads * s.head_width);
    Activations heads = call.scratch->activations(call.rows, s.heads * s.head_width);
    device.matmul(x, std::array<Product, 3>{{{layer.query, q}, {layer.key, k}, {layer.value, v}}});
    device.prepare_heads(call, layer.heads, s.rope ? rope : Rows{}, as_heads(q, s.heads), as_heads(k, s.kv_heads),
                         as_heads(v, s.kv_heads));
    device.attend(call, layer.attend, as_heads(q, s.heads), {}, heads);
    if (add)
        device.matmul_add(heads, layer.out, out);
    else
        device.matmul(heads, std::array<Product, 1>{{{layer.out, out}}});
}

void head_logits(Device& device, Call& call, const Matrix& head) {
    const auto wanted = static_cast<int>(call.outputs.size());
    call.logits = call.scratch->rows(wanted, head.rows);
    if (wanted == 0) return;
    Arena::Scope scope(*call.scratch);
    Activations h = call.scratch->activations(wanted, call.hidden.width);
    device.gather(call.hidden, call.outputs, h.values);
    device.quantise(h);
    device.matmul(h, std::array<Product, 1>{{{head, call.logits}}});
}

}  // namespace strata
