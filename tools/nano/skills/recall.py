"""A fact placed anywhere in a text of up to 8,000 tokens, asked for at its end. In training a text has several facts, and
often several questions, so that a long text teaches more than one answer; held-out prompts ask one."""
from ..chat import Example, user
from ..prose import prose
from ..words import (COLOURS, JOBS, LEXICON, NAMES, PLACES, THINGS, article, code, made_up_name, noise, sentence)

SKILL = "recall"


def person(rng):
    return rng.choice([rng.choice(NAMES), made_up_name(rng)])


def fact(rng):
    """(statement, question, answer, what it is about)"""
    kind = rng.randrange(7)
    if kind == 0:
        thing, value = f"{rng.choice(COLOURS)} {rng.choice(THINGS)}", code(rng)
        return (rng.choice([f"The code of the {thing} is {value}.", f"The {thing} has the code {value}."]),
                rng.choice([f"What is the code of the {thing}?", f"Which code does the {thing} have?"]), value, thing + " code")
    if kind == 1:
        who, job = person(rng), rng.choice(JOBS)
        return (rng.choice([f"{who} works as {article(job)}.", f"{who} is {article(job)}."]),
                rng.choice([f"What is {who}'s job?", f"What does {who} work as?"]), job, who + " job")
    if kind == 2:
        who, town = person(rng), made_up_name(rng)
        return (rng.choice([f"{who} lives in {town}.", f"The home of {who} is in {town}."]),
                rng.choice([f"Where does {who} live?", f"In which town does {who} live?"]), town, who + " town")
    if kind == 3:
        thing, place = f"{rng.choice(COLOURS)} {rng.choice(THINGS)}", rng.choice(PLACES)
        return (rng.choice([f"The {thing} is hidden in the {place}.", f"Someone left the {thing} in the {place}."]),
                rng.choice([f"Where is the {thing}?", f"In which place is the {thing}?"]), place, thing + " place")
    if kind == 4:
        who, number = person(rng), "".join(rng.choice("0123456789") for _ in range(rng.randint(4, 7)))
        return (rng.choice([f"The phone number of {who} is {number}.", f"You can reach {who} at {number}."]),
                rng.choice([f"What is the phone number of {who}?", f"Which phone number has {who}?"]), number, who + " phone")
    if kind == 5:
        word = rng.choice(LEXICON)
        who = person(rng)
        return (f"The password of {who} is {word}.", rng.choice([f"What is the password of {who}?", f"Which password has {who}?"]),
                word, who + " password")
    who, colour = person(rng), rng.choice(COLOURS)
    return (f"The favourite colour of {who} is {colour}.", rng.choice([f"What is {who}'s favourite colour?", f"Which colour does {who} like best?"]),
            colour, who + " colour")


def passage(rng, length, facts):
    """About `length` characters of plain text, from books in a fifth of cases, with the statements at random places."""
    filler, size = [], 0
    kind = rng.choice(["book", "plain", "plain", "plain", "noise"])
    while size < length:
        parts = prose(rng, rng.randint(1, 12)) if kind == "book" else [
            noise(rng, 8) if kind == "noise" and rng.random() < 0.3 else sentence(rng)]
        filler += parts
        size += sum(len(part) + 1 for part in parts)
    for statement in facts:
        filler.insert(rng.randint(0, len(filler)), statement)
    out, paragraph = [], []
    for part in filler:
        paragraph.append(part)
        if rng.random() < 0.12:
            out.append(" ".join(paragraph))
            paragraph = []
    if paragraph:
        out.append(" ".join(paragraph))
    return "\n\n".join(out)


def different_facts(rng, count):
    out, seen = [], set()
    while len(out) < count:
        f = fact(rng)
        if f[3] not in seen:
            seen.add(f[3])
            out.append(f)
    return out


def make(rng, long, questions=None, length=None):
    if length is None:  # characters: from 100 to 1,000, or to 33,000 in the end, even by the logarithm
        length = int(100 * 10 ** (rng.random() * (1 + 1.52 * long)))
    count = min(2 + length // 400, 24)
    if questions is None:
        questions = rng.choice([1, 1, 2, 3]) if length < 3000 else rng.choice([1, 4, 8, 8])
    facts = different_facts(rng, max(count, questions))
    text = passage(rng, length, [f[0] for f in facts])
    asked = rng.sample(facts, questions)
    if questions == 1:
        question, answer = asked[0][1], asked[0][2]
    else:
        question = "Answer these questions:\n" + "\n".join(f"{i}. {f[1]}" for i, f in enumerate(asked, 1))
        answer = "\n".join(f"{i}. {f[2]}" for i, f in enumerate(asked, 1))
    prompt = rng.choice([f"{text}\n\n{question}", f"Read this text:\n\n{text}\n\n{question}", f"Text:\n{text}\n\nQuestion: {question}"])
    think = rng.random() < 0.25
    reasoning = "\n".join(f"The text says: {f[0]}" for f in asked)
    return Example(SKILL, asked[0][0] + str(len(text)), [user(prompt)], answer, reasoning if think else "", think=think,
                   check={"kind": "exact", "value": answer}, weight=min(1 + len(text) / 4000, 6))
