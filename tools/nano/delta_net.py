"""The gated delta net over packed rows: as a recurrence (the definition), and in chunks (the same, for training).

q, k: [B, T, H, d], normalised, q scaled too; v: [B, T, H, d]; g (log decay, <= 0), beta: [B, T, H]; start: [B, T], tokens
since the document's first: the state is zero before a document. All float32. Result: [B, T, H, d].
"""
import torch

CHUNK = 64


def recurrent(q, k, v, g, beta, start):
    B, T, H, d = q.shape
    state = q.new_zeros(B, H, d, d)  # [value, key]
    out = []
    for t in range(T):
        keep = torch.exp(g[:, t]) * (start[:, t] > 0).unsqueeze(-1)
        state = state * keep[..., None, None]
        delta = beta[:, t].unsqueeze(-1) * (v[:, t] - (state @ k[:, t].unsqueeze(-1)).squeeze(-1))
        state = state + delta.unsqueeze(-1) * k[:, t].unsqueeze(-2)
        out.append((state @ q[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(out, 1)


class Chain(torch.autograd.Function):
    """state[n + 1] = M[n] state[n] + b[n] from state[0] = 0, M and b: [N, batch, d, d]; gives state[0 .. N - 1]. Its own
    backward, because it is the one loop there is: one product a step either way, the rest in one batch behind it."""

    @staticmethod
    def forward(ctx, M, b):
        states = torch.empty_like(b)
        states[0] = 0
        for n in range(len(b) - 1):
            torch.baddbmm(b[n], M[n], states[n], out=states[n + 1])
        ctx.save_for_backward(M, states)
        return states

    @staticmethod
    def backward(ctx, grad):
        M, states = ctx.saved_tensors
        after = torch.zeros_like(grad)  # after[n]: the gradient of state[n + 1]
        for n in range(len(grad) - 1, 0, -1):
            torch.baddbmm(grad[n], M[n].transpose(1, 2), after[n], out=after[n - 1])
        return after @ states.transpose(2, 3), after


chain = Chain.apply


def unit_lower_inverse(A):
    """(I + A)^-1 for strictly lower A: [..., 64, 64]. Blocks of 16 by (I - A)(I + A^2)(I + A^4)(I + A^8), whose terms stay
    small enough for float32, then blocks are joined two by two."""
    size = A.shape[-1]
    width = 16
    diagonal = torch.stack([A[..., i:i + width, i:i + width] for i in range(0, size, width)], -3)
    eye = torch.eye(width, dtype=A.dtype, device=A.device)
    inverse, power = eye - diagonal, diagonal @ diagonal
    for _ in range(3):
        inverse = inverse + inverse @ power
        power = power @ power
    while width < size:
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        low = torch.stack([A[..., i + width:i + 2 * width, i:i + width] for i in range(0, size, 2 * width)], -3)
        corner = -(second @ low @ first)
        inverse = torch.cat([torch.cat([first, torch.zeros_like(first)], -1), torch.cat([corner, second], -1)], -2)
        width *= 2
    return inverse.squeeze(-3)


def prepare(q, k, v, g, beta, start):
    """All that does not depend on states: (M, b, rest) for chain() and finish()."""
    B, T, H, d = q.shape
    pad = -T % CHUNK
    if pad:  # rows behind the end: no row before them sees them
        q, k, v = (torch.nn.functional.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (torch.nn.functional.pad(x, (0, 0, 0, pad)) for x in (g, beta))
        start = torch.nn.functional.pad(start, (0, pad))
    N = (T + pad) // CHUNK
    with torch.autocast(q.device.type, enabled=False):
        heads = lambda x: x.float().view(B, N, CHUNK, H, -1).permute(1, 0, 3, 2, 4)  # [N, B, H, c, .]
        q, k, v, g, beta = heads(q), heads(k), heads(v), heads(g).squeeze(-1), heads(beta).squeeze(-1)
        index = torch.arange(CHUNK, device=q.device)
        first = (index - start.view(B, N, CHUNK)).permute(1, 0, 2).unsqueeze(2)  # [N, B, 1, c]: < 0 if before the chunk
        own = index.view(1, CHUNK) >= first.unsqueeze(-1)  # [.., i, j]: j is of i's document
        causal = own & (index.view(1, CHUNK) <= index.view(CHUNK, 1))
        goes_on = (first < 0).float()  # i's document began before the chunk
        G = torch.cumsum(g, -1)
        decay = torch.exp((G.unsqueeze(-1) - G.unsqueeze(-2)).masked_fill(~causal, -1e30))  # [.., i, j]
        from_before = torch.exp(G) * goes_on
        to_end = decay[..., -1, :]
        keep = from_before[..., -1:].unsqueeze(-1)

        strict = index.view(1, CHUNK) < index.view(CHUNK, 1)
        A = beta.unsqueeze(-1) * (k @ k.transpose(-1, -2)) * decay * strict
        with torch.no_grad():
            inverse = unit_lower_inverse(A)
        # The same value (up to one Newton step), with the inverse's gradient: dX = -X dA X.
        inverse = inverse - inverse @ (A @ inverse + inverse - torch.eye(CHUNK, device=q.device))
        values = inverse @ (beta.unsqueeze(-1) * v)
        keys = inverse @ ((beta * from_before).unsqueeze(-1) * k)
        end_keys = (to_end.unsqueeze(-1) * k).transpose(-1, -2)  # [.., d, c]
        M = keep * torch.eye(d, device=q.device) - end_keys @ keys
        near = (q @ k.transpose(-1, -2)) * decay
        rest = (from_before.unsqueeze(-1) * q, near, keys, values)
        return M.reshape(N, B * H, d, d), (end_keys @ values).reshape(N, B * H, d, d), rest


def finish(states, rest, T):
    """states: [N, B H, key, value], those before each chunk."""
    q, near, keys, values = rest
    N, B, H, c, d = values.shape
    with torch.autocast(q.device.type, enabled=False):
        states = states.view(N, B, H, d, d)
        out = q @ states + near @ (values - keys @ states)
        return out.permute(1, 0, 3, 2, 4).reshape(B, N * c, H, d)[:, :T]


def gated_delta_net(q, k, v, g, beta, start):
    M, b, rest = prepare(q, k, v, g, beta, start)
    return finish(chain(M, b), rest, q.shape[1])
