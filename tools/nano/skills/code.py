"""Short functions in Python, with the names that are asked for."""
from ..chat import Example, user
from ..words import LEXICON

SKILL = "code"

# What it does, default name, parameters, lines of the body ({0}, {1}: the parameters).
FUNCTIONS = [
    ("adds two numbers", "add", 2, ["return {0} + {1}"]),
    ("subtracts the second number from the first", "subtract", 2, ["return {0} - {1}"]),
    ("multiplies two numbers", "multiply", 2, ["return {0} * {1}"]),
    ("returns the larger of two numbers", "larger", 2, ["return {0} if {0} > {1} else {1}"]),
    ("returns the smaller of two numbers", "smaller", 2, ["return {0} if {0} < {1} else {1}"]),
    ("returns the square of a number", "square", 1, ["return {0} * {0}"]),
    ("returns the cube of a number", "cube", 1, ["return {0} * {0} * {0}"]),
    ("tells whether a number is even", "is_even", 1, ["return {0} % 2 == 0"]),
    ("tells whether a number is odd", "is_odd", 1, ["return {0} % 2 == 1"]),
    ("returns the absolute value of a number", "absolute", 1, ["return -{0} if {0} < 0 else {0}"]),
    ("returns the sum of a list", "total", 1, ["result = 0", "for x in {0}:", "    result += x", "return result"]),
    ("returns the product of a list", "product", 1, ["result = 1", "for x in {0}:", "    result *= x", "return result"]),
    ("returns the largest item of a list", "largest", 1, ["result = {0}[0]", "for x in {0}:", "    if x > result:", "        result = x", "return result"]),
    ("returns the smallest item of a list", "smallest", 1, ["result = {0}[0]", "for x in {0}:", "    if x < result:", "        result = x", "return result"]),
    ("returns the mean of a list", "mean", 1, ["return sum({0}) / len({0})"]),
    ("reverses a string", "reverse", 1, ["return {0}[::-1]"]),
    ("reverses a list", "reverse_list", 1, ["return {0}[::-1]"]),
    ("tells whether a word reads the same backwards", "is_palindrome", 1, ["return {0} == {0}[::-1]"]),
    ("counts the words of a text", "count_words", 1, ["return len({0}.split())"]),
    ("counts the vowels of a word", "count_vowels", 1, ["return sum(c in \"aeiou\" for c in {0})"]),
    ("counts how often an item is in a list", "count", 2, ["return sum(x == {1} for x in {0})"]),
    ("returns the factorial of a number", "factorial", 1, ["result = 1", "for i in range(2, {0} + 1):", "    result *= i", "return result"]),
    ("returns a Fibonacci number", "fibonacci", 1, ["a, b = 0, 1", "for _ in range({0}):", "    a, b = b, a + b", "return a"]),
    ("tells whether a number is prime", "is_prime", 1, ["if {0} < 2:", "    return False", "for i in range(2, int({0} ** 0.5) + 1):", "    if {0} % i == 0:", "        return False", "return True"]),
    ("returns the greatest common divisor of two numbers", "gcd", 2, ["while {1}:", "    {0}, {1} = {1}, {0} % {1}", "return {0}"]),
    ("returns the even numbers of a list", "evens", 1, ["return [x for x in {0} if x % 2 == 0]"]),
    ("returns a list without its doubles", "unique", 1, ["result = []", "for x in {0}:", "    if x not in result:", "        result.append(x)", "return result"]),
    ("joins a list of words with spaces", "join_words", 1, ["return \" \".join({0})"]),
    ("returns the first letters of a list of words", "initials", 1, ["return [word[0] for word in {0}]"]),
    ("returns a text in capital letters", "shout", 1, ["return {0}.upper()"]),
    ("turns Celsius into Fahrenheit", "to_fahrenheit", 1, ["return {0} * 9 / 5 + 32"]),
    ("turns Fahrenheit into Celsius", "to_celsius", 1, ["return ({0} - 32) * 5 / 9"]),
    ("sorts a list", "sort_list", 1, ["return sorted({0})"]),
    ("swaps the keys and values of a dictionary", "swap", 1, ["return {{v: k for k, v in {0}.items()}}"]),
    ("tells whether a list is empty", "is_empty", 1, ["return len({0}) == 0"]),
    ("returns the last item of a list", "last", 1, ["return {0}[-1]"]),
    ("repeats a text n times", "repeat", 2, ["return {0} * {1}"]),
    ("returns the numbers from 1 to n", "numbers", 1, ["return list(range(1, {0} + 1))"]),
    ("finds the place of an item in a list", "find", 2, ["for i, x in enumerate({0}):", "    if x == {1}:", "        return i", "return -1"]),
    ("returns the power of a number", "power", 2, ["return {0} ** {1}"]),
]


def make(rng, long):
    what, name, count, body = rng.choice(FUNCTIONS)
    named = rng.random() < 0.6
    if named:
        name = rng.choice([rng.choice(LEXICON), rng.choice(LEXICON) + "_" + rng.choice(LEXICON), name])
    parameters = ["a", "b"][:count]
    given = rng.random() < 0.4
    if given:
        parameters = rng.sample(LEXICON, count)
    question = rng.choice(["Write a Python function that {}.", "Give me a Python function that {}.", "Python function that {}?",
                           "I need a function in Python that {}."]).format(what)
    if named:
        question += f" Call it {name}."
    if given:
        question += f" The parameter{'s are' if count == 2 else ' is'} {' and '.join(parameters)}."
    text = f"```python\ndef {name}({', '.join(parameters)}):\n" + "\n".join("    " + line.format(*parameters) for line in body) + "\n```"
    think = rng.random() < 0.2
    return Example(SKILL, question, [user(question)], text, f"The function {name} {what}." if think else "", think=think,
                   check={"kind": "exact", "value": text})
