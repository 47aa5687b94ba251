"""A byte-level BPE with the `qwen35` split: learning it, and encoding with it. Source: docs/tokenizers.md.

A vocabulary is 256 byte pieces, what the merges make, and the special tokens at the end (texts and roles as Qwen's).
"""
import json
from collections import Counter, defaultdict

try:
    import regex
except ImportError:  # the tests here need no \p{..} beyond this module
    regex = None

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

# Text, and whether it is control (never shown) or user-defined (part of the text).
SPECIAL = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<|vision_start|>", True),
           ("<|vision_end|>", True), ("<|vision_pad|>", True), ("<|image_pad|>", True), ("<tool_call>", False),
           ("</tool_call>", False), ("<tool_response>", False), ("</tool_response>", False), ("<think>", False),
           ("</think>", False)]
NORMAL, CONTROL, USER = 1, 3, 4  # GGUF's token types


def byte_characters():
    """The character that stands for each byte."""
    out, following = [], 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            out.append(chr(byte))
        else:
            out.append(chr(following))
            following += 1
    return out


BYTES = byte_characters()


def piece_text(piece):
    """Bytes as the characters that stand for them."""
    return "".join(BYTES[b] for b in piece)


class Tokenizer:
    def __init__(self, merges):
        """merges: pairs of bytes objects, the first learnt first."""
        self.merges = merges
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.pieces = [bytes([b]) for b in range(256)] + [a + b for a, b in merges]
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.special = {text: len(self.pieces) + i for i, (text, _) in enumerate(SPECIAL)}
        self.size = len(self.pieces) + len(SPECIAL)
        self.end = self.special["<|im_end|>"]
        self.cache = {}
        self.split = regex.compile(SPLIT)
        self.split_special = regex.compile("(" + "|".join(regex.escape(t) for t, _ in SPECIAL) + ")")

    def encode_word(self, word):
        parts = [bytes([b]) for b in word.encode()]
        while len(parts) > 1:
            best = min((self.rank.get(pair, len(self.rank)) for pair in zip(parts, parts[1:])))
            if best == len(self.rank):
                break
            a, b = self.merges[best]
            out, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and parts[i] == a and parts[i + 1] == b:
                    out.append(a + b)
                    i += 2
                else:
                    out.append(parts[i])
                    i += 1
            parts = out
        return [self.ids[p] for p in parts]

    def encode(self, text):
        out = []
        for part in self.split_special.split(text):
            if part in self.special:
                out.append(self.special[part])
                continue
            for word in self.split.findall(part):
                ids = self.cache.get(word)
                if ids is None:
                    ids = self.encode_word(word)
                    if len(self.cache) < 400000:
                        self.cache[word] = ids
                out += ids
        return out

    def decode(self, ids):
        out = b""
        for i in ids:
            out += self.pieces[i] if i < len(self.pieces) else SPECIAL[i - len(self.pieces)][0].encode()
        return out.decode("utf-8", "replace")

    def save(self, path):
        with open(path, "w") as file:
            json.dump([[piece_text(a), piece_text(b)] for a, b in self.merges], file, ensure_ascii=False)

    @staticmethod
    def load(path):
        byte = {c: b for b, c in enumerate(BYTES)}
        back = lambda text: bytes(byte[c] for c in text)
        with open(path) as file:
            return Tokenizer([(back(a), back(b)) for a, b in json.load(file)])


def learn(texts, size):
    """A tokenizer of `size` pieces, the special ones included. The same texts give the same merges: among pairs that are
    equally frequent the one whose bytes come first in order is taken."""
    split = regex.compile(SPLIT)
    special = regex.compile("|".join(regex.escape(t) for t, _ in SPECIAL))
    words = Counter()
    for text in texts:
        for part in special.split(text):
            words.update(split.findall(part))
    parts = [[bytes([b]) for b in word.encode()] for word in words]
    counts = list(words.values())
    pairs, places = Counter(), defaultdict(set)
    for i, word in enumerate(parts):
        for pair in zip(word, word[1:]):
            pairs[pair] += counts[i]
            places[pair].add(i)
    merges = []
    made = {bytes([b]) for b in range(256)}
    while len(merges) < size - 256 - len(SPECIAL) and pairs:
        count = max(pairs.values())
        a, b = min(p for p, n in pairs.items() if n == count)
        if count < 2:
            break
        merged = a + b
        if merged in made:  # another cut of a piece that is there already
            del pairs[(a, b)]
            continue
        made.add(merged)
        merges.append((a, b))
        for i in sorted(places.pop((a, b))):
            word = parts[i]
            for pair in zip(word, word[1:]):
                pairs[pair] -= counts[i]
            out, j = [], 0
            while j < len(word):
                if j + 1 < len(word) and word[j] == a and word[j + 1] == b:
                    out.append(merged)
                    j += 2
                else:
                    out.append(word[j])
                    j += 1
            parts[i] = out
            for pair in zip(out, out[1:]):
                pairs[pair] += counts[i]
                places[pair].add(i)
        pairs = +pairs
    return Tokenizer(merges)
