"""The tokenizer: python3 -m nano.prepare FOLDER (writes FOLDER/tokenizer.json). The same program gives the same file."""
import os
import random
import sys

from . import data
from .tokenizer import learn


def main():
    folder = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    rng = random.Random(20261201)
    tokenizer = learn(("".join(data.text_of(data.draw(rng, 0.2))) for _ in range(count)), size)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    print(f"{tokenizer.size} pieces")


if __name__ == "__main__":
    main()
