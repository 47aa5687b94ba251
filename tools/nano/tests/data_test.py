"""Run from tools/: python3 -m nano.tests.data_test. Every skill's right answer passes its own check; chat.py writes what the
template writes; both sides of the split have examples."""
import os
import random
import sys

from .. import chat, data, judge
from ..skills import SHARES


def test_right_answers_pass_and_others_do_not():
    for maker, _ in SHARES:
        rng = random.Random(7)
        for _ in range(300):
            e = maker(rng, 1.0)
            _, content, calls = judge.parse(chat.answer_text(e).removesuffix("<|im_end|>"))
            assert judge.right(e.check, content, calls), (e.skill, e.check, content, calls)
            assert not judge.right(e.check, "nothing of the kind", []), (e.skill, e.check)


def test_every_skill_has_both_sides():
    for maker, _ in SHARES:
        for side in (True, False):
            e = data.of_skill(random.Random(1), maker, 0.2, side)
            assert data.held_out(e) == side


def test_python_writes_what_the_template_writes():
    import json

    import jinja2
    path = os.path.join(os.path.dirname(__file__), "..", "chat_template.jinja")
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    with open(path) as file:
        template = env.from_string(file.read())
    rng = random.Random(5)
    for _ in range(400):
        e = data.draw(rng, 0.1, rng.random() < 0.5)
        want = template.render(messages=chat.openai_messages(e.messages), tools=e.tools or None, add_generation_prompt=True,
                               enable_thinking=e.think)
        got = chat.prompt_text(e.messages, e.tools, e.think)
        assert got == want, (got, want)
        # A history with the answer begins with what the model has seen and written.
        turn = chat.assistant(e.content, e.reasoning, e.calls)
        whole = template.render(messages=chat.openai_messages(e.messages + [turn]), tools=e.tools or None, enable_thinking=e.think)
        assert whole == got + chat.answer_text(e) + "\n", (whole, got + chat.answer_text(e))


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
            sys.stdout.flush()
