"""The main line of a trajectory, and the calls beside it: titles, summaries, routing, retried requests.

Turns form trees: each follows the turn whose answer is the last one in its conversation. The main line is the longest
way through a tree. What branches off it is a side call; so is a call without tools that looks back on a conversation
that was over, and, under an explicit id, a lone call that has another opening than the main line. Unless it is another
agent's work: what was told what to do by the main line, or gave it something, belongs to it. Pure, and independent of
the order in which turns came.
"""

from collections.abc import Sequence

from actors.dialects import parsed
from actors.trajectories.link_keys import Key, is_guess, made, taken
from actors.trajectories.parsed_exchange import ParsedExchange

_TELLING, _WORDS = 20, 4
"""Characters and words from which on a text that stands in two places was carried from one to the other."""
_RANKS = ("p", "guess", "h", "c", "e", "several", "l")
"""Kinds of keys by which a turn follows another, the best first; `several`: of an answer that was given twice."""
_COVERS = 0.5
"""Share of a task that a tool call's argument must be, where it is not all of it."""
Path = list[ParsedExchange]


def main_line(turns: Sequence[ParsedExchange]) -> Path:
    """The main line of `turns`, which are linked and in order; the others are beside it."""
    if len(turns) == 1:
        return list(turns)
    parents = _parents(turns)
    place = {turn.id: number for number, turn in enumerate(turns)}
    children: dict[str, Path] = {}
    for turn in turns:
        children.setdefault(parents.get(turn.id, ""), []).append(turn)
    longest: dict[str, Path] = {}

    def worth(path: Path) -> tuple[int, bool, bool, int]:
        # Of two ways of the same length: the one with tools, then the one that came to its end, then the last: a client
        # that asked twice went on with what it got in the end.
        return len(path), bool(path[0].tools), path[0].why_not != "incomplete", place[path[0].id]

    # Children stand behind their parents, so the way back meets them first.
    for turn in reversed(turns):
        ways = [longest[child.id] for child in children.get(turn.id, ())]
        longest[turn.id] = [turn, *max(ways, key=worth, default=[])]
    trunk = max((longest[root.id] for root in children[""]), key=worth)
    main: Path = []
    heads: Path = []

    def take(path: Path) -> None:
        main.extend(path)
        on_path = {turn.id for turn in path}
        heads.extend(child for turn in path for child in children.get(turn.id, ()) if child.id not in on_path)

    for root in children[""]:
        path = longest[root.id]
        if path is not trunk and _beside(path, trunk):
            heads.append(root)
        else:
            take(_without_looking_back(path))
    while agent := next((head for head in heads if _is_agent(longest[head.id], parents, main)), None):
        heads.remove(agent)
        take(longest[agent.id])
    return sorted(main, key=lambda turn: place[turn.id])


def beginnings(turns: Sequence[ParsedExchange]) -> int:
    """Conversations among `turns`, which are in order, that none of the others gave its task: where they are many, the
    calls of many users have one run's id."""
    parents = _parents(turns)
    roots = [(number, turn) for number, turn in enumerate(turns) if turn.id not in parents]
    return sum(not _told(turn, turns[:number], turns[:number]) for number, turn in roots)


def _parents(turns: Sequence[ParsedExchange]) -> dict[str, str]:
    """Which turn each one follows, where one of `turns` is that."""
    makers: dict[Key, list[str]] = {}
    parents: dict[str, str] = {}
    for turn in turns:  # in order: a parent stands before its children

        def rank(key: Key, turn: ParsedExchange = turn) -> int:
            # A tool call stands in all that follows it; an answer behind it tells more, unless it came twice.
            kind = "several" if key[0] == "h" and len(makers[key]) > 1 else key[0]
            return _RANKS.index("guess" if is_guess(key, turn) else kind)

        keys = [key for key in taken(turn) if key in makers]
        if keys:
            parents[turn.id] = makers[min(keys, key=rank)][-1]
        for key in made(turn):
            makers.setdefault(key, []).append(turn.id)
    return parents


def _beside(path: Path, trunk: Path) -> bool:
    """Whether a conversation of its own under the same explicit id is no part of what was done."""
    if any(turn.tools for turn in path):
        return False
    other = (path[0].system, path[0].tools) != (trunk[0].system, trunk[0].tools)
    return any(turn.tools for turn in trunk) or (len(path) == 1 < len(trunk) and other)


def _is_agent(path: Path, parents: dict[str, str], main: Path) -> bool:
    """Whether the conversation is another agent's part of the work on the main line: whether it gave something to that,
    or was told by it what to do.

    A title or a summary takes from the work and gives nothing back. A worker was given its task in a planner's tool
    call, or its answer comes back as that call's result; a planner's plan is what the worker is told to do.
    """
    first, last = path[0], path[-1]
    if any(turn.id == parents.get(first.id) and turn.system == first.system for turn in main):
        return False  # the same agent tried twice, or was asked something beside its work
    return _heard(last, [turn for turn in main if turn.started >= last.started]) or _told(
        first, [turn for turn in main if turn.started <= first.started], main
    )


def _heard(last: ParsedExchange, later: Path) -> bool:
    """Whether one of `later` was told what `last` answered."""
    said = [text for answer in last.answers if _telling(text := _normal(answer.text))]
    for turn in later if said else ():
        heard = [turn.observation] if turn.results else []
        heard += [turn.goal, turn.system] if turn.depth == 0 else []
        if any(text in _normal(each) for each in heard for text in said):
            return True
    return False


def _told(first: ParsedExchange, earlier: Sequence[ParsedExchange], main: Sequence[ParsedExchange]) -> bool:
    """Whether one of `earlier` gave `first` its task in a tool call."""
    task = _normal(first.goal)
    if not _telling(task) or any(_telling(goal) and goal in task for goal in {_normal(turn.goal) for turn in main}):
        # What says the user's words again may be a title of them.
        return False
    calls = (call for turn in earlier for answer in turn.answers for call in answer.calls)
    for given in (parsed(call.arguments) for call in calls):
        texts = [_normal(text) for text in given.values() if isinstance(text, str)] if isinstance(given, dict) else []
        if any(
            task in text or (text in task and _telling(text) and len(text) >= _COVERS * len(task)) for text in texts
        ):
            return True
    return False


def _without_looking_back(path: Path) -> Path:
    """The path without a last call that has no tools and follows an answer after which nothing was left to do."""
    kept = list(path)
    while len(kept) > 1:
        last, before = kept[-1], kept[-2]
        spoke = bool(before.answers) and not any(answer.calls for answer in before.answers)
        if last.tools or last.results or not spoke or not all(turn.tools for turn in kept[:-1]):
            break
        kept.pop()
    return kept


def _normal(text: str) -> str:
    return " ".join(text.split()).lower()


def _telling(text: str) -> bool:
    return len(text) >= _TELLING and text.count(" ") >= _WORDS - 1
