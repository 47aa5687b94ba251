"""Public-domain prose out of Debian packages: python3 extract.py FOLDER > prose.txt, where FOLDER holds the unpacked packages
(apt-get download NAME, dpkg -x). One sentence a line, in the order of the book; an empty line between paragraphs.

    miscfiles   usr/share/state/us-constitution.gz, us-declaration.gz   public domain (government of the United States)
    dict-devil  usr/share/dictd/devil.dict.dz   Ambrose Bierce, The Devil's Dictionary (1911): public domain, copyright expired
"""
import gzip
import os
import re
import sys

FILES = ("usr/share/state/us-declaration.gz", "usr/share/state/us-constitution.gz", "usr/share/dictd/devil.dict.dz")


# What is said of peoples and of women in 1911 is not for a demonstration of 2026.
DATED = re.compile(r"negro|nigg|jew|chin(a|ese)|savage|indian|wom[ae]n|female|african|slave|race\b|wife|wives|girl|maid", re.IGNORECASE)


def paragraphs(text):
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        if any(line.startswith("    ") for line in lines):  # verse, and who wrote it
            continue
        yield re.sub(r"\s+", " ", re.sub(r"\{([A-Z ]+)\}", r"\1", block)).strip()


def sentences(paragraph):
    for s in re.split(r"(?<=[a-z)\"][.?!]) +(?=[A-Z\"])", paragraph):
        if 25 <= len(s) <= 280 and s.isascii() and s[-1] in ".?!\"" and s[0].isalpha() and not DATED.search(s):
            yield s


for name in FILES:
    with gzip.open(os.path.join(sys.argv[1], name), "rt", encoding="latin-1") as file:
        for paragraph in paragraphs(file.read()):
            found = list(sentences(paragraph))
            if found:
                print("\n".join(found) + "\n")
