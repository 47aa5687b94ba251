"""A trained model as a GGUF file of floats (version 3): matrices F16 or F32, vectors F32. Source: docs/gguf.md,
docs/models/qwen35moe.md. nano_quantise makes the file that ships from it."""
import os
import struct

import numpy as np

from .tokenizer import CONTROL, NORMAL, SPECIAL, USER, piece_text

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_F16 = 0, 1


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, x):
    if kind == STRING:
        return string(x)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], x)


def array(kind, xs):
    return struct.pack("<IQ", kind, len(xs)) + b"".join(value(kind, x) for x in xs)


def tensors_of(model):
    """(name, array) in file order; numpy shapes are the file's dimensions reversed, so rows are contiguous either way."""
    take = lambda x: x.detach().float().cpu().numpy()
    yield "token_embd.weight", take(model.token_embd)
    yield "output_norm.weight", take(model.output_norm.weight)
    yield "output.weight", take(model.output)
    for i, layer in enumerate(list(model.layers) + [model.block]):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", take(layer.attn_norm.weight)
        yield p + "post_attention_norm.weight", take(layer.post_attention_norm.weight)
        for name, x in layer.mixer.named_parameters():
            if name == "ssm_a_log":
                yield p + "ssm_a", -np.exp(take(x))
            elif name == "ssm_dt":
                yield p + "ssm_dt.bias", take(x)
            else:  # norms are modules of their own: attn_q_norm.weight
                yield p + name.removesuffix(".weight") + ".weight", take(x)
        for name, x in layer.experts.named_parameters():
            yield p + name + ".weight", take(x).reshape(-1) if name == "ffn_gate_inp_shexp" else take(x)
    p = f"blk.{len(model.layers)}.nextn."
    yield p + "eh_proj.weight", take(model.eh_proj)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        yield p + name + ".weight", take(getattr(model, name).weight)


def keys_of(c, tokenizer, template):
    a = "qwen35moe."
    blocks = c.layers + 1
    pieces = [piece_text(p) for p in tokenizer.pieces] + [text for text, _ in SPECIAL]
    kinds = [NORMAL] * len(tokenizer.pieces) + [CONTROL if control else USER for _, control in SPECIAL]
    merges = [piece_text(x) + " " + piece_text(y) for x, y in tokenizer.merges]
    recurrent = [i < c.layers and not c.is_attention(i) for i in range(blocks)]
    one = lambda name, kind, x: (name, struct.pack("<I", kind) + value(kind, x))
    many = lambda name, kind, xs: (name, struct.pack("<I", ARRAY) + array(kind, xs))
    return [
        one("general.architecture", STRING, "qwen35moe"),
        one("general.name", STRING, "strata-nano"),
        one("general.license", STRING, "mit"),
        one("general.file_type", U32, 1),
        one(a + "block_count", U32, blocks),
        one(a + "context_length", U32, c.context),
        one(a + "embedding_length", U32, c.width),
        one(a + "attention.head_count", U32, c.heads),
        one(a + "attention.head_count_kv", U32, c.kv_heads),
        one(a + "attention.key_length", U32, c.head_width),
        one(a + "attention.value_length", U32, c.head_width),
        one(a + "attention.layer_norm_rms_epsilon", F32, c.eps),
        one(a + "rope.dimension_count", U32, c.rotated),
        many(a + "rope.dimension_sections", I32, list(c.sections)),
        one(a + "rope.freq_base", F32, c.rope_base),
        one(a + "expert_count", U32, c.experts),
        one(a + "expert_used_count", U32, c.used),
        one(a + "expert_feed_forward_length", U32, c.inner),
        one(a + "expert_shared_feed_forward_length", U32, c.shared_inner),
        one(a + "ssm.conv_kernel", U32, c.taps),
        one(a + "ssm.state_size", U32, c.net_width),
        one(a + "ssm.group_count", U32, c.key_heads),
        one(a + "ssm.time_step_rank", U32, c.value_heads),
        one(a + "ssm.inner_size", U32, c.net_out),
        one(a + "full_attention_interval", U32, c.interval),
        many(a + "attention.recurrent_layers", BOOL, recurrent),
        one(a + "nextn_predict_layers", U32, 1),
        one("tokenizer.ggml.model", STRING, "gpt2"),
        one("tokenizer.ggml.pre", STRING, "qwen35"),
        many("tokenizer.ggml.tokens", STRING, pieces),
        many("tokenizer.ggml.token_type", I32, kinds),
        many("tokenizer.ggml.merges", STRING, merges),
        one("tokenizer.ggml.eos_token_id", U32, tokenizer.end),
        one("tokenizer.ggml.padding_token_id", U32, tokenizer.special["<|endoftext|>"]),
        one("tokenizer.ggml.add_bos_token", BOOL, False),
        one("tokenizer.chat_template", STRING, template),
    ]


def write(path, model, tokenizer, template, half=True):
    """half: matrices as F16 (routers, decays' products and conv stay F32), else all F32."""
    exact = ("ffn_gate_inp", "ssm_alpha", "ssm_beta", "ssm_conv1d")
    tensors = []
    for name, x in tensors_of(model):
        narrow = half and x.ndim > 1 and not any(e in name for e in exact)
        tensors.append((name, np.ascontiguousarray(x, np.float16 if narrow else np.float32)))
    keys = keys_of(model.c, tokenizer, template)
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    header += b"".join(string(name) + data for name, data in keys)
    at = 0
    for name, x in tensors:
        dims = x.shape[::-1]
        header += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        header += struct.pack("<IQ", TYPE_F16 if x.dtype == np.float16 else TYPE_F32, at)
        at += -(-x.nbytes // 32) * 32
    with open(path + ".partial", "wb") as file:
        file.write(header + bytes(-len(header) % 32))
        for _, x in tensors:
            file.write(x.tobytes() + bytes(-x.nbytes % 32))
    os.replace(path + ".partial", path)
