"""Short passages: questions on them, and questions that they do not answer."""
from ..chat import Example, user
from .recall import different_facts, passage

SKILL = "passage"


def make(rng, long):
    facts = different_facts(rng, rng.randint(2, 6))
    known = rng.random() < 0.65
    told = facts if known else facts[1:]
    text = passage(rng, rng.randint(20, 500), [f[0] for f in told])
    question, answer = facts[0][1], facts[0][2]
    ask = rng.choice(["Answer from this text.", "Use only this text.", "Read this and answer."])
    think = rng.random() < 0.4
    if known:
        reasoning, content = f"The text says: {facts[0][0]}", answer
        check = {"kind": "exact", "value": answer}
    else:
        reasoning, content = f"The text does not say it.", "The text does not say."
        check = {"kind": "contains", "value": ["does not say"]}
    return Example(SKILL, question + text, [user(f"{ask}\n\n{text}\n\n{question}")], content, reasoning if think else "", think=think,
                   check=check)
