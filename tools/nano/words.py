"""The small world that the skills speak of, and words that mean nothing."""

NAMES = """Ada Ben Clara David Emma Felix Grace Hugo Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tara Victor Wendy Anna
Boris Carla Daniel Elena Frank Gina Henry Ida Jonas Kira Lucas Maria Nina Oscar Petra Quinn Rita Simon Tessa Ursula Vera
Walter Yara Zoe Adam Bella Cora Dora Eric Fiona George Hanna Ivan Julia Karl Laura Martin Nora Otto Peter Ruth Sofia Tom
Uma Vince Willa Xander Yusuf Zara Amir Chen Diego Fatima Hana Kofi Lina Mateo Priya Ravi""".split()

ANIMALS = """fox owl cat dog bear wolf mouse rabbit horse goat sheep duck goose frog turtle deer otter badger crow sparrow
lion tiger camel donkey hen pig cow eagle whale seal bee ant spider snail lizard monkey parrot squirrel hedgehog
swan""".split()

THINGS = """lamp key book chair table cup plate spoon knife basket rope ladder hammer nail bucket broom candle mirror clock
coin ring hat coat shoe glove scarf bag box bottle jar map letter pen brush drum flute bell kite ball boat wagon wheel
stone shell feather leaf seed flower apple pear plum lemon onion carrot potato bread cheese butter honey salt sugar rice
soup cake pie egg milk tea coffee blanket pillow window door curtain carpet shelf drawer button needle thread ribbon
umbrella helmet sword shield crown lantern anchor compass telescope violin piano guitar trumpet camera radio engine
battery cable screw pump""".split()

ADJECTIVES = """red blue green yellow white black brown grey small big old new tall short long round heavy light soft hard
warm cold bright dark clean dusty broken shiny quiet loud strange plain golden silver wooden rusty narrow wide deep thin
thick sharp smooth rough wet dry sweet bitter fresh""".split()

COLOURS = "red blue green yellow white black brown grey purple orange pink silver golden".split()

PLACES = """garden kitchen cellar attic barn forest meadow river harbour market library school museum station bridge tower
castle village valley mountain island beach cave mill bakery workshop office hospital theatre park field orchard pond
lighthouse stable""".split()

JOBS = """baker teacher doctor farmer sailor painter miller singer writer nurse pilot tailor smith gardener cook judge
carpenter clerk driver engineer hunter librarian mason mechanic plumber potter shepherd tutor weaver waiter""".split()

VERBS = """walks runs sings reads writes draws paints cooks sleeps waits laughs listens works plays swims climbs dances
travels studies whispers""".split()

OTHER = """morning evening winter summer spring autumn rain snow wind cloud storm sun moon star sky sea lake hill road path
wall roof floor fire smoke water ice sand earth iron glass paper cotton wool silk leather number answer question story
song game dream secret promise mistake reason result problem system program machine signal pattern message memory
language history music science""".split()

LEXICON = sorted(set(ANIMALS + THINGS + ADJECTIVES + PLACES + JOBS + OTHER))

MONTHS = """January February March April May June July August September October November December""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

SYLLABLES = [a + b for a in "b d f g h k l m n p r s t v z br dr kl pr st tr sh ch".split() for b in
             "a e i o u an en in on ar or el ai ou".split()]


def made_up(rng, most=3):
    """A word that is in no list."""
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, most)))


def made_up_name(rng):
    return made_up(rng).capitalize()


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def code(rng):
    """Something to remember: digits, or letters and digits."""
    if rng.random() < 0.6:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 6)))
    return "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(2)) + "-" + str(rng.randint(10, 999))


SIGNS = list("()[]{}<>=+-*/%&|!?;:,.#@$_~^'\"\\")


def noise(rng, words):
    """Text without sense, for copying: known words, made-up words, numbers, signs, upper case."""
    out = []
    for _ in range(words):
        r = rng.random()
        if r < 0.4:
            word = rng.choice(LEXICON)
        elif r < 0.6:
            word = made_up(rng)
        elif r < 0.7:
            word = rng.choice(NAMES)
        elif r < 0.8:
            word = code(rng)
        elif r < 0.87:
            word = str(rng.randint(0, 9999))
        elif r < 0.93:
            word = "".join(rng.choice(SIGNS) for _ in range(rng.randint(1, 3)))
        elif r < 0.97:
            word = rng.choice(LEXICON).upper()
        else:
            word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 9)))
        if rng.random() < 0.08:
            word += rng.choice([",", ".", ";", ":", "!", "?"])
        out.append(word)
        out.append("\n" if rng.random() < 0.03 else " ")
    return "".join(out).strip()


def sentence(rng):
    """Something that a plain text may say."""
    n, a, t, p, j = (rng.choice(x) for x in (NAMES, ADJECTIVES, THINGS, PLACES, JOBS))
    return rng.choice([
        lambda: f"{n} put the {a} {t} on the shelf in the {p}.",
        lambda: f"The {j} {rng.choice(VERBS)} near the {p} every {rng.choice(['morning', 'evening', 'day'])}.",
        lambda: f"In the {p} there was {article(a)} {t}, and nobody knew whose it was.",
        lambda: f"{n} and {rng.choice(NAMES)} met at the {p} and talked about the {rng.choice(OTHER)}.",
        lambda: f"{article(rng.choice(ANIMALS)).capitalize()} slept under the {a} {t}.",
        lambda: f"On {rng.choice(DAYS)} the {p} was {rng.choice(['closed', 'full of people', 'very quiet', 'open late'])}.",
        lambda: f"{n} sold {rng.randint(2, 90)} {t}s to the {j}.",
        lambda: f"The {rng.choice(OTHER)} was {a}, so the {j} went home.",
        lambda: f"Nobody in the {p} had seen such {article(a)} {rng.choice(ANIMALS)} before.",
        lambda: f"{n} likes the {rng.choice(OTHER)} of {rng.choice(MONTHS)}.",
    ])()
