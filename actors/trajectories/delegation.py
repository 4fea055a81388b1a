"""Whether a conversation of its own in a session is another agent's work: words go from one to the other.

A title or a summary takes from the work and gives nothing back. A worker was given its task in a planner's tool call,
or its answer comes back as that call's result; a planner's plan is what the worker is told to do. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from actors.trajectories.parsed_exchange import ParsedExchange

_TELLING, _WORDS = 20, 4
"""Characters and words from which on a text that stands in two places was carried from one to the other."""
_COVERS = 0.5
"""Share of a task that a tool call's argument must be, where it is not all of it."""


def works_with(path: Sequence[ParsedExchange], others: Sequence[ParsedExchange]) -> bool:
    """Whether the conversation `path` gave something to one of `others`, or was told by one what to do.

    Args:
        path: one conversation, by start.
        others: turns of other conversations of the session.
    """
    return _answered(path[-1], others) or _asked(path[0], others)


def _answered(last: ParsedExchange, others: Sequence[ParsedExchange]) -> bool:
    said = [text for text in (_plain(answer.text) for answer in last.answers) if _telling(text)]
    if not said:
        return False
    for other in others:
        if other.started < last.started:
            continue
        heard = [other.observation] if other.results else []
        heard += [other.goal, other.system] if other.depth == 0 else []
        if any(text in _plain(each) for each in heard for text in said):
            return True
    return False


def _asked(first: ParsedExchange, others: Sequence[ParsedExchange]) -> bool:
    task = _plain(first.goal)
    if not _telling(task) or any(goal in task for goal in {_plain(other.goal) for other in others} if _telling(goal)):
        # What says the user's words again may be a title of them.
        return False
    for other in others:
        if other.started > first.started:
            continue
        for answer in other.answers:
            for call in answer.tool_calls:
                for value in _texts(call.arguments):
                    if task in value or (value in task and _telling(value) and len(value) >= _COVERS * len(task)):
                        return True
    return False


def _texts(arguments: str) -> Iterator[str]:
    """The texts at the top of a call's arguments."""
    try:
        given: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return
    for value in given.values() if isinstance(given, dict) else ():
        if isinstance(value, str):
            yield _plain(value)


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()


def _telling(text: str) -> bool:
    return len(text) >= _TELLING and text.count(" ") >= _WORDS - 1
