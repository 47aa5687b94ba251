"""Whether an answer is right. `polystrata eval` has the same rules (src/cli/eval_check.cpp, docs/commands.md).

kind      value
exact     the content, white space at the ends aside
ends      what the content ends with, a last full stop aside, not in the middle of a number or word
contains  a list of texts that the content has as whole words, upper and lower case alike
json      the content is JSON (a ```json fence around it is taken off) of this value
calls     a list of [name, arguments]: the calls made, in order
story     a list as in contains, and at least 150 characters
no_call: true beside them: no tool may be called
"""
import json
import re


def parse(text):
    """(reasoning or none, content, calls) of what a model wrote after the prompt."""
    reasoning, mark, rest = text.partition("</think>")
    if not mark:
        reasoning, rest = "", text
    calls = []
    for block in re.findall(r"<tool_call>\n(.*?)</tool_call>", rest, re.S):
        name = re.match(r"<function=([^>\n]+)>", block)
        if not name:
            calls.append(("?", {}))
            continue
        calls.append((name.group(1), dict(re.findall(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>", block, re.S))))
    return reasoning.strip(), rest.split("<tool_call>")[0].strip(), calls


def word_character(c):
    return c.isascii() and c.isalnum()


def has_word(content, word):
    at = content.find(word)
    while at >= 0:
        around = content[at - 1:at] if at else ""
        around += content[at + len(word):at + len(word) + 1]
        if not any(word_character(c) for c in around):
            return True
        at = content.find(word, at + 1)
    return False


def as_text(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def right(check, content, calls):
    kind, value = check["kind"], check.get("value")
    if kind == "calls":
        return [[n, {k: as_text(v) for k, v in a.items()}] for n, a in calls] == [
            [n, {k: as_text(v) for k, v in a.items()}] for n, a in value]
    if check.get("no_call") and calls:
        return False
    content = content.strip()
    if kind == "exact":
        return content == value.strip()
    if kind == "ends":
        content, value = content.rstrip("."), value.rstrip(".")
        before = content[:-len(value)][-1:]
        return content.endswith(value) and not (before and (word_character(before) or (before in "-." and value[0].isdigit())))
    if kind in ("contains", "story"):
        return all(has_word(content.lower(), v.lower()) for v in value) and (kind == "contains" or len(content) >= 150)
    if kind == "json":
        fence = re.fullmatch(r"```(?:json)?\n(.*)\n```", content, re.S)
        try:
            return json.loads(fence.group(1) if fence else content) == value
        except ValueError:
            return False
    raise ValueError(f"unknown check {kind}")
