"""The object that a model was asked for, out of what models without structured output write around it."""

import re

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n```\Z", re.DOTALL)


def bare(content: str) -> str:
    """`content` without one pair of code fences around it and a `<think>` block before it; nothing else goes."""
    text = _THOUGHT.sub("", content).strip()
    fenced = _FENCED.match(text)
    return fenced[1] if fenced else text
