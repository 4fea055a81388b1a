"""What a trajectory's text gives away: which calls were made, what failed, which values each result held.

The rules judge builds on this; nothing here knows any environment. Tools are assumed to speak JSON or lines of text.
"""

import re
from collections.abc import Iterator
from typing import Any

from actors.messages import Step
from actors.ports.parsed_calls import ParsedCall
from actors.ports.tool_answers.reader import documents, failed

_WORD = re.compile(r"[\w@+-]+(?:[.:/][\w@+-]+)*")
_JOINT = re.compile(r"[.:/]")
_EMPTY_WORDS = frozenset(
    {"ok", "yes", "no", "none", "null", "nil", "true", "false", "done", "success", "on", "off", "n/a"}
)
"""Values that say how it went, not what was found: finding one in a later call shows nothing."""


def values_of(call: ParsedCall) -> set[str]:
    """The informative values among the arguments."""
    return set(_informative(call.arguments))


def failures(step: Step) -> tuple[int, int]:
    """(results that are failures, results) of `step`'s observation."""
    results = documents(step.observation)
    return sum(map(failed, results)), len(results)


def found_values(observation: str) -> set[str]:
    """The informative values that an observation holds: JSON leaves, and single words of any text."""
    values = set(_informative(documents(observation)))
    return values | {word for value in values for word in words(value)}


def words(text: str) -> set[str]:
    """Words of `text` that could be values: names, ids, numbers, dates, addresses."""
    found = _WORD.findall(text)
    parts = [part for word in found for part in _JOINT.split(word)]
    return {word for word in (*found, *parts) if _telling(word)}


def _informative(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for member in value.values():
            yield from _informative(member)
    elif isinstance(value, list):
        for member in value:
            yield from _informative(member)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        # Small numbers are counts and flags; they coincide by chance.
        if not isinstance(value, int) or abs(value) >= 10:
            yield str(value)
    elif isinstance(value, str) and _telling(value):
        yield value


def _telling(text: str) -> bool:
    return len(text) >= 2 and text.lower() not in _EMPTY_WORDS
