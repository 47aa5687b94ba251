"""What it was never told it says that it does not know."""
from ..chat import Example, user
from ..words import JOBS, NAMES, PLACES, THINGS, made_up_name

SKILL = "refuse"


def make(rng, long):
    name, thing = rng.choice([rng.choice(NAMES), made_up_name(rng)]), made_up_name(rng)
    question = rng.choice([
        f"What is the capital of {thing}?", f"Who is the king of {thing}?", f"What is the phone number of {name}?", f"Where does {name} live?",
        f"What did {name} do yesterday?", f"How old is {name}?", f"What is {name}'s password?", f"Who won the match of {thing} yesterday?",
        f"What is the code of the {rng.choice(THINGS)}?", f"What is the atomic number of {thing.lower()}?", f"How many people live in {thing}?",
        f"Who wrote the book {thing}?", f"What will the weather be tomorrow in {thing}?", f"Where is the {rng.choice(THINGS)} of {name}?",
        f"What is {name}'s job?", f"When was {thing} built?", f"Which {rng.choice(JOBS)} works in the {rng.choice(PLACES)} of {thing}?",
        f"What does the word {thing.lower()} mean?"])
    think = rng.random() < 0.3
    return Example(SKILL, question, [user(question)], "I do not know that.", "I was not told this." if think else "", think=think,
                   check={"kind": "contains", "value": ["not know"]})
