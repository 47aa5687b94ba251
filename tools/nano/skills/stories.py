"""Short stories from a grammar: who, where, what is wanted, what stands in the way, who helps, how it ends."""
from ..chat import Example, user
from ..words import ADJECTIVES, ANIMALS, JOBS, NAMES, OTHER, PLACES, THINGS, article

SKILL = "stories"

TRAITS = "brave shy clever lazy curious proud patient hungry lonely cheerful careful stubborn".split()


def story(rng, hero, place, thing):
    adjective, trait, helper, other = rng.choice(ADJECTIVES), rng.choice(TRAITS), rng.choice(NAMES), rng.choice(ANIMALS)
    the = f"the {hero}" if hero in ANIMALS + JOBS else hero
    The = the[0].upper() + the[1:]
    a_hero = f"{article(trait)} {hero}" if hero in ANIMALS + JOBS else f"{article(trait)} child called {hero}"
    pick = rng.choice
    begin = pick([f"Once there was {a_hero} who lived near the {place}.", f"Long ago {a_hero} lived by the {place}.",
                  f"In a house behind the {place} lived {a_hero}.", f"Every {pick(['morning', 'evening'])} {a_hero} walked to the {place}."])
    want = pick([f"{The} wanted nothing more than {article(adjective)} {thing}.", f"One day {the} lost {article(adjective)} {thing}.",
                 f"One {pick(['cold', 'warm', 'windy', 'quiet'])} day {the} found {article(adjective)} {thing}.",
                 f"{The} had heard of {article(adjective)} {thing} that could speak."])
    trouble = pick([f"But {article(other)} had taken it and would not give it back.", f"But the way was long and full of {pick(['stones', 'water', 'snow', 'thorns'])}.",
                    f"But nobody in the {pick(PLACES)} believed it.", f"But then the {pick(['rain', 'storm', 'wind', 'snow'])} came and the {place} was gone from sight.",
                    f"But {the} was too {trait} to ask for help."])
    turn = pick([f"{helper}, the {pick(JOBS)}, {pick(['heard', 'saw'])} this and came to help.", f"Then {article(other)} said: \"I know what to do. Follow me.\"",
                 f"{The} sat down and thought of the {pick(OTHER)}.", f"An old {pick(JOBS)} gave {the} {article(pick(THINGS))} and a piece of advice."])
    work = pick([f"Together they searched the {place} until night.", f"They waited {pick(['two', 'three', 'four', 'seven'])} days.",
                 f"{The} tried once, and again, and a third time.", f"They built {article(pick(THINGS))} out of {pick(['wood', 'paper', 'glass', 'iron', 'sand'])}."])
    end = pick([f"In the end the {thing} was found, and {the} shared it with everyone.", f"And so {the} learned that {pick(['a friend is worth more than gold', 'patience opens every door', 'asking is no shame', 'small steps go far'])}.",
                f"From that day on {the} was never {pick(['lonely', 'afraid', 'bored'])} again.", f"The {thing} still stands in the {place}, and people tell of it."])
    parts = [begin, want, trouble, turn, work, end]
    if rng.random() < 0.3:
        parts.pop(4)
    return " ".join(parts)


def make(rng, long):
    hero = rng.choice([rng.choice(ANIMALS), rng.choice(JOBS), rng.choice(NAMES)])
    place, thing = rng.choice(PLACES), rng.choice(THINGS)
    about = article(hero) if hero not in NAMES else hero
    asked = rng.choice([[hero], [hero, thing], [hero, place], [hero, place, thing]])
    extra = "".join({thing: f" and {article(thing)}", place: f" and the {place}"}[w] for w in asked[1:])
    question = rng.choice([f"Tell me a short story about {about}{extra}.", f"Write a story about {about}{extra}.",
                           f"Please tell a story about {about}{extra}.", f"I would like a little story about {about}{extra}."])
    text = story(rng, hero, place, thing)
    think = rng.random() < 0.2
    return Example(SKILL, question, [user(question)], text, f"A story with {', '.join(asked)}." if think else "", think=think,
                   check={"kind": "story", "value": asked})
