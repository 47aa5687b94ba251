"""JSON on request: from what is said, from a list, from a sentence. The value decides, not the layout."""
import json

from ..chat import Example, dump, user
from ..words import ADJECTIVES, COLOURS, JOBS, LEXICON, NAMES, THINGS, made_up_name

SKILL = "json"

FIELDS = {
    "name": lambda r: r.choice(NAMES), "age": lambda r: r.randint(1, 99), "city": made_up_name, "job": lambda r: r.choice(JOBS),
    "colour": lambda r: r.choice(COLOURS), "price": lambda r: round(r.randint(1, 9999) / 100, 2), "count": lambda r: r.randint(0, 999),
    "item": lambda r: r.choice(THINGS), "active": lambda r: r.random() < 0.5, "id": lambda r: r.randint(1, 99999),
    "title": lambda r: f"The {r.choice(ADJECTIVES)} {r.choice(THINGS)}", "email": lambda r: f"{r.choice(NAMES).lower()}@{r.choice(LEXICON)}.org",
    "year": lambda r: r.randint(1900, 2030), "tags": lambda r: r.sample(LEXICON, r.randint(1, 3)),
    "note": lambda r: r.choice([None, r.choice(LEXICON)]),
}


def spoken(value):
    if value is True or value is False:
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return " and ".join(value)
    return str(value)


def record(rng, low=1, high=5):
    return {k: FIELDS[k](rng) for k in rng.sample(list(FIELDS), rng.randint(low, high))}


def make(rng, long):
    way = rng.choice(["fields", "fields", "sentence", "list", "records", "nested", "lines"])
    if way == "fields":
        value = record(rng)
        parts = [f"{k} {spoken(v)}" for k, v in value.items()]
        text = rng.choice([", ".join(parts), " and ".join(parts), "; ".join(parts)])
        question = rng.choice([f"Give me a JSON object with {text}.", f"Write JSON: {text}", f"Make a JSON object: {text}.",
                               f"As JSON please: {text}"])
    elif way == "sentence":
        value = {"name": rng.choice(NAMES), "age": rng.randint(1, 99), "city": made_up_name(rng), "job": rng.choice(JOBS)}
        keys = rng.sample(list(value), rng.randint(2, 4))
        text = f"{value['name']} is {value['age']} years old, works as {value['job']} and lives in {value['city']}."
        value = {k: value[k] for k in keys}
        question = rng.choice([f"{text}\nReturn this as JSON with the keys {', '.join(keys)}.", f"Extract {', '.join(keys)} as JSON: {text}"])
    elif way == "list":
        value = rng.choice([lambda: rng.sample(LEXICON, rng.randint(2, 8)), lambda: [rng.randint(0, 999) for _ in range(rng.randint(2, 8))]])()
        question = rng.choice(["Write this as a JSON list: ", "As a JSON array: ", "Turn this into a JSON list: "]) + ", ".join(map(str, value))
    elif way == "records":
        keys = rng.sample(["name", "age", "job", "item", "count", "colour"], 2)
        value = [{k: FIELDS[k](rng) for k in keys} for _ in range(rng.randint(2, 4))]
        question = f"Make a JSON list of objects with the keys {keys[0]} and {keys[1]}:\n" + "\n".join(
            f"{row[keys[0]]}, {row[keys[1]]}" for row in value)
    elif way == "nested":
        inner, name = record(rng, 1, 3), rng.choice(THINGS)
        value = {name: inner}
        question = f"Write a JSON object with the key {name} whose value is an object with {', '.join(f'{k} {spoken(v)}' for k, v in inner.items())}."
    else:
        value = record(rng, 2, 5)
        question = rng.choice(["Turn these lines into JSON:", "Convert to JSON:"]) + "\n" + "\n".join(f"{k}: {spoken(v)}" for k, v in value.items())
    # A colour of list values spoken as one thing is told apart by its key: tags are always a list.
    layout = rng.random()
    content = dump(value)
    if layout < 0.15:
        question += rng.choice([" Indent it.", " Over several lines."])
        content = json.dumps(value, indent=2, ensure_ascii=False)
    think = rng.random() < 0.2
    return Example(SKILL, question, [user(question)], content, "The answer is JSON alone." if think else "", think=think,
                   check={"kind": "json", "value": value})
