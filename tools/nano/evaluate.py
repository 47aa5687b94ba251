"""Held-out accuracy in PyTorch, and the prompts for `polystrata eval`.

python3 -m nano.evaluate prompts FILE [EACH] [SEED]   writes EACH held-out prompts of every skill as JSON lines
python3 -m nano.evaluate score FOLDER [EACH]          answers them greedily with FOLDER/checkpoint.pt or weights.npz
python3 -m nano.evaluate export FOLDER FILE [f32]     writes the float GGUF
python3 -m nano.evaluate show FILE                    prints what `polystrata eval --json` wrote, and some wrong answers
"""
import collections
import json
import os
import sys
import time

import torch

from . import data, gguf_file, judge, weights
from .model import Config, Nano, Where
from .tokenizer import Tokenizer

TOKENIZER = os.path.join(os.path.dirname(__file__), "tokenizer.json")
TEMPLATE = os.path.join(os.path.dirname(__file__), "chat_template.jinja")


def load(folder, device):
    tokenizer = Tokenizer.load(os.path.join(folder, "tokenizer.json"))
    path = os.path.join(folder, "checkpoint.pt")
    if not os.path.exists(path):
        return weights.load(os.path.join(folder, "weights.npz"), device)[0].eval(), tokenizer
    state = weights.load_checkpoint(path)
    model = Nano(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model.to(device).eval(), tokenizer


@torch.no_grad()
def answer(model, prompts, end, most, device):
    """Greedy answers (ids, without the end), and for every one how many of its tokens the draft block had guessed."""
    B = len(prompts)
    rows = [list(p) for p in prompts]
    open_rows = set(range(B))
    for _ in range(most):
        T = -(-max(map(len, rows)) // 64) * 64
        ids = torch.tensor([r + [end] * (T - len(r)) for r in rows], device=device)
        where = Where(model.c, torch.arange(T, device=device).expand(B, T))
        hidden, _ = model.trunk(ids, where)
        last = torch.tensor([len(r) - 1 for r in rows], device=device)
        best = model.logits(hidden[torch.arange(B, device=device), last]).argmax(-1).tolist()
        for i in list(open_rows):
            rows[i].append(best[i])
            if best[i] == end:
                open_rows.discard(i)
        if not open_rows:
            break
    T = max(map(len, rows))
    ids = torch.tensor([r + [end] * (T - len(r)) for r in rows], device=device)
    where = Where(model.c, torch.arange(T, device=device).expand(B, T))
    hidden, _ = model.trunk(ids, where)
    guesses = torch.cat([model.logits(h).argmax(-1) for h in model.draft(ids, hidden, where)[0].split(1)])
    out = []
    for i, prompt in enumerate(prompts):
        new = rows[i][len(prompt):]
        hits = (guesses[i, len(prompt) - 1:len(rows[i]) - 1] == ids[i, len(prompt):len(rows[i])]).sum().item()
        out.append(([t for t in new if t != end], hits, len(new)))
    return out


def score(model, tokenizer, examples, device, most=300):
    prompts = [tokenizer.encode(data.text_of(e)[0]) for e in examples]
    order = sorted(range(len(examples)), key=lambda i: len(prompts[i]))
    right, count = collections.Counter(), collections.Counter()
    hits = tokens = 0
    wrong = []
    while order:
        take = []
        while order and (not take or (len(take) + 1) * (len(prompts[order[0]]) + most) <= 131072 and len(take) < 256):
            take.append(order.pop(0))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            answers = answer(model, [prompts[i] for i in take], tokenizer.end, most, device)
        for i, (ids, h, n) in zip(take, answers):
            e, text = examples[i], tokenizer.decode(ids)
            good = judge.right(e.check, *judge.parse(text)[1:])
            right[e.skill] += good
            count[e.skill] += 1
            hits += h
            tokens += n
            if not good:
                wrong.append((e.skill, data.text_of(e)[0][-300:], data.text_of(e)[1], text))
    return {s: (right[s], count[s]) for s in count}, hits / max(tokens, 1), wrong


def show(path):
    with open(path) as file:
        result = json.load(file)
    shown = collections.Counter()
    for w in result["wrong"]:
        shown[w["skill"]] += 1
        if shown[w["skill"]] <= 3:
            print(f"-- {w['id']}: wanted {str(w['wanted'])[:200]!r}, got {w['content'][:200]!r} {w['calls'] or ''}")
    for skill, c in result["skills"].items():
        print(f"{skill:12} {c['right']:4} of {c['count']:4}  {100 * c['right'] / c['count']:5.1f}%")
    print(f"guesses right {result['guesses_right']} of {result['guesses_offered']}; {result['new_tokens']} tokens in "
          f"{result['write_ms'] / 1000:.1f} s")


def main():
    command = sys.argv[1]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if command == "prompts":
        each, seed = int(sys.argv[3]) if len(sys.argv) > 3 else 100, sys.argv[4] if len(sys.argv) > 4 else "eval"
        with open(sys.argv[2], "w") as file:
            for i, e in enumerate(data.held_out_set(Tokenizer.load(TOKENIZER), seed, each)):
                file.write(data.prompt_line(e, i % each) + "\n")
        return
    if command == "show":
        show(sys.argv[2])
        return
    begin = time.time()
    model, tokenizer = load(sys.argv[2], device)
    if command == "export":
        with open(TEMPLATE) as file:
            gguf_file.write(sys.argv[3], model, tokenizer, file.read(), half="f32" not in sys.argv)
        return
    each = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    scores, guessed, wrong = score(model, tokenizer, data.held_out_set(tokenizer, "eval", each), device)
    shown = collections.Counter()
    for skill, prompt, want, got in wrong:
        shown[skill] += 1
        if shown[skill] <= 3:
            print(f"-- {skill}\n{prompt!r}\nwanted {want[:200]!r}\ngot    {got[:200]!r}")
    for skill, (right, count) in scores.items():
        print(f"{skill:12} {right:4} of {count:4}  {100 * right / count:5.1f}%")
    print(f"first guesses right: {100 * guessed:.1f}%   ({time.time() - begin:.0f} s)")


if __name__ == "__main__":
    main()
