"""Units: factors are written in the reasoning (or in the answer's first line), then the number is moved or multiplied."""
from ..chat import Example, user
from .arithmetic import multiply_steps

SKILL = "units"

# (large, small, factor); powers of ten move the point, others are multiplied.
UNITS = [(("kilometre", "km"), ("metre", "m"), 1000), (("metre", "m"), ("centimetre", "cm"), 100),
         (("centimetre", "cm"), ("millimetre", "mm"), 10), (("metre", "m"), ("millimetre", "mm"), 1000),
         (("kilogram", "kg"), ("gram", "g"), 1000), (("tonne", "t"), ("kilogram", "kg"), 1000),
         (("gram", "g"), ("milligram", "mg"), 1000), (("litre", "l"), ("millilitre", "ml"), 1000),
         (("litre", "l"), ("decilitre", "dl"), 10), (("hour", "h"), ("minute", "min"), 60),
         (("minute", "min"), ("second", "s"), 60), (("day", "d"), ("hour", "h"), 24), (("week", ""), ("day", ""), 7),
         (("year", ""), ("month", ""), 12), (("foot", "ft"), ("inch", "in"), 12), (("yard", "yd"), ("foot", "ft"), 3),
         (("kilobyte", "kB"), ("byte", "B"), 1000), (("megabyte", "MB"), ("kilobyte", "kB"), 1000)]


def named(unit, n):
    if n == "1":
        return unit
    return {"foot": "feet", "inch": "inches", "century": "centuries"}.get(unit, unit + "s")


def decimal(n, factor):
    """n / factor, a power of ten, without zeros at the end."""
    whole, rest = divmod(n, factor)
    return str(whole) + ("." + str(rest).zfill(len(str(factor)) - 1).rstrip("0") if rest else "")


def make(rng, long):
    large, small, factor = rng.choice(UNITS)
    ten = factor in (10, 100, 1000)
    down = rng.random() < 0.6  # to the small unit
    if down:
        n = rng.randint(1, 999 if ten else 99)
        source, target, result = large, small, str(n * factor)
        steps = f"1 {large[0]} is {factor} {named(small[0], str(factor))}\n" + (
            f"{n} * {factor} = {result}" if ten else multiply_steps(n, factor))
    else:
        n = rng.randint(1, 9999) if ten else rng.randint(1, 60) * factor
        source, target = small, large
        result = decimal(n, factor) if ten else str(n // factor)
        steps = f"{factor} {named(small[0], str(factor))} are 1 {large[0]}\n{n} / {factor} = {result}"
    short = bool(source[1] and target[1]) and rng.random() < 0.4
    s = source[1] if short else named(source[0], str(n))
    t = target[1] if short else named(target[0], "2")
    question = rng.choice([f"How many {t} are {n} {s}?", f"Convert {n} {s} to {t}.", f"{n} {s} in {t}?",
                           f"What is {n} {s} in {t}?", f"Please convert {n} {s} into {t}."])
    answer = f"{result} {target[1] if short else named(target[0], result)}"
    think = rng.random() < 0.5
    if not think and not ten:
        answer = steps + "\nThe result is " + answer
    return Example(SKILL, f"{n} {source[0]} {target[0]}", [user(question)], answer, steps if think else "", think=think,
                   check={"kind": "ends", "value": answer.split("The result is ")[-1]})
