"""The main line of a trajectory, and the calls beside it: titles, summaries, routing, retried requests.

Turns form trees: each follows the turn whose answer is the last one in its conversation. The main line is the longest
way through a tree. What branches off it is a side call; so is a call without tools that looks back on a conversation
that was over, and, under an explicit id, a lone call that has another opening than the main line. Unless it is another
agent's work: what was told what to do by the main line, or gave it something, belongs to it. Pure, and independent of
the order in which turns came.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from actors.trajectories.link_keys import Key, made, strong, weak
from actors.trajectories.parsed_exchange import ParsedExchange

_TELLING, _WORDS = 20, 4
"""Characters and words from which on a text that stands in two places was carried from one to the other."""
_RANKS = ("p", "q", "h", "c", "several", "l")
"""Kinds of keys by which a turn follows another, the best first; `several`: of an answer that was given twice."""
_COVERS = 0.5
"""Share of a task that a tool call's argument must be, where it is not all of it."""


def main_line(turns: Sequence[ParsedExchange]) -> list[ParsedExchange]:
    """The main line of `turns`, which are linked and sorted by start; the others are beside it."""
    if len(turns) == 1:
        return list(turns)
    parents = _parents(turns)
    children: dict[str, list[ParsedExchange]] = {}
    for turn in turns:
        children.setdefault(parents.get(turn.id, ""), []).append(turn)
    roots = children.get("", [])
    length: dict[str, tuple[int, bool, bool, float, str]] = {}
    best: dict[str, ParsedExchange] = {}
    # Children start after their parents, so the way back meets them first.
    for turn in reversed(turns):
        below = children.get(turn.id, [])
        if below:
            best[turn.id] = max(below, key=lambda child: length[child.id])
        longest = length[best[turn.id].id][0] if below else 0
        # Of two ways of the same length: the one with tools, then the one that came to its end, then the last: a client
        # that asked twice went on with what it got in the end.
        length[turn.id] = (longest + 1, bool(turn.tools), turn.why_not != "incomplete", turn.started, turn.id)
    paths = {root.id: _path(root, best) for root in roots}
    trunk = paths[max(roots, key=lambda root: length[root.id]).id]
    main: list[ParsedExchange] = []
    heads: list[ParsedExchange] = []

    def take(path: Sequence[ParsedExchange]) -> None:
        main.extend(path)
        on_path = {turn.id for turn in path}
        heads.extend(child for turn in path for child in children.get(turn.id, []) if child.id not in on_path)

    for root in roots:
        path = paths[root.id]
        if path is not trunk and _beside(path, trunk):
            heads.append(root)
        else:
            take(_without_looking_back(path))
    while (agent := next((head for head in heads if _is_agent(head, best, parents, main)), None)) is not None:
        heads.remove(agent)
        take(_path(agent, best))
    return sorted(main, key=lambda turn: (turn.started, turn.id))


def _parents(turns: Sequence[ParsedExchange]) -> dict[str, str]:
    """Which turn each one follows, where one of `turns` is that."""
    makers: dict[Key, list[str]] = {}
    parents: dict[str, str] = {}

    def rank(key: Key) -> int:
        # A tool call stands in all that follows it; an answer behind it tells more, unless it came twice.
        twice = key[0] == "h" and len(makers[key]) > 1
        return _RANKS.index("several" if twice else key[0])

    for turn in turns:  # by start: a parent stands before its children
        keys = [key for key in (*strong(turn), *weak(turn)) if key in makers]
        if keys:
            parents[turn.id] = makers[min(keys, key=rank)][-1]
        for key in made(turn):
            makers.setdefault(key, []).append(turn.id)
    return parents


def _path(root: ParsedExchange, best: dict[str, ParsedExchange]) -> list[ParsedExchange]:
    path = [root]
    while path[-1].id in best:
        path.append(best[path[-1].id])
    return path


def _beside(path: Sequence[ParsedExchange], trunk: Sequence[ParsedExchange]) -> bool:
    """Whether a conversation of its own under the same explicit id is no part of what was done."""
    tools = any(turn.tools for turn in trunk)
    if tools and not any(turn.tools for turn in path):
        return True
    return len(path) == 1 and len(trunk) > 1 and path[0].opening != trunk[0].opening and not path[0].tools


def _is_agent(
    head: ParsedExchange, best: dict[str, ParsedExchange], parents: dict[str, str], main: Sequence[ParsedExchange]
) -> bool:
    """Whether what begins with `head` is another agent's part of the work on the main line."""
    parent = next((turn for turn in main if turn.id == parents.get(head.id)), None)
    if parent is not None and parent.system == head.system:
        return False  # the same agent tried twice, or was asked something beside its work
    return works_with(_path(head, best), main)


def _without_looking_back(path: Sequence[ParsedExchange]) -> list[ParsedExchange]:
    """The path without a last call that has no tools and follows an answer after which nothing was left to do."""
    kept = list(path)
    while len(kept) > 1:
        last, before = kept[-1], kept[-2]
        spoke = bool(before.answers) and not any(answer.tool_calls for answer in before.answers)
        if last.tools or last.results or not spoke or not all(turn.tools for turn in kept[:-1]):
            break
        kept.pop()
    return kept


def works_with(path: Sequence[ParsedExchange], others: Sequence[ParsedExchange]) -> bool:
    """Whether the conversation `path` gave something to one of `others`, or was told by one what to do.

    A title or a summary takes from the work and gives nothing back. A worker was given its task in a planner's tool
    call, or its answer comes back as that call's result; a planner's plan is what the worker is told to do.
    """
    return _answered(path[-1], others) or _asked(path[0], others)


def _answered(last: ParsedExchange, others: Sequence[ParsedExchange]) -> bool:
    said = [text for text in (_normal(answer.text) for answer in last.answers) if _telling(text)]
    if not said:
        return False
    for other in others:
        if other.started < last.started:
            continue
        heard = [other.observation] if other.results else []
        heard += [other.goal, other.system] if other.depth == 0 else []
        if any(text in _normal(each) for each in heard for text in said):
            return True
    return False


def _asked(first: ParsedExchange, others: Sequence[ParsedExchange]) -> bool:
    task = _normal(first.goal)
    if not _telling(task) or any(goal in task for goal in {_normal(other.goal) for other in others} if _telling(goal)):
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
            yield _normal(value)


def _normal(text: str) -> str:
    return " ".join(text.split()).lower()


def _telling(text: str) -> bool:
    return len(text) >= _TELLING and text.count(" ") >= _WORDS - 1
