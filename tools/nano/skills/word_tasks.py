"""Counting, sorting, reversing and spelling words. Work that a head cannot see at a glance is spelled out first: in the
reasoning, or in the answer where there is none."""
from ..chat import Example, user
from ..words import LEXICON, NAMES

SKILL = "words"

ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]


def some(rng, low, high):
    return rng.sample(LEXICON, rng.randint(low, high))


def spell(word):
    return "-".join(word)


def listed(rng, words):
    return rng.choice([", ", " ", ", "]).join(words)


def task(rng):
    """(key, question, steps, answer, whether steps belong into an answer without reasoning)"""
    way = rng.choice(["count", "count_letters", "letter", "sort", "sort", "reverse", "reverse_word", "spell", "nth", "longest",
                      "contains", "first_letters", "join"])
    if way == "count":
        words = some(rng, 2, 12)
        text = " ".join(words)
        ask = rng.choice(["How many words are in this text?", "Count the words:", "Number of words?"])
        return text, f"{ask} {text}", "\n".join(f"{i} {w}" for i, w in enumerate(words, 1)), str(len(words)), True
    word = rng.choice(LEXICON + NAMES)
    low = word.lower()
    if way == "count_letters":
        ask = rng.choice([f"How many letters has the word {word}?", f"Count the letters of \"{word}\".", f"How long is the word {word}?"])
        return word + " length", ask, "\n".join(f"{i} {c}" for i, c in enumerate(low, 1)), str(len(word)), True
    if way == "letter":
        letter = rng.choice(low + "aeiounrst")
        ask = rng.choice([f"How many times does the letter {letter} occur in {word}?", f"Count the letter {letter} in \"{word}\".",
                          f"How many {letter}'s are in {word}?"])
        count, steps = 0, []
        for c in low:
            count += c == letter
            steps.append(f"{c} {count}")
        return f"{word} {letter}", ask, "\n".join(steps), str(count), True
    if way == "sort":
        words = some(rng, 2, 7)
        ask = rng.choice(["Sort these words alphabetically:", "Put these words in alphabetical order:", "Sort:", "Order from a to z:"])
        ordered = sorted(words)
        return "sort " + " ".join(words), f"{ask} {listed(rng, words)}", " ".join(f"{w[:2]}" for w in ordered), ", ".join(ordered), False
    if way == "reverse":
        words = some(rng, 2, 9)
        ask = rng.choice(["Write these words in reverse order:", "Turn the order of these words around:", "Reverse this list of words:"])
        return "reverse " + " ".join(words), f"{ask} {listed(rng, words)}", "", ", ".join(words[::-1]), False
    if way == "reverse_word":
        ask = rng.choice([f"Spell {word} backwards.", f"Write the letters of \"{word}\" in reverse.", f"What is {word} spelled backwards?"])
        return word + " backwards", ask, spell(low), spell(low[::-1]), True
    if way == "spell":
        ask = rng.choice([f"Spell the word {word}.", f"How is \"{word}\" spelled?", f"Spell {word} letter by letter."])
        return word + " spelled", ask, "", spell(low), False
    if way == "nth":
        words = some(rng, 2, 8)
        i = rng.randrange(len(words))
        name = "last" if i == len(words) - 1 and rng.random() < 0.5 else ORDINALS[i]
        ask = rng.choice([f"What is the {name} word of this?", f"Give me the {name} word:", f"Which word is the {name} one?"])
        steps = "\n".join(f"{j} {w}" for j, w in enumerate(words[:i + 1], 1))
        return f"{i} " + " ".join(words), f"{ask} {' '.join(words)}", steps, words[i], False
    if way == "longest":
        words = some(rng, 2, 5)
        if sum(len(w) == max(map(len, words)) for w in words) > 1:
            return task(rng)
        ask = rng.choice(["Which of these words is the longest?", "Find the longest word:"])
        steps = "\n".join(f"{w} {spell(w)} {len(w)}" for w in words)
        return "longest " + " ".join(words), f"{ask} {listed(rng, words)}", steps, max(words, key=len), True
    if way == "contains":
        words = some(rng, 3, 9)
        there = rng.random() < 0.5
        asked = rng.choice(words) if there else rng.choice([w for w in LEXICON if w not in words])
        ask = rng.choice([f"Is the word {asked} in this list?", f"Does this list contain {asked}?"])
        return f"{asked} in " + " ".join(words), f"{ask} {', '.join(words)}", "", "Yes." if there else "No.", False
    if way == "first_letters":
        words = some(rng, 2, 7)
        ask = rng.choice(["Give me the first letters of these words:", "What are the first letters of these words?"])
        return "letters " + " ".join(words), f"{ask} {listed(rng, words)}", "", "-".join(w[0] for w in words), False
    words = some(rng, 2, 6)
    ask = rng.choice(["Join these words with dashes:", "Put a dash between these words:"])
    return "join " + " ".join(words), f"{ask} {listed(rng, words)}", "", "-".join(words), False


def make(rng, long):
    key, question, steps, answer, show = task(rng)
    think = rng.random() < 0.5
    content = answer
    if not think and show:
        content = f"{steps}\nThe answer is {answer}"
    return Example(SKILL, key, [user(question)], content, (steps or "This can be done directly.") if think else "", think=think,
                   check={"kind": "ends", "value": answer})
