"""Sentences of books in the public domain (texts/prose.txt; texts/extract.py says which and from which packages)."""
import os

with open(os.path.join(os.path.dirname(__file__), "texts", "prose.txt")) as file:
    SENTENCES = [line for line in file.read().split("\n") if line]


def prose(rng, count):
    """`count` sentences that follow each other."""
    first = rng.randrange(len(SENTENCES) - count)
    return SENTENCES[first:first + count]
