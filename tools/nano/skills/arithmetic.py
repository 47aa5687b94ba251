"""Sums, differences, products and divisions up to three digits. Digits are tokens of their own. Reasoning goes column by
column from the right, as on paper, so that every step needs only what stands close by; without reasoning sums and
differences are given straight away and products show their steps in the answer."""
from ..chat import Example, user

SKILL = "arithmetic"


def digits(n):
    return [int(d) for d in str(n)]


def add_steps(a, b):
    x, y = digits(a)[::-1], digits(b)[::-1]
    lines, carry = [], 0
    for i in range(max(len(x), len(y))):
        p, q = (x[i] if i < len(x) else 0), (y[i] if i < len(y) else 0)
        total = p + q + carry
        lines.append(f"{p} + {q}" + (" + 1" if carry else "") + f" = {total}: write {total % 10}" +
                     (", carry 1" if total > 9 else ""))
        carry = total // 10
    if carry:
        lines.append("write 1")
    return "\n".join(lines)


def subtract_steps(a, b):
    """a >= b"""
    x, y = digits(a)[::-1], digits(b)[::-1]
    lines, borrow = [], 0
    for i in range(len(x)):
        p, q = x[i], (y[i] if i < len(y) else 0)
        take = p - borrow - q
        lines.append(f"{p}" + (" - 1" if borrow else "") + f" - {q} = {take}" +
                     (f", borrow: {take + 10}" if take < 0 else "") + f": write {take % 10}")
        borrow = int(take < 0)
    return "\n".join(lines)


def multiply_steps(a, b):
    """Partial products, then their sum, one after the other."""
    parts, lines = [], []
    for power, d in enumerate(digits(b)[::-1]):
        for place, e in enumerate(digits(a)[::-1]):
            if d and e:
                x, y = e * 10 ** place, d * 10 ** power
                parts.append(x * y)
                lines.append(f"{x} * {y} = {x * y}")
    total = 0
    for i, part in enumerate(parts):
        if i:
            lines.append(f"{total} + {part} = {total + part}")
        total += part
    return "\n".join(lines) if lines else f"{a} * {b} = 0"


def divide_steps(a, b):
    lines, rest = [], 0
    for d in digits(a):
        have = rest * 10 + d
        lines.append(f"{have} / {b} = {have // b}, rest {have % b}")
        rest = have % b
    return "\n".join(lines)


def number(rng):
    return rng.randint(0, 10 ** rng.choice([1, 2, 2, 3, 3, 3]) - 1)


def ask(rng, a, op, b):
    sign = {"+": "+", "-": "-", "*": rng.choice(["*", "x", "×"]), "/": rng.choice(["/", "÷"])}[op]
    expression = f"{a} {sign} {b}" if rng.random() < 0.8 else f"{a}{sign}{b}"
    word = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[op]
    choices = [f"What is {expression}?", f"{expression} = ?", f"Calculate {expression}.", f"{expression}",
               f"What is {a} {word} {b}?", f"How much is {a} {word} {b}?", f"Please compute {expression}.",
               f"Can you work out {expression}?"]
    if op == "+":
        choices += [f"Add {a} and {b}.", f"What is the sum of {a} and {b}?"]
    if op == "-":
        choices += [f"Subtract {b} from {a}.", f"Take {b} away from {a}."]
    if op == "*":
        choices += [f"Multiply {a} by {b}.", f"What is the product of {a} and {b}?"]
    if op == "/":
        choices += [f"Divide {a} by {b}."]
    return rng.choice(choices)


def task(rng):
    """(key, question, reasoning, answer as text, whether the answer must show its steps)"""
    op = rng.choice("+++---**/")
    if op in "+-":
        a, b = number(rng), number(rng)
    elif op == "*":
        a, b = number(rng), rng.randint(0, 9)
        if rng.random() < 0.3:
            a, b = rng.randint(10, 99), rng.randint(10, 99)
        if rng.random() < 0.3:
            a, b = b, a
    else:
        b = rng.randint(2, 9)
        a = rng.randint(1, 999)
    question = ask(rng, a, op, b)
    if op == "+":
        return f"{a}+{b}", question, add_steps(a, b), str(a + b), False
    if op == "-":
        if a >= b:
            return f"{a}-{b}", question, subtract_steps(a, b), str(a - b), False
        steps = f"{a} is less than {b}, so {b} - {a} and a minus\n" + subtract_steps(b, a)
        return f"{a}-{b}", question, steps, str(a - b), False
    if op == "*":
        return f"{a}*{b}", question, multiply_steps(a, b), str(a * b), a > 9 or b > 9
    rest = f" rest {a % b}" if a % b else ""
    return f"{a}/{b}", question, divide_steps(a, b), f"{a // b}{rest}", a > 99


def make(rng, long):
    key, question, steps, result, show = task(rng)
    think = rng.random() < 0.6
    content = result
    if not think and show:
        content = steps + "\nThe result is " + result
    return Example(SKILL, key, [user(question)], content, steps if think else "", think=think,
                   check={"kind": "ends", "value": result})
