"""Training: python3 -m nano.train --folder FOLDER --minutes 20 (run from tools/).

Every step is decided by its number and the seed; FOLDER/checkpoint.pt holds all that a run needs to go on, and a run that
finds it there goes on. --call-minutes ends a call early, for machines that lend minutes."""
import argparse
import math
import multiprocessing
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from . import data, weights
from .model import Config, Nano, Where, compile_layers, toy_config
from .tokenizer import Tokenizer


# ---- data: worker w makes the batches w, w + W, w + 2 W ...

def make_batches(queue, path, seed, first, step, rows, length, total):
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(path)
    index = first
    while True:
        progress = index / total.value if total.value else 0.0
        packer = data.Packer(tokenizer, f"{seed} {index}", length)
        queue.put(packer.batch(rows, min(1.0, 0.1 + 1.8 * progress)))
        index += step


class Batches:
    def __init__(self, path, seed, first, workers, rows, length, total):
        context = multiprocessing.get_context("fork")
        self.queues = [context.Queue(2) for _ in range(workers)]
        self.next = 0
        self.workers = [context.Process(target=make_batches, daemon=True, args=(
            queue, path, seed, first + i, workers, rows, length, total)) for i, queue in enumerate(self.queues)]
        for worker in self.workers:
            worker.start()

    def get(self, device):
        ids, weights, start = self.queues[self.next % len(self.queues)].get(timeout=300)
        self.next += 1
        put = lambda x, kind: torch.from_numpy(x.astype(kind)).to(device, non_blocking=True)
        return put(ids, np.int64), put(weights, np.float32), put(start, np.int64)

    def close(self):
        for worker in self.workers:
            worker.terminate()


# ---- optimisers: Muon for the matrices of layers, Adam for the rest

def orthogonal(G):
    """U V^T of G's singular value decomposition, roughly: [batch, rows, columns], five Newton-Schulz steps."""
    X = G.bfloat16() if G.is_cuda else G.float()
    turned = X.shape[1] > X.shape[2]
    X = X.transpose(1, 2) if turned else X
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.transpose(1, 2)
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * (A @ A)) @ X
    return (X.transpose(1, 2) if turned else X).float()


class Muon:
    def __init__(self, parameters, momentum=0.95):
        self.momentum = momentum
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.state = {shape: torch.zeros(len(ps), *shape, device=ps[0].device) for shape, ps in self.groups.items()}

    @torch.no_grad()
    def step(self, lr, decay):
        for shape, ps in self.groups.items():
            gradient = torch.stack([p.grad for p in ps])
            average = self.state[shape].lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(average, self.momentum).reshape(-1, *shape[-2:])).view(len(ps), *shape)
            scale = lr * math.sqrt(max(1.0, shape[-2] / shape[-1]))
            torch._foreach_mul_(ps, 1 - lr * decay)
            torch._foreach_add_(ps, list((update * -scale).unbind()))


def split_parameters(model):
    """Those for Muon, and those for Adam."""
    muon, adam = [], []
    for name, p in model.named_parameters():
        inner = ("layers." in name or "block." in name or name == "eh_proj") and p.ndim >= 2
        small = any(x in name for x in ("ffn_gate_inp", "ssm_alpha", "ssm_beta", "ssm_conv1d"))
        (muon if inner and not small else adam).append(p)
    return muon, adam


# ---- the loss

def flex_attention_of(start):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    global compiled_flex
    if "compiled_flex" not in globals():
        compiled_flex = torch.compile(flex_attention, dynamic=False)
    B, T = start.shape
    first = torch.arange(T, device=start.device) - start
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (first[b, q] <= k), B, None, T, T, device=start.device)
    return lambda q, k, v: compiled_flex(q, k, v, block_mask=mask, enable_gqa=True)


def head_loss(hidden, output, targets, weights):
    """(weighed cross entropy, which guesses are right)"""
    logits = F.linear(hidden, output)
    loss = F.cross_entropy(logits.float(), targets, reduction="none")
    return (loss * weights).sum() / weights.sum().clamp(min=1e-6), (logits.argmax(-1) == targets)


def losses_of(model, batch, flex, head):
    ids, weights, start = batch
    where = Where(model.c, start, weights > 0, flex_attention_of(start) if flex else None)
    hidden, balance = model.trunk(ids, where)
    guesses, more = model.draft(ids, hidden, where)
    targets, weights = ids[:, 1:].flatten(), weights[:, 1:].flatten()
    loss, right = head(hidden[:, :-1].flatten(0, 1), model.output, targets, weights)
    draft, draft_right = head(guesses[:, :-1].flatten(0, 1), model.output, targets, weights)
    # The second guess of a window follows the block's own hidden row instead of the trunk's.
    second, third = model.draft(ids, guesses, where)
    chained, _ = head(second[:, :-1].flatten(0, 1), model.output, targets, weights)
    answer = weights >= 1
    share = lambda x: (x & answer).sum() / answer.sum().clamp(min=1)
    return loss + 0.3 * draft + 0.15 * chained + 0.01 * (balance + more + third), torch.stack(
        [loss.detach(), draft.detach(), (balance.detach() + more.detach()) / (model.c.layers + 1), share(right), share(draft_right)])


# ---- the run

def rate(step, steps, warm):
    if step < warm:
        return (step + 1) / warm
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))


def save(path, model, adam, muon, step, steps):
    torch.save({"model": model.state_dict(), "adam": adam.state_dict(), "muon": muon.state, "step": step, "steps": steps,
                "config": model.c.as_dict()}, path + ".partial")
    os.replace(path + ".partial", path)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--folder", required=True, help="tokenizer.json is here; the checkpoint comes here")
    a.add_argument("--steps", type=int, default=0, help="0: as many as --minutes allow, measured over the first steps")
    a.add_argument("--minutes", type=float, default=20, help="of all calls together")
    a.add_argument("--call-minutes", type=float, default=1e9)
    a.add_argument("--rows", type=int, default=8)
    a.add_argument("--accumulate", type=int, default=2)
    a.add_argument("--length", type=int, default=8192)
    a.add_argument("--workers", type=int, default=14)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--again", type=int, default=0, help="so many steps more from finished weights.npz, at --scale of the rates")
    a.add_argument("--scale", type=float, default=0.3)
    a.add_argument("--muon-rate", type=float, default=0.02)
    a.add_argument("--adam-rate", type=float, default=0.003)
    a.add_argument("--toy", action="store_true")
    a.add_argument("--no-compile", action="store_true")
    a.add_argument("--no-flex", action="store_true", help="attention through a mask of all pairs")
    o = a.parse_args()
    begin = time.time()

    path = os.path.join(o.folder, "checkpoint.pt")
    tokenizer_path = os.path.join(o.folder, "tokenizer.json")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # To the CPU first: nothing may touch the GPU before the workers are forked.
    saved = weights.load_checkpoint(path) if os.path.exists(path) else None
    step, steps = (saved["step"], saved["steps"]) if saved else (0, o.steps)
    carried = None  # weights that came back from another machine: the optimisers' averages start anew
    if not saved and os.path.exists(os.path.join(o.folder, "weights.npz")):
        carried, step, steps = weights.load(os.path.join(o.folder, "weights.npz"), "cpu")
        if o.again:
            steps = step + o.again
    scale = o.scale if o.again else 1.0
    base = steps - o.again if o.again else 0  # the cosine's beginning
    total = multiprocessing.get_context("fork").Value("l", steps * o.accumulate)
    batches = Batches(tokenizer_path, o.seed, step * o.accumulate, o.workers, o.rows, o.length, total)

    torch.manual_seed(o.seed)
    torch.set_float32_matmul_precision("high")  # TF32 for what autocast leaves in float32: the delta net's products
    size = Tokenizer.load(tokenizer_path).size
    model = (carried or Nano(toy_config(size) if o.toy else Config(vocabulary=size))).to(device)
    muon_parameters, adam_parameters = split_parameters(model)
    fast = {"fused": True} if device == "cuda" else {}
    adam = torch.optim.AdamW(adam_parameters, lr=o.adam_rate, betas=(0.9, 0.95), weight_decay=0.0, **fast)
    muon = Muon(muon_parameters)
    if saved:
        model.load_state_dict(saved["model"])
        adam.load_state_dict(saved["adam"])
        muon.state = {shape: average.to(device) for shape, average in saved["muon"].items()}
    if step:
        print(f"going on at step {step} of {steps}", flush=True)
    else:
        print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters", flush=True)
    use_compile = device == "cuda" and not o.no_compile
    if use_compile:
        compile_layers()
    use_flex = device == "cuda" and not o.no_flex
    head = torch.compile(head_loss, dynamic=False) if use_compile else head_loss

    tokens = o.rows * o.length * o.accumulate
    shown, saved_at, measured = time.time(), time.time(), None
    fresh = step  # for carried weights: the averages' age is counted from here
    numbers = torch.zeros(5, device=device)
    since = here = 0
    while not steps or step < steps:
        for _ in range(o.accumulate):
            batch = batches.get(device)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss, told = losses_of(model, batch, use_flex, head)
            (loss / o.accumulate).backward()
            numbers += told / o.accumulate
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        warm = 150 if not o.toy else 20
        now = scale * rate(step - base, (steps or 10 ** 9) - base, warm)
        if carried:
            now *= min(1.0, (step - fresh + 1) / warm)
        for group in adam.param_groups:
            group["lr"] = o.adam_rate * now
        adam.step()
        muon.step(o.muon_rate * now, 0.01)
        model.zero_grad(set_to_none=True)
        step += 1
        since += 1

        here += 1
        if not steps and here in (20, 60):  # the schedule's length from 40 steps behind the compiling
            if device == "cuda":
                torch.cuda.synchronize()
            if here == 20:
                measured = time.time()
            else:
                each = (time.time() - measured) / 40
                steps = step + int((o.minutes * 60 - (time.time() - begin)) * 0.97 / each)
                total.value = steps * o.accumulate
                print(f"{each * 1000:.0f} ms a step of {tokens} tokens: {steps} steps", flush=True)
        if step % (50 if not o.toy else 10) == 0 or step == steps:
            n = (numbers / since).tolist()
            spent = time.time() - shown
            print(f"step {step} loss {n[0]:.4f} draft {n[1]:.4f} balance {n[2]:.3f} right {n[3]:.4f} guesses {n[4]:.4f} "
                  f"rate {now:.3f} {tokens * since / spent / 1e3:.0f}k tokens/s {(time.time() - begin) / 60:.1f} min", flush=True)
            if not math.isfinite(n[0]):
                raise SystemExit("the loss is not finite: the last checkpoint stands")
            numbers.zero_()
            since, shown = 0, time.time()
        late = (time.time() - begin) / 60 > o.call_minutes
        if late or step == steps or time.time() - saved_at > 100:
            save(path, model, adam, muon, step, steps)
            saved_at = time.time()
        if late:
            break
    batches.close()
    weights.save(os.path.join(o.folder, "weights.npz"), model, step, steps)
    print(f"{'done' if step == steps else 'to be continued'}: step {step} of {steps}", flush=True)


if __name__ == "__main__":
    main()
