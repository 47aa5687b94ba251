"""Examples drawn, split into training and held-out, turned into tokens and packed."""
import hashlib
import random

import numpy as np

from .chat import answer_text, dump, openai_messages, prompt_text
from .skills import SHARES

HELD_OUT = 20  # one key in so many


def held_out(example):
    if not example.key:
        return False
    digest = hashlib.sha256(f"{example.skill}\n{example.key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT == 0


def draw(rng, long, held=False):
    makers, shares = zip(*SHARES)
    maker = rng.choices(makers, shares)[0]
    while True:
        example = maker(rng, long)
        if held_out(example) == held:
            return example


def of_skill(rng, maker, long, held=True):
    for _ in range(100000):
        example = maker(rng, long)
        if held_out(example) == held:
            return example
    raise RuntimeError("no example on this side of the split")


def text_of(example):
    return prompt_text(example.messages, example.tools, example.think), answer_text(example)


def tokens_of(tokenizer, example):
    """(ids, weights): weights[i] is how much it counts that token i is guessed from those before it."""
    prompt, answer = (tokenizer.encode(t) for t in text_of(example))
    # The prompt teaches the language too, but altogether no more than half of what the answer does.
    share = min(0.1, 0.5 * len(answer) / len(prompt))
    return prompt + answer, [share] * len(prompt) + [example.weight] * len(answer)


class Packer:
    """Rows of `length` tokens filled with whole documents; what is left is padding of weight 0, a document of its own."""

    def __init__(self, tokenizer, seed, length):
        self.tokenizer, self.length = tokenizer, length
        self.rng = random.Random(seed)
        self.waiting = []

    def document(self, long):
        while True:
            ids, weights = tokens_of(self.tokenizer, draw(self.rng, long))
            if len(ids) <= self.length:
                return ids, weights

    def row(self, long):
        ids, weights, start = [], [], []
        misses = 0
        pool, self.waiting = self.waiting, []
        while misses < 12 and len(ids) < self.length:
            document = pool.pop() if pool else self.document(long)
            if len(ids) + len(document[0]) > self.length:
                self.waiting.append(document)
                misses += 1
                continue
            ids += document[0]
            weights += document[1]
            weights[-len(document[0])] = 0.0  # a document's first token is not guessed
            start += range(len(document[0]))
        rest = self.length - len(ids)
        end = self.tokenizer.special["<|endoftext|>"]
        return ids + [end] * rest, weights + [0.0] * rest, start + list(range(rest))

    def batch(self, rows, long):
        """ids (uint16), weights (float16), start (uint16): [rows, length]"""
        a, b, c = zip(*(self.row(long) for _ in range(rows)))
        return np.array(a, np.uint16), np.array(b, np.float16), np.array(c, np.uint16)


def prompt_line(example, number):
    """A line of a prompts file: docs/commands.md, `eval`."""
    line = {"skill": example.skill, "id": f"{example.skill}-{number}", "messages": openai_messages(example.messages)}
    if example.tools:
        line["tools"] = example.tools
    line["think"] = "on" if example.think else "off"
    line["max_new"] = 400
    line["check"] = example.check
    return dump(line)


LONGEST = 7700  # tokens of a held-out prompt: the answer must fit the context behind it


def held_out_set(tokenizer, seed, each):
    """`each` held-out examples of every skill: recall evenly over lengths, one question each."""
    from .skills import recall
    out = []
    for maker, _ in SHARES:
        rng = random.Random(f"{seed} {maker.__module__}")
        for i in range(each):
            make = maker
            if maker is recall.make:
                length = int(400 * 78 ** (i / max(each - 1, 1)))
                make = lambda r, long: recall.make(r, long, questions=1, length=length)
            example = of_skill(rng, make, 1.0)
            while len(tokenizer.encode(text_of(example)[0])) > LONGEST:
                example = of_skill(rng, make, 1.0)
            out.append(example)
    return out
