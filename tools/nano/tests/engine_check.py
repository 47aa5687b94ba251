"""A model of random weights and toy sizes, exported and run by our engine: the logits must be PyTorch's.

Run from tools/: python3 -m nano.tests.engine_check STRATA_POLY [CHECKPOINT TOKENIZER] (with a checkpoint: that model)."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

from ..gguf_file import write
from ..model import Nano, toy_config
from ..tokenizer import Tokenizer, learn


def logits_of_engine(engine, path, ids, extra=()):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits")
        subprocess.run([engine, "--model", path, "--quiet", "--device", "cpu", "--kv", "f32", "--threads", "1",
                        "--tokens", ",".join(map(str, ids)), "--max-new", "0", "--logits-out", out, *extra], check=True,
                       stdout=subprocess.DEVNULL)
        return np.fromfile(out, np.float32)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    engine = sys.argv[1]
    if len(sys.argv) > 2:
        state = torch.load(sys.argv[2], map_location="cpu")
        tokenizer = Tokenizer.load(sys.argv[3])
        from ..model import Config
        model = Nano(Config(**state["config"]))
        model.load_state_dict(state["model"])
    else:
        tokenizer = learn(["the cat and the dog sat on the mat, then the cat ran 123 times\n"] * 3, 300)
        model = Nano(toy_config(tokenizer.size))
        with torch.no_grad():  # norms that a forgotten one would show
            for name, x in model.named_parameters():
                if "norm" in name:
                    x.add_(torch.randn_like(x) * 0.2)
            model.output.mul_(3)
    model.eval()
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "nano.gguf")
        write(path, model, tokenizer, "{{ messages[0].content }}", half=False)
        for length in (5, 70, 200):
            ids = torch.randint(tokenizer.size, (1, length))
            with torch.no_grad():
                want = model(ids, torch.arange(length).unsqueeze(0))[0][0].numpy()
            got = logits_of_engine(engine, path, ids[0].tolist())
            got = got.reshape(-1, tokenizer.size)
            want = want[-len(got):]
            far = np.abs(got - want).max()
            same = (got.argmax(1) == want.argmax(1)).mean()
            print(f"{length} tokens, {len(got)} rows: furthest logit {far:.4f} of spread {want.std():.2f}, "
                  f"same likeliest token {same:.3f}")
            worst = max(worst, far)
    assert worst < 2e-2, worst


if __name__ == "__main__":
    main()
