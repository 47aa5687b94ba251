"""Our program's prompts are the training's: the file's template through our Jinja and the file's tokenizer through ours give
chat.py's text in tokenizer.py's ids.

Run from tools/: python3 -m nano.tests.text_check POLYSTRATA MODEL.gguf TOKENIZER [COUNT]"""
import json
import os
import random
import subprocess
import sys
import tempfile

from .. import chat, data
from ..skills import SHARES
from ..tokenizer import Tokenizer


def main():
    program, model, tokenizer = sys.argv[1], sys.argv[2], Tokenizer.load(sys.argv[3])
    rng = random.Random(11)
    count = 0
    for maker, _ in SHARES[:int(sys.argv[4]) if len(sys.argv) > 4 else None]:
        e = maker(rng, 0.2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "messages.json")
            with open(path, "w") as file:
                json.dump({"messages": chat.openai_messages(e.messages), "tools": e.tools or None}, file)
            out = subprocess.run([program, "render", "--model", model, "--messages", path, "--think", "on" if e.think else "off", "--ids"],
                                 check=True, capture_output=True, text=True).stdout
        want = tokenizer.encode(data.text_of(e)[0])
        got = [int(x) for x in out.split()]
        assert got == want, (e.skill, tokenizer.decode(got), tokenizer.decode(want))
        count += 1
    print(f"{count} prompts are the same")


if __name__ == "__main__":
    main()
