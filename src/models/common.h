// What several architectures are made of: rotary angles, caches, attention of the usual kind, the head's logits. One
// that differs has its own.
#pragma once

#include <memory>

#include "models/loader.h"
#include "models/model.h"

namespace strata {

/// The first `rotated` values of a head turn: pair i = (i, i + rotated / 2) by position * base^(-2i / rotated).
RopeSpec plain_rope(int rotated, double base);

struct CacheShape {
    int heads = 0;       // of keys and values
    int head_width = 0;  // of each
    int window = 0;      // tokens seen, the own one included; 0: all
    bool draft = false;  // of the draft block
};

struct Caches {
    PartId keys = -1;
    PartId values = -1;
};

/// Keys and values of a layer: every token's, or with a window a ring of the last ones that has room for the longest
/// call. Heads that the cache's type cannot hold are refused.
Caches add_caches(Loader& load, StateLayout& layout, const ModelOptions& options, int layer, const CacheShape& shape);

struct AttentionShape {
    int width = 0;  // of the residual stream
    int heads = 0, kv_heads = 0, head_width = 0;
    int window = 0;    // tokens seen, the own one included; 0: all
    bool rope = true;  // queries and keys turn
    float eps = 0;
};

/// Attention with a norm of every query's and key's head, whose scores are divided by sqrt(head width).
struct Attention {
    AttentionShape shape;
    Matrix query, key, value, out;
    HeadSpec heads;
    AttentionSpec attend;
};

/// blk.LAYER.attn_{q,k,v} (or attn_qkv), attn_{q,k}_norm and attn_output, with their caches.
Attention load_attention(Loader& load, StateLayout& layout, const ModelOptions& options, int layer,
                         const AttentionShape& shape);

/// out = W_out (softmax(q k / sqrt(head width)) v), queries and keys normed, then turned; add: out += that.
void run_attention(Device& device, Call& call, const Attention& layer, Rows rope, const Activations& x, Rows out,
                   bool add);

/// An M of the file, or what its loader found wrong. M is built from (Loader&, Device&, const ModelOptions&) and says
/// there what is missing.
template <class M>
Result<std::unique_ptr<Model>> load_model(const gguf::File& file, Device& device, const ModelOptions& options) {
    Loader load(file, device);
    auto model = std::make_unique<M>(load, device, options);
    STRATA_TRY(load.status());
    return Result<std::unique_ptr<Model>>(std::move(model));
}

/// call.logits = head . call.hidden, for the rows that want them.
void head_logits(Device& device, Call& call, const Matrix& head);

}  // namespace strata
