"""strata-nano in PyTorch: the `qwen35moe` architecture as docs/models/qwen35moe.md has it.

Rows are packed: a row of a batch holds several documents one after the other, and `start` says for every token how far it
is from the beginning of its own (0 at the first). Attention, the delta net's state and its conv never look across.
Shapes: B rows, T tokens, D width, H heads, d head width, N chunks of c tokens, E experts.
"""
import math
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import delta_net


@dataclass
class Config:
    vocabulary: int = 4096
    layers: int = 12
    interval: int = 4  # layer i is attention when (i + 1) % interval == 0
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    rotated: int = 32
    sections: tuple = (6, 5, 5, 0)  # sum is rotated / 2: every pair turns, so that text has plain partial rotary
    rope_base: float = 100000.0
    key_heads: int = 4
    value_heads: int = 8
    net_width: int = 64
    taps: int = 4
    experts: int = 16
    used: int = 4
    inner: int = 64
    shared_inner: int = 128
    eps: float = 1e-6
    context: int = 8192

    @property
    def channels(self):
        return self.net_width * (2 * self.key_heads + self.value_heads)

    @property
    def net_out(self):
        return self.net_width * self.value_heads

    def is_attention(self, layer):
        return (layer + 1) % self.interval == 0

    def as_dict(self):
        return asdict(self)


def toy_config(vocabulary):
    """Odd sizes, for tests on a CPU."""
    return Config(vocabulary=vocabulary, layers=4, width=64, heads=4, kv_heads=2, head_width=32, rotated=16,
                  sections=(3, 3, 2, 0), key_heads=2, value_heads=4, net_width=32, experts=8, used=3, inner=32,
                  shared_inner=64)


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def matrix(inputs, outputs, scale=1.0):
    """[outputs, inputs], as in the file."""
    return nn.Parameter(torch.randn(outputs, inputs) * (scale / math.sqrt(inputs)))


def linear(x, weight, exact=False):
    """Exact: float32 whatever autocast says (routers, decays)."""
    if not exact:
        return F.linear(x, weight)
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x.float(), weight)


def rotate(x, cos, sin):
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


class Attention(nn.Module):
    def __init__(self, c, depth):
        super().__init__()
        self.c = c
        self.attn_q = matrix(c.width, 2 * c.heads * c.head_width)  # a head's query, then its gate
        self.attn_k = matrix(c.width, c.kv_heads * c.head_width)
        self.attn_v = matrix(c.width, c.kv_heads * c.head_width)
        self.attn_q_norm = Norm(c.head_width, c.eps)
        self.attn_k_norm = Norm(c.head_width, c.eps)
        self.attn_output = matrix(c.heads * c.head_width, c.width, depth)

    def heads(self, a, cos, sin):
        c = self.c
        B, T, _ = a.shape
        q, gate = linear(a, self.attn_q).view(B, T, c.heads, 2, c.head_width).unbind(3)
        k = linear(a, self.attn_k).view(B, T, c.kv_heads, c.head_width)
        v = linear(a, self.attn_v).view(B, T, c.kv_heads, c.head_width)
        q = rotate(self.attn_q_norm(q), cos, sin).to(v.dtype)
        k = rotate(self.attn_k_norm(k), cos, sin).to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), gate

    def close(self, o, gate):
        return linear((o.transpose(1, 2) * torch.sigmoid(gate)).flatten(2), self.attn_output)


class DeltaNet(nn.Module):
    def __init__(self, c, depth):
        super().__init__()
        self.c = c
        self.attn_qkv = matrix(c.width, c.channels)
        self.attn_gate = matrix(c.width, c.net_out)
        self.ssm_conv1d = nn.Parameter(torch.randn(c.channels, c.taps) / math.sqrt(c.taps))
        self.ssm_alpha = matrix(c.width, c.value_heads, 0.1)
        self.ssm_beta = matrix(c.width, c.value_heads, 0.1)
        # Decays from a few tokens to thousands.
        step = torch.exp(torch.linspace(math.log(1e-3), math.log(1e-1), c.value_heads))
        self.ssm_dt = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus of it is the step
        self.ssm_a_log = nn.Parameter(torch.log(torch.linspace(1, 8, c.value_heads)))
        self.ssm_norm = Norm(c.net_width, c.eps)
        self.ssm_out = matrix(c.net_out, c.width, depth)

    def conv(self, u, start):
        """silu of the last K rows of u, those of other documents left out."""
        out = u * self.ssm_conv1d[:, -1]
        for back in range(1, self.c.taps):
            shifted = F.pad(u[:, :-back], (0, 0, back, 0))
            out = out + shifted * self.ssm_conv1d[:, -1 - back] * (start >= back).unsqueeze(-1)
        return F.silu(out)

    def prepare(self, a, start):
        """(M, b, rest) of delta_net.prepare, and z"""
        c = self.c
        B, T, _ = a.shape
        x = self.conv(linear(a, self.attn_qkv).float(), start)
        q, k, v = x.split([c.key_heads * c.net_width, c.key_heads * c.net_width, c.net_out], -1)
        q = q.view(B, T, c.key_heads, c.net_width)
        k = k.view(B, T, c.key_heads, c.net_width)
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + c.eps) / math.sqrt(c.net_width)
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + c.eps)
        repeat = c.value_heads // c.key_heads  # value head h reads key head h % key_heads
        q, k = q.repeat(1, 1, repeat, 1), k.repeat(1, 1, repeat, 1)
        v = v.view(B, T, c.value_heads, c.net_width)
        g = -torch.exp(self.ssm_a_log) * F.softplus(linear(a, self.ssm_alpha, True) + self.ssm_dt)
        beta = torch.sigmoid(linear(a, self.ssm_beta, True))
        z = linear(a, self.attn_gate).view(B, T, c.value_heads, c.net_width)
        return (*delta_net.prepare(q, k, v, g, beta, start), z)

    def close(self, states, rest, z):
        B, T = z.shape[:2]
        o = delta_net.finish(states, rest, T)
        return linear((self.ssm_norm(o) * F.silu(z)).reshape(B, T, -1), self.ssm_out)


class Experts(nn.Module):
    """All experts are computed for all tokens and the unchosen weighed with zero: at this width three large products beat
    sorting tokens, and nothing depends on how full an expert is."""

    def __init__(self, c, depth):
        super().__init__()
        self.c = c
        self.ffn_gate_inp = matrix(c.width, c.experts)
        self.ffn_gate_exps = nn.Parameter(torch.randn(c.experts, c.inner, c.width) / math.sqrt(c.width))
        self.ffn_up_exps = nn.Parameter(torch.randn(c.experts, c.inner, c.width) / math.sqrt(c.width))
        self.ffn_down_exps = nn.Parameter(torch.randn(c.experts, c.width, c.inner) * (depth / math.sqrt(c.inner)))
        self.ffn_gate_inp_shexp = matrix(c.width, 1)
        self.ffn_gate_shexp = matrix(c.width, c.shared_inner)
        self.ffn_up_shexp = matrix(c.width, c.shared_inner)
        self.ffn_down_shexp = matrix(c.shared_inner, c.width, depth)

    def forward(self, m, real):
        c = self.c
        scores = linear(m, self.ffn_gate_inp, True)
        p = torch.softmax(scores, -1)
        top, chosen = torch.topk(p, c.used, -1)
        weights = torch.zeros_like(p).scatter(-1, chosen, top / top.sum(-1, keepdim=True))
        gate = linear(m, self.ffn_gate_exps.flatten(0, 1))
        up = linear(m, self.ffn_up_exps.flatten(0, 1))
        inner = (F.silu(gate) * up).unflatten(-1, (c.experts, c.inner)) * weights.unsqueeze(-1).to(gate.dtype)
        out = linear(inner.flatten(-2), self.ffn_down_exps.transpose(0, 1).flatten(1))
        shared = F.silu(linear(m, self.ffn_gate_shexp)) * linear(m, self.ffn_up_shexp)
        out = out + torch.sigmoid(linear(m, self.ffn_gate_inp_shexp, True)) * linear(shared, self.ffn_down_shexp)
        # Balance: E sum_e (share of the choices) (mean probability), 1 when even; and scores that stay small.
        real = real.unsqueeze(-1)
        count = real.sum().clamp(min=1)
        share = ((weights > 0) * real).sum((0, 1)) / (count * c.used)
        balance = c.experts * (share.detach() * (p * real).sum((0, 1)) / count).sum()
        size = ((torch.logsumexp(scores, -1, keepdim=True) ** 2) * real).sum() / count
        return out, balance + 0.1 * size


class Layer(nn.Module):
    def __init__(self, c, attention):
        super().__init__()
        depth = 1 / math.sqrt(2 * c.layers)
        self.attn_norm = Norm(c.width, c.eps)
        self.mixer = Attention(c, depth) if attention else DeltaNet(c, depth)
        self.post_attention_norm = Norm(c.width, c.eps)
        self.experts = Experts(c, depth)

    # In pieces that take tensors alone, so that each can be compiled (compile_layers).
    def run_net(self, x, start):
        return self.mixer.prepare(self.attn_norm(x), start)

    def run_net_close(self, x, states, rest, z):
        return x + self.mixer.close(states, rest, z).float()

    def run_heads(self, x, cos, sin):
        return self.mixer.heads(self.attn_norm(x), cos, sin)

    def run_close(self, x, o, gate):
        return x + self.mixer.close(o, gate).float()

    def run_experts(self, x, real):
        out, balance = self.experts(self.post_attention_norm(x), real)
        return x + out.float(), balance

    def forward(self, x, where):
        if isinstance(self.mixer, DeltaNet):
            M, b, rest, z = self.run_net(x, where.start)
            x = self.run_net_close(x, delta_net.chain(M, b), rest, z)
        else:
            q, k, v, gate = self.run_heads(x, where.cos, where.sin)
            x = self.run_close(x, where.attend(q, k, v), gate)
        return self.run_experts(x, where.real)


def compile_layers():
    """For training on a GPU: all layers of a kind share what is compiled."""
    import torch._dynamo
    torch._dynamo.config.cache_size_limit = 64
    for name in ("run_net", "run_net_close", "run_heads", "run_close", "run_experts"):
        setattr(Layer, name, torch.compile(getattr(Layer, name), dynamic=False))


class Where:
    """What layers know of a batch's documents. start: [B, T], tokens since the document's first."""

    def __init__(self, c, start, real=None, attend=None):
        self.start = start
        self.real = torch.ones_like(start, dtype=torch.float32) if real is None else real.float()
        half = c.rotated // 2
        frequency = c.rope_base ** (-torch.arange(half, dtype=torch.float64, device=start.device) / half)
        angle = (start.double().unsqueeze(-1) * frequency).unsqueeze(2)  # [B, T, 1, half]
        self.cos, self.sin = torch.cos(angle).float(), torch.sin(angle).float()
        self.attend = attend or self.dense_attention()

    def dense_attention(self):
        """Any device, any version: a mask of all pairs."""
        T = self.start.shape[1]
        index = torch.arange(T, device=self.start.device)
        first = index - self.start  # where the own document begins
        mask = (index.view(1, 1, T) <= index.view(1, T, 1)) & (index.view(1, 1, T) >= first.unsqueeze(2))

        def attend(q, k, v):
            repeat = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
            if hasattr(F, "scaled_dot_product_attention"):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.unsqueeze(1))
            s = (q @ k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1])
            return torch.softmax(s.masked_fill(~mask.unsqueeze(1), -math.inf), -1).to(v.dtype) @ v
        return attend


class Nano(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.token_embd = nn.Parameter(torch.randn(c.vocabulary, c.width) * 0.5)
        self.layers = nn.ModuleList(Layer(c, c.is_attention(i)) for i in range(c.layers))
        self.output_norm = Norm(c.width, c.eps)
        self.output = matrix(c.width, c.vocabulary)
        self.eh_proj = matrix(2 * c.width, c.width)
        self.enorm = Norm(c.width, c.eps)
        self.hnorm = Norm(c.width, c.eps)
        self.shared_head_norm = Norm(c.width, c.eps)
        self.block = Layer(c, True)

    def trunk(self, ids, where):
        """Hidden rows after output_norm, and the sum of the routers' losses."""
        x = F.embedding(ids, self.token_embd).float()
        losses = []
        for layer in self.layers:
            x, loss = layer(x, where)
            losses.append(loss)
        return self.output_norm(x), sum(losses)

    def draft(self, ids, hidden, where):
        """Row p guesses token p + 1 from token p and the hidden row of token p - 1 (zeros at a document's start)."""
        before = F.pad(hidden[:, :-1], (0, 0, 1, 0)) * (where.start > 0).unsqueeze(-1)
        e = self.enorm(F.embedding(ids, self.token_embd))
        y = linear(torch.cat([e, self.hnorm(before)], -1), self.eh_proj).float()
        y, loss = self.block(y, where)
        return self.shared_head_norm(y), loss

    def logits(self, hidden):
        return linear(hidden, self.output)

    def forward(self, ids, start):
        where = Where(self.c, start)
        hidden, _ = self.trunk(ids, where)
        guesses, _ = self.draft(ids, hidden, where)
        return self.logits(hidden), self.logits(guesses)
