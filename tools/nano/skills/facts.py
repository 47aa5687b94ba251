"""The table of facts. All facts are learnt; which ways of asking which fact are held out depends on the question's text."""
from ..chat import Example, user
from ..facts import all_facts
from ..words import article

SKILL = "facts"

FACTS = all_facts()

WAYS = {
    "capital": ["What is the capital of {}?", "Which city is the capital of {}?", "Capital of {}?", "Name the capital of {}.",
                "Tell me the capital city of {}.", "What's the capital of {}?", "Do you know the capital of {}?",
                "{} has which capital?"],
    "country": ["{} is the capital of which country?", "Which country has {} as its capital?", "What country is {} the capital of?",
                "Of which country is {} the capital?", "Name the country whose capital is {}.", "{} is the capital of what?"],
    "symbol": ["What is the chemical symbol of {}?", "Which symbol does {} have?", "Symbol for {}?", "What is the symbol for the element {}?",
               "Give me the chemical symbol for {}.", "How is {} written in chemistry?"],
    "element": ["Which element has the symbol {}?", "What does {} stand for in chemistry?", "Name the element {}.", "Which element is {}?",
                "What element does the symbol {} mean?"],
    "number": ["What is the atomic number of {}?", "Atomic number of {}?", "Which number does the element {} have?",
               "Tell me the atomic number of {}.", "What number is {} in the periodic table?"],
    "planet": ["Which planet is the {} from the Sun?", "What is the {} planet?", "Name the {} planet of the solar system.",
               "Which is the {} planet counted from the Sun?"],
    "place": ["Which planet from the Sun is {}?", "What is the place of {} among the planets?", "Counted from the Sun, which planet is {}?"],
    "young": ["What is a young {} called?", "What do you call a baby {}?", "Name for a young {}?", "What is the name of a {}'s young?"],
    "count": ["How many {}?", "Tell me how many {}.", "What is the number of {}?", "Number of {}?", "Do you know how many {}?"],
}


def sentence(kind, subject, value):
    return {
        "capital": f"The capital of {subject} is {value}.", "country": f"{subject} is the capital of {value}.",
        "symbol": f"The chemical symbol of {subject} is {value}.", "element": f"{subject} is the symbol of {value}.",
        "number": f"The atomic number of {subject} is {value}.", "planet": f"The {subject} planet is {value}.",
        "place": f"{subject} is the {value} planet.", "young": f"{article('young ' + subject).capitalize()} is called {article(value)}.",
        "count": f"{value}.",
    }[kind]


def make(rng, long):
    kind, subject, value = rng.choice(FACTS)
    way = rng.choice(WAYS[kind])
    question = way.format(subject)
    if rng.random() < 0.15:
        question = question[0].lower() + question[1:]
    think = rng.random() < 0.3
    short = rng.random() < 0.2
    if short:
        question += rng.choice([" One word.", " Only the answer.", " Answer briefly."])
    content = value if short else sentence(kind, subject, value)
    return Example(SKILL, f"{kind} {subject} {way}", [user(question)], content,
                   sentence(kind, subject, value) if think else "", think=think,
                   check={"kind": "contains", "value": [value]})
