"""Conversations as text: what chat_template.jinja writes, in Python for speed (tests/chat_test.py compares the two).

A message is a dict: role, content, and for the assistant's: reasoning_content, tool_calls (a list of (name, arguments))."""
import json
from dataclasses import dataclass, field


@dataclass
class Example:
    """One thing to learn: the conversation so far, and the turn that should follow."""
    skill: str
    key: str  # what it is about: its hash decides whether it is held out, so equal tasks are on one side; "": never
    messages: list
    content: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)  # (name, arguments)
    tools: list = field(default_factory=list)
    think: bool = False
    check: dict = field(default_factory=dict)  # how an answer is judged: judge.py
    weight: float = 1.0  # of the answer's tokens in training


def user(text):
    return {"role": "user", "content": text}


def assistant(text, reasoning="", calls=()):
    return {"role": "assistant", "content": text, "reasoning_content": reasoning, "tool_calls": list(calls)}


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def calls_text(calls, content):
    blocks = []
    for name, arguments in calls:
        values = "".join(f"<parameter={k}>\n{v if isinstance(v, str) else dump(v)}\n</parameter>\n"
                         for k, v in arguments.items())
        blocks.append(f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>")
    return ("\n\n" if content and blocks else "") + "\n".join(blocks)


def prompt_text(messages, tools=(), think=False):
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    system = messages[0]["content"].strip() if messages and messages[0]["role"] == "system" else ""
    out = []
    if tools or system:
        out.append("<|im_start|>system\n")
        if tools:
            out.append("# Tools\n\n<tools>" + "".join("\n" + dump(t) for t in tools) +
                       "\n</tools>\n\nTo call one, write:\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n"
                       "</parameter>\n</function>\n</tool_call>" + ("\n\n" if system else ""))
        out.append(system + "<|im_end|>\n")
    for i, m in enumerate(messages):
        role = m["role"]
        if role == "user":
            out.append(f"<|im_start|>user\n{m['content']}<|im_end|>\n")
        elif role == "tool":
            if i == 0 or messages[i - 1]["role"] != "tool":
                out.append("<|im_start|>user")
            out.append(f"\n<tool_response>\n{m['content']}\n</tool_response>")
            if i + 1 == len(messages) or messages[i + 1]["role"] != "tool":
                out.append("<|im_end|>\n")
        elif role == "assistant":
            out.append("<|im_start|>assistant\n")
            if i > last:
                out.append(f"<think>\n{m.get('reasoning_content', '').strip()}\n</think>\n\n")
            content = m["content"].strip()
            out.append(content + calls_text(m.get("tool_calls", ()), content) + "<|im_end|>\n")
    out.append("<|im_start|>assistant\n" + ("<think>\n" if think else "<think>\n\n</think>\n\n"))
    return "".join(out)


def answer_text(example):
    head = f"{example.reasoning.strip()}\n</think>\n\n" if example.think else ""
    content = example.content.strip()
    return head + content + calls_text(example.calls, content) + "<|im_end|>"


def openai_messages(messages):
    """As chat APIs and `polystrata eval` take them."""
    out = []
    for m in messages:
        o = {"role": m["role"], "content": m["content"]}
        if m.get("reasoning_content"):
            o["reasoning_content"] = m["reasoning_content"]
        if m.get("tool_calls"):
            o["tool_calls"] = [{"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}}
                               for i, (n, a) in enumerate(m["tool_calls"])]
        out.append(o)
    return out
