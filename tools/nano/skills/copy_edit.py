"""Copying a text of the prompt, and editing it."""
import re

from ..chat import Example, user
from ..prose import prose
from ..words import LEXICON, NAMES, code, made_up, noise, sentence

SKILL = "copy_edit"


def text_of(rng, long):
    r = rng.random()
    if r < 0.35:
        return noise(rng, int(3 * 40 ** (rng.random() * (0.5 + long / 2))))
    if r < 0.5:
        return rng.choice([" ", "\n"]).join(prose(rng, rng.randint(1, 2 + int(4 * long))))
    if r < 0.75:
        return rng.choice([" ", "\n"]).join(sentence(rng) for _ in range(rng.randint(1, 3 + int(9 * long))))
    if r < 0.9:
        return code_text(rng)
    return "\n".join(f"{made_up(rng)}: {code(rng)}" for _ in range(rng.randint(2, 4 + int(12 * long))))


def code_text(rng):
    a, b, f = rng.choice(LEXICON), rng.choice("nmkxyz"), made_up(rng)
    return rng.choice([
        f"def {f}({a}, {b}):\n    for i in range({b}):\n        {a}.append(i * {rng.randint(2, 99)})\n    return {a}\n",
        f"int {f}(int {a}) {{\n    if ({a} > {rng.randint(1, 99)}) return {a} - {b};\n    return {a} + {rng.randint(1, 99)};\n}}",
        f"let {a} = {rng.randint(1, 999)};\nlet {b} = {a} * {rng.randint(2, 20)};\nprint({a} + {b});",
        f"while {a} < {rng.randint(10, 500)}:\n    {a} = {a} + {f}({b})\nprint({a})",
        f"<div class=\"{f}\">\n  <p id=\"{a}\">{sentence(rng)}</p>\n</div>",
    ]).strip()


def copy(rng, long):
    text = text_of(rng, long)
    ask = rng.choice(["Repeat this text exactly:", "Copy this:", "Write this again, word for word:", "Repeat after me:",
                      "Give this text back unchanged:", "Copy the following text exactly."])
    return ask, text, text


def replace(rng, long):
    """One word for another, everywhere."""
    for _ in range(20):
        text = text_of(rng, long)
        words = [w for w in text.replace("\n", " ").split() if w.isalpha() and len(w) > 2]
        if not words:
            continue
        old = rng.choice(words)
        new = rng.choice([rng.choice(LEXICON), rng.choice(NAMES), made_up(rng)])
        result = re.sub(rf"(?<![A-Za-z0-9]){re.escape(old)}(?![A-Za-z0-9])", new, text)
        if old != new and result.count(new) < 9 and text.count(old) == len(
                re.findall(rf"(?<![A-Za-z0-9]){re.escape(old)}(?![A-Za-z0-9])", text)):
            ask = rng.choice([f"Replace \"{old}\" with \"{new}\" in this text:", f"In the text below, change {old} to {new}.",
                              f"Write this text again with {new} instead of {old}:", f"Rename {old} to {new}:"])
            return ask, text, result
    return copy(rng, long)


def lines(rng, long):
    rows = [rng.choice([sentence, lambda r: noise(r, 4).replace("\n", " "), lambda r: r.choice(LEXICON)])(rng)
            for _ in range(rng.randint(2, 4 + int(8 * long)))]
    way = rng.choice(["number", "dash", "quote", "join", "first", "last", "drop", "reverse"])
    text = "\n".join(rows)
    if way == "number":
        return rng.choice(["Number these lines:", "Put a number before each line:"]), text, "\n".join(
            f"{i}. {r}" for i, r in enumerate(rows, 1))
    if way == "dash":
        return rng.choice(["Make this a list with dashes:", "Put a dash before each line:"]), text, "\n".join("- " + r for r in rows)
    if way == "quote":
        return rng.choice(["Put \"> \" before each line:", "Quote these lines:"]), text, "\n".join("> " + r for r in rows)
    if way == "join":
        return rng.choice(["Join these lines into one:", "Put these lines on one line:"]), text, " ".join(rows)
    if way == "first":
        return rng.choice(["Give me only the first line:", "Copy the first line of this:"]), text, rows[0]
    if way == "last":
        return rng.choice(["Give me only the last line:", "Copy the last line of this:"]), text, rows[-1]
    if way == "drop":
        return rng.choice(["Remove the first line:", "Write this without its first line:"]), text, "\n".join(rows[1:])
    return rng.choice(["Write these lines in reverse order:", "Turn the order of these lines around:"]), text, "\n".join(rows[::-1])


def letters(rng, long):
    words = [rng.choice(LEXICON) for _ in range(rng.randint(1, 8))]
    text = " ".join(words)
    way = rng.choice(["upper", "lower", "title"])
    if way == "upper":
        return rng.choice(["Write this in capital letters:", "Make this upper case:"]), text, text.upper()
    if way == "lower":
        return rng.choice(["Write this in small letters:", "Make this lower case:"]), text.upper(), text
    return rng.choice(["Begin every word with a capital letter:", "Write this in title case:"]), text, " ".join(w.capitalize() for w in words)


def remove(rng, long):
    for _ in range(20):
        words = sentence(rng).split()
        plain = [w for w in words if w.isalpha() and words.count(w) == 1]
        if plain:
            word = rng.choice(plain)
            return rng.choice([f"Remove the word \"{word}\":", f"Write this without the word {word}:"]), " ".join(words), " ".join(
                w for w in words if w != word)
    return copy(rng, long)


def make(rng, long):
    ask, text, result = rng.choice([copy, copy, copy, replace, replace, lines, lines, letters, remove])(rng, long)
    prompt = f"{ask}\n{text}" if rng.random() < 0.7 else f"{ask}\n\n{text}"
    think = rng.random() < 0.2
    return Example(SKILL, f"{ask} {text}", [user(prompt)], result, "I write the text as asked." if think else "", think=think,
                   check={"kind": "exact", "value": result})
