"""Conversations that refer to what was said before."""
from ..chat import Example, assistant, user
from ..words import COLOURS, JOBS, LEXICON, NAMES, THINGS, made_up_name
from . import arithmetic, facts, identity, word_tasks

SKILL = "multi_turn"


def told(rng):
    """(what the user says, the reply, a later question, its answer)"""
    kind = rng.randrange(6)
    if kind == 0:
        n = rng.choice([rng.choice(NAMES), made_up_name(rng)])
        return rng.choice([f"My name is {n}.", f"I am {n}.", f"Call me {n}."]), f"Nice to meet you, {n}.", rng.choice(
            ["What is my name?", "Who am I?", "Do you remember my name?"]), f"Your name is {n}.", n
    if kind == 1:
        t = made_up_name(rng)
        return rng.choice([f"I live in {t}.", f"My home is {t}."]), f"{t}, I will remember that.", "Where do I live?", f"You live in {t}.", t
    if kind == 2:
        c = rng.choice(COLOURS)
        return f"My favourite colour is {c}.", f"{c.capitalize()} is a fine colour.", "What is my favourite colour?", f"Your favourite colour is {c}.", c
    if kind == 3:
        j = rng.choice(JOBS)
        return f"I work as {j}.", "That sounds interesting.", rng.choice(["What is my job?", "What do I work as?"]), f"You work as {j}.", j
    if kind == 4:
        n = str(rng.randint(10, 99999))
        return rng.choice([f"Remember the number {n}.", f"My number is {n}."]), "I will remember it.", rng.choice(
            ["Which number did I tell you?", "What was the number?"]), f"The number is {n}.", n
    t = rng.choice(THINGS)
    return f"I bought a new {t} today.", "Enjoy it!", "What did I buy today?", f"You bought a new {t}.", t


def other_turn(rng):
    """A turn about something else, as it stands in a history: without its reasoning."""
    e = rng.choice([arithmetic.make, facts.make, identity.make, word_tasks.make])(rng, 0)
    return [*e.messages, assistant(e.content)]


def make(rng, long):
    think = rng.random() < 0.3
    kind = rng.random()
    if kind < 0.5:
        turns, later = [], []
        for _ in range(rng.randint(1, 3)):
            say, reply, question, answer, value = told(rng)
            if question in [q for q, _, _ in later] or answer.split(" is ")[0] in [a.split(" is ")[0] for _, a, _ in later]:
                continue
            turns.append([user(say), assistant(reply)])
            later.append((question, answer, value))
        turns += [other_turn(rng) for _ in range(rng.randint(0, 2))]
        rng.shuffle(turns)
        question, answer, value = rng.choice(later)
        messages = [m for t in turns for m in t] + [user(question)]
        return Example(SKILL, question + answer + str(len(messages)), messages, answer, "The user told me this." if think else "",
                       think=think, check={"kind": "contains", "value": [value]})
    if kind < 0.75:  # go on from a number
        a, b, c = rng.randint(1, 99), rng.randint(1, 99), rng.randint(1, 99)
        op = rng.choice(["plus", "minus"]) if a + b > c else "plus"
        messages = [user(rng.choice([f"What is {a} + {b}?", f"Add {a} and {b}."])), assistant(str(a + b)),
                    user(rng.choice([f"And {op} {c}?", f"Now {op} {c}.", f"{op.capitalize()} {c}?"]))]
        result = str(a + b + c if op == "plus" else a + b - c)
        steps = arithmetic.add_steps(a + b, c) if op == "plus" else arithmetic.subtract_steps(a + b, c)
        return Example(SKILL, f"{a}+{b} {op} {c}", messages, result, steps if think else "", think=think, check={"kind": "ends", "value": result})
    words = rng.sample(LEXICON, rng.randint(2, 5))
    messages = [user(rng.choice(["Repeat these words: ", "Write these words: "]) + ", ".join(words)), assistant(", ".join(words))]
    way = rng.choice(["reverse", "capital", "last", "first", "again", "add"])
    extra = rng.choice([w for w in LEXICON if w not in words])
    question, result = {
        "reverse": ("Now in reverse order.", ", ".join(words[::-1])), "capital": ("Now in capital letters.", ", ".join(words).upper()),
        "last": ("Which was the last one?", words[-1]), "first": ("Which was the first one?", words[0]),
        "again": ("Once more, please.", ", ".join(words)), "add": (f"Now add {extra} at the end.", ", ".join(words + [extra])),
    }[way]
    return Example(SKILL, way + " ".join(words), messages + [user(question)], result, "I take the words from above." if think else "",
                   think=think, check={"kind": "exact", "value": result})
