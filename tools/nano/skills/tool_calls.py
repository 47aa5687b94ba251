"""Tools: which to call and with what, none where none fits, and answering from what came back. Names of tools and of their
parameters change from example to example, so they must be read from the declaration."""
from ..chat import Example, assistant, user
from ..words import ANIMALS, DAYS, LEXICON, MONTHS, NAMES, PLACES, THINGS, code, made_up, made_up_name
from . import facts, identity

SKILL = "tools"


def amount(r):
    return r.randint(1, 999)


def phrase(r):
    return " ".join(r.sample(LEXICON, r.randint(1, 3)))


def clock(r):
    return f"{r.randint(0, 23):02}:{r.choice(['00', '15', '30', '45'])}"


CITY = ("string", "The city", lambda r: r.choice([made_up_name(r), r.choice(["Paris", "Rome", "Tokyo", "Oslo", "Lima", "Cairo", "Berlin", "Madrid"])]))

# names, description, {parameter names: (type, description, values)}, ways to ask, (result, answer)
TOOLS = [
    (["get_weather", "weather", "weather_now", "current_weather"], "Tells the weather in a city", [(["city", "place", "location", "town"], CITY)],
     ["What is the weather in {0}?", "How is the weather in {0}?", "Is it raining in {0}?", "Weather in {0}, please."],
     lambda r, a: (t := r.randint(-10, 38), w := r.choice(["sunny", "rain", "snow", "cloudy", "windy"]),
                   ('{"temperature": %d, "sky": "%s"}' % (t, w), f"In {a[0]} it is {t} degrees, {w}."))[2]),
    (["get_time", "time_in", "local_time", "clock"], "Tells the time in a city", [(["city", "place", "location"], CITY)],
     ["What time is it in {0}?", "Tell me the time in {0}.", "How late is it in {0}?"],
     lambda r, a: (t := clock(r), (t, f"It is {t} in {a[0]}."))[1]),
    (["set_timer", "timer", "start_timer"], "Starts a timer", [(["minutes", "duration", "time"], ("integer", "Minutes", lambda r: r.randint(1, 120)))],
     ["Set a timer for {0} minutes.", "Start a timer of {0} minutes.", "Wake me in {0} minutes."],
     lambda r, a: ("ok", f"The timer is set for {a[0]} minutes.")),
    (["send_message", "message", "send_text", "write_message"], "Sends a message to a person",
     [(["to", "person", "recipient"], ("string", "Who gets it", lambda r: r.choice(NAMES))), (["text", "message", "body"], ("string", "The text", phrase))],
     ["Send {0} the message: {1}", "Tell {0}: {1}", "Write to {0}: {1}"], lambda r, a: ("sent", f"The message to {a[0]} was sent.")),
    (["add_reminder", "remind", "reminder", "create_reminder"], "Reminds of something at a time",
     [(["text", "what", "about"], ("string", "What to remember", phrase)), (["time", "at", "when"], ("string", "Time as HH:MM", clock))],
     ["Remind me of {0} at {1}.", "At {1} remind me of {0}.", "I need a reminder of {0} at {1}."], lambda r, a: ("saved", f"I will remind you of {a[0]} at {a[1]}.")),
    (["search_files", "find_files", "file_search"], "Finds files by a word", [(["query", "word", "text"], ("string", "The word", lambda r: r.choice([r.choice(LEXICON), made_up(r)])))],
     ["Find files about {0}.", "Search my files for {0}.", "Which files have {0} in them?"],
     lambda r, a: (f := f"{a[0]}_{r.randint(1, 99)}.txt", (f'["{f}"]', f"I found {f}."))[1]),
    (["convert_currency", "exchange", "currency"], "Converts money",
     [(["amount", "value", "sum"], ("integer", "How much", amount)), (["from", "source"], ("string", "Currency", lambda r: r.choice(["EUR", "USD", "GBP", "CHF"]))),
      (["to", "target"], ("string", "Currency", lambda r: r.choice(["JPY", "SEK", "NOK", "INR"])))],
     ["How much is {0} {1} in {2}?", "Convert {0} {1} to {2}.", "Change {0} {1} into {2}."],
     lambda r, a: (n := str(r.randint(10, 99999)), (n, f"{a[0]} {a[1]} are {n} {a[2]}."))[1]),
    (["light", "switch_light", "set_light"], "Switches the light of a room",
     [(["room", "place", "where"], ("string", "The room", lambda r: r.choice(PLACES))), (["on", "state", "active"], ("boolean", "On or off", lambda r: r.random() < 0.5))],
     ["Turn {1} the light in the {0}.", "Switch the light in the {0} {1}.", "Light {1} in the {0}, please."], lambda r, a: ("ok", f"The light in the {a[0]} is {'on' if a[1] else 'off'}.")),
    (["play_music", "play", "play_song"], "Plays a song", [(["song", "title", "name"], ("string", "The title", phrase))],
     ["Play {0}.", "I want to hear {0}.", "Please play the song {0}."], lambda r, a: ("playing", f"Now playing {a[0]}.")),
    (["lookup_user", "get_user", "find_user"], "Gets a user by number", [(["id", "number", "user_id"], ("integer", "The number", lambda r: r.randint(1, 99999)))],
     ["Who is user {0}?", "Look up user {0}.", "Show me the user with the number {0}."],
     lambda r, a: (n := r.choice(NAMES), ('{"name": "%s"}' % n, f"User {a[0]} is {n}."))[1]),
    (["create_event", "add_event", "calendar_add"], "Adds an event to the calendar",
     [(["title", "name", "what"], ("string", "The title", phrase)), (["day", "date"], ("string", "The day", lambda r: r.choice([r.choice(DAYS), f"{r.randint(1, 28)} {r.choice(MONTHS)}"])))],
     ["Put {0} into my calendar on {1}.", "Add the event {0} on {1}.", "On {1} I have {0}, note it in the calendar."], lambda r, a: ("added", f"{a[0]} is in your calendar on {a[1]}.")),
    (["stock_price", "get_price", "share_price"], "Tells the price of a share", [(["symbol", "ticker", "share"], ("string", "The symbol", lambda r: made_up(r)[:4].upper()))],
     ["What is the price of {0}?", "How much is a share of {0}?", "Price of {0} now?"],
     lambda r, a: (n := f"{r.randint(1, 999)}.{r.randint(10, 99)}", (n, f"{a[0]} is at {n}."))[1]),
    (["open_door", "unlock", "unlock_door"], "Opens a door with a code", [(["code", "key", "pin"], ("string", "The code", code))],
     ["Open the door with the code {0}.", "Unlock the door, the code is {0}."], lambda r, a: ("open", "The door is open.")),
    (["route", "distance", "directions"], "Finds the way between two cities", [(["from", "start", "origin"], CITY), (["to", "end", "goal"], CITY)],
     ["How far is it from {0} to {1}?", "Find the way from {0} to {1}.", "Route from {0} to {1}, please."],
     lambda r, a: (n := r.randint(10, 2000), (f"{n} km", f"From {a[0]} to {a[1]} it is {n} km."))[1]),
    (["order", "buy", "shop_order"], "Orders things in the shop", [(["item", "thing", "product"], ("string", "What", lambda r: r.choice(THINGS))), (["count", "number", "quantity"], ("integer", "How many", lambda r: r.randint(2, 60)))],
     ["Order {1} times {0}.", "Buy {0}, {1} pieces.", "I need {1} pieces of {0}."], lambda r, a: ("ordered", f"I ordered {a[1]} pieces of {a[0]}.")),
    (["animal_facts", "about_animal", "animal_info"], "Tells something about an animal", [(["animal", "name", "kind"], ("string", "The animal", lambda r: r.choice(ANIMALS)))],
     ["Tell me something about the {0}.", "What do you know about the {0}?", "A fact about the {0}, please."],
     lambda r, a: (n := r.randint(2, 40), (f"lives {n} years", f"The {a[0]} lives {n} years."))[1]),
]


def draw(rng, spec):
    """A declared tool, and how to use it."""
    names, description, parameters, ways, finish = spec
    name = rng.choice(names)
    if rng.random() < 0.25:
        name = f"{made_up(rng)}_{name}"
    keys = []
    for options, _ in parameters:
        keys.append(rng.choice([o for o in options if o not in keys] or [options[0] + "_2"]))
    properties = {k: {"type": p[0], "description": p[1]} for k, (_, p) in zip(keys, parameters)}
    tool = {"type": "function", "function": {"name": name, "description": description,
                                             "parameters": {"type": "object", "properties": properties, "required": keys}}}
    return tool, name, keys, parameters, ways, finish


def spoken(value):
    return ("on" if value else "off") if isinstance(value, bool) else value


def make(rng, long):
    specs = rng.sample(TOOLS, rng.randint(1, 5))
    drawn = [draw(rng, s) for s in specs]
    if len({d[1] for d in drawn}) < len(drawn):
        return make(rng, long)
    tools = [d[0] for d in drawn]
    system = [{"role": "system", "content": rng.choice(["You are a helpful assistant.", "Use tools when they help.", "Be brief."])}] if rng.random() < 0.3 else []
    think = rng.random() < 0.4
    kind = rng.random()
    if kind < 0.2:  # none fits
        if rng.random() < 0.5:
            other = rng.choice([facts.make, identity.make])(rng, long)
            return Example(SKILL, "none " + other.key + drawn[0][1], system + other.messages, other.content,
                           "No tool is needed." if think else "", tools=tools, think=think, check={**other.check, "no_call": True})
        left = [s for s in TOOLS if s not in specs]
        _, _, _, parameters, ways, _ = draw(rng, rng.choice(left))
        question = rng.choice(ways).format(*[spoken(p[2](rng)) for _, p in parameters])
        return Example(SKILL, "none " + question + drawn[0][1], system + [user(question)], "I have no tool for that.",
                       "No tool fits." if think else "", tools=tools, think=think,
                       check={"kind": "contains", "value": ["no tool"], "no_call": True})
    tool, name, keys, parameters, ways, finish = rng.choice(drawn)

    def one():
        values = [p[2](rng) for _, p in parameters]
        return values, rng.choice(ways).format(*map(spoken, values)), (name, dict(zip(keys, values)))
    values, question, call = one()
    reasoning = f"I call {name}."
    messages = system + [user(question)]
    if kind < 0.65:
        calls = [call]
        if rng.random() < 0.12:  # two at once
            values, second, other = one()
            messages = system + [user(f"{question} {second}")]
            if other != call:
                calls.append(other)
        return Example(SKILL, question + str(keys), messages, "", reasoning if think else "", calls=calls, tools=tools, think=think,
                       check={"kind": "calls", "value": [[n, a] for n, a in calls]})
    result, answer = finish(rng, values)
    messages = messages + [assistant("", reasoning if think else "", [call]), {"role": "tool", "content": result}]
    return Example(SKILL, question + result, messages, answer, "The tool answered." if think else "", tools=tools, think=think,
                   check={"kind": "exact", "value": answer, "no_call": True})
