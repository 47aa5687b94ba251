"""Our engine's guesses are PyTorch's: for an answer that the engine wrote with windows of two rows, the tokens that it says were
guessed are those that the draft block here guesses.

Run from tools/: python3 -m nano.tests.draft_check STRATA_POLY FOLDER [PROMPTS] (a trained model, however shortly)"""
import json
import os
import random
import subprocess
import sys
import tempfile

import torch

from .. import data, evaluate, gguf_file
from ..model import Where


def main():
    torch.set_num_threads(1)
    model, tokenizer = evaluate.load(sys.argv[2], "cpu")
    rng = random.Random(3)
    right = offered = different = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "nano.gguf")
        gguf_file.write(path, model, tokenizer, "{{ messages[0].content }}", half=False)
        for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 8):
            prompt = tokenizer.encode(data.text_of(data.draw(rng, 0.1, True))[0])
            lines = subprocess.run(
                [sys.argv[1], "--model", path, "--quiet", "--device", "cpu", "--kv", "f32", "--threads", "1", "--guesses", "always",
                 "--window", "2", "--no-repeats", "--json", "--max-new", "48", "--tokens", ",".join(map(str, prompt))],
                check=True, capture_output=True, text=True).stdout.splitlines()
            events = [e for e in map(json.loads, lines) if e["event"] == "token"]
            tokens = [e["token"] for e in events]
            ids = torch.tensor([prompt + tokens])
            with torch.no_grad():
                where = Where(model.c, torch.arange(ids.shape[1]).unsqueeze(0))
                guesses = model.logits(model.draft(ids, model.trunk(ids, where)[0], where)[0])[0].argmax(-1).tolist()
            i = 1
            while i + 1 < len(tokens):  # a token marked "guessed" is the one behind a guess that was right
                hit = guesses[len(prompt) + i - 1] == tokens[i]
                different += hit != events[i + 1]["guessed"]
                offered += 1
                right += hit
                i += 2 if hit else 1
    print(f"{offered} guesses, {right} right, {different} not as in the engine")
    assert offered and different <= offered // 50


if __name__ == "__main__":
    main()
