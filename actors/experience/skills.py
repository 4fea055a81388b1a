"""Skills: sequences of calls that worked again and again, with where each argument comes from.

A place is a word of the goal, known by its shape, a field of an earlier result, or the same small value every time.
Whatever comes from nowhere makes it no skill: it could not be carried out again. Pure; a sandbox tries it.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from actors.experience.intents import intent_of
from actors.kinds.clusters import template_of
from actors.messages import Experience, ToolCall, Trajectory, derived_id
from actors.tool_results.runs import call_failed
from actors.tool_results.tool_calls import arguments_of, read_json, values

_SUCCESS = 0.5
_MAX_WHEN = 120
_RUNS = re.compile(r"([Aa9])\1+")


_SUPPORT = 3
"""Successful trajectories that show the same sequence before it is a skill."""
_MAX_CALLS = 12
"""Calls of a sequence at most; one call alone is none."""
_MOST = 8
"""Skills of one drawing at most, the best supported first."""
_SOURCES = 16
"""Trajectories that are named as sources at most."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an argument comes from: exactly one of the three."""

    word: int = -1
    """Number of the goal's word that holds it, among those of the same shape: words are what white space and colons
    part. In free words "A17" is the only order wherever it stands."""
    shape: str = ""
    """Of that word: `A9` is capitals and digits, as in "A17"; empty in old records, which count all words."""
    call: int = -1
    """Number of the call whose result holds it,"""
    path: tuple[str, ...] = ()
    """under these names,"""
    constant: str = ""
    """or the same every time: JSON."""


class SkillCall(msgspec.Struct, frozen=True):
    """One call of a skill."""

    tool: str
    arguments: dict[str, Place]


class Skill(msgspec.Struct, frozen=True):
    """A sequence as it was drawn."""

    when_to_use: str
    """The goals' template, names masked; words that they share, where they have several."""
    calls: tuple[SkillCall, ...]
    runs: tuple[Trajectory, ...]
    """That show it, the latest last."""

    @property
    def content(self) -> str:
        """The skill in words."""
        return " then ".join(_told(call, self.calls) for call in self.calls)

    def id(self, tenant: str) -> str:
        """Drawn again, it is the same skill."""
        return derived_id("skill", tenant, self.when_to_use, self.content)

    @property
    def detail(self) -> dict[str, Any]:
        """For `Experience.detail`."""
        return {"calls": msgspec.to_builtins(self.calls)}


def read_skill(lesson: Experience) -> tuple[SkillCall, ...] | None:
    """The calls of a lesson that is a skill; None if it is none, or cannot be read."""
    try:
        return msgspec.convert(lesson.detail["calls"], tuple[SkillCall, ...]) if lesson.kind == "skill" else None
    except (KeyError, msgspec.ValidationError):
        return None


def draw_skills(
    runs: Sequence[Trajectory],
    place: Callable[[Trajectory], str] = lambda run: kind_of(run.goal),
    origin: Callable[[Trajectory], str] = lambda run: run.id,
) -> list[Skill]:
    """The skills that `runs` show, of one agent.

    Args:
        place: neighbourhood of a trajectory's goal.
        origin: of a trajectory; equal for those that are not independent of each other.
    """
    shown: dict[tuple[str, bytes], list[Trajectory]] = defaultdict(list)
    for run in runs:
        if run.outcome is None or run.outcome < _SUCCESS:
            continue
        calls = trace(run)
        if calls is not None and 2 <= len(calls) <= _MAX_CALLS:
            shown[place(run), msgspec.msgpack.encode(calls)].append(run)
    # Of two ways to the same kind of goal the one that more have gone, then the shorter.
    ways = sorted(shown.items(), key=lambda way: (-len(way[1]), len(way[0][1])))
    return [
        Skill(_when(who, runs, origin), msgspec.msgpack.decode(calls, type=tuple[SkillCall, ...]),
              tuple(who[-_SOURCES:]))
        for (_, calls), who in ways[:_MOST]
        if len(who) >= _SUPPORT
    ]  # fmt: skip


def _when(who: Sequence[Trajectory], runs: Sequence[Trajectory], origin: Callable[[Trajectory], str]) -> str:
    """What the goals of `who` have in common."""
    templates = {kind_of(run.goal) for run in who}
    if len(templates) == 1:
        return templates.pop()
    shown = {run.id for run in who}
    tool = who[-1].steps[-1].tool_calls[0].name
    return intent_of(who, [run for run in runs if run.id not in shown], tool, origin)[:_MAX_WHEN]


def kind_of(goal: str) -> str:
    """The kind of `goal`, as skills are filed under it."""
    return template_of(goal)[:_MAX_WHEN]


def bind(calls: Sequence[SkillCall], number: int, goal: str, results: Sequence[Any]) -> ToolCall | None:
    """Call `number` of a skill for `goal`, after the parsed `results` of those before it; None if a place is empty."""
    words, arguments = words_of(goal), dict[str, Any]()
    for name, place in calls[number].arguments.items():
        if place.constant:
            arguments[name] = json.loads(place.constant)
        elif place.call >= 0:
            value = results[place.call] if place.call < len(results) else None
            for key in place.path:
                value = cast(Mapping[str, Any], value).get(key) if isinstance(value, dict) else None
            if value is None:
                return None
            arguments[name] = value
        else:
            fitting = [word for word in words if not place.shape or shape_of(word) == place.shape]
            if not 0 <= place.word < len(fitting):
                return None
            arguments[name] = fitting[place.word]
    return ToolCall(calls[number].tool, json.dumps(arguments))


def trace(run: Trajectory) -> tuple[SkillCall, ...] | None:
    """The calls of `run` with the place of each argument; None if any is a guess, unreadable, or was refused."""
    words = places_of(run.goal)
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    calls: list[SkillCall] = []
    for step in run.steps:
        arguments = arguments_of(step.tool_calls[0]) if len(step.tool_calls) == 1 else None
        if arguments is None or call_failed(step):
            return None
        places: dict[str, Place] = {}
        for name, value in sorted(arguments.items()):
            place = _place(value, words, found)
            if place is None:
                return None
            places[name] = place
        for path, leaf in _leaves(read_json(step.observation), ()):
            found.setdefault(leaf, (len(calls), path))
        calls.append(SkillCall(step.tool_calls[0].name, places))
    return tuple(calls)


def places_of(goal: str) -> dict[str, Place]:
    """The place of each word of `goal`."""
    places, shapes = dict[str, Place](), Counter[str]()
    for word in words_of(goal):
        shape = shape_of(word)
        places.setdefault(word, Place(word=shapes[shape], shape=shape))
        shapes[shape] += 1
    return places


def shape_of(word: str) -> str:
    """What kind of name `word` is: `A9` for "A17" and "KD4711", `a@a.a` for an address, `Aa` for "Mia"."""
    return _RUNS.sub(r"\1", "".join(_class_of(letter) for letter in word))


def _class_of(letter: str) -> str:
    if letter.isdigit():
        return "9"
    return ("A" if letter.isupper() else "a") if letter.isalpha() else letter


def _place(value: Any, words: Mapping[str, Place], found: Mapping[str, tuple[int, tuple[str, ...]]]) -> Place | None:
    if isinstance(value, dict | list):
        return None
    if not values(value):  # too small to be anybody's: a flag, a number of days
        return Place(constant=json.dumps(value))
    if str(value) in words:
        return words[str(value)]
    if str(value) in found:
        call, path = found[str(value)]
        return Place(call=call, path=path)
    return None


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, member in cast(Mapping[str, Any], value).items():
            yield from _leaves(member, (*path, key))
    elif values(value) and not isinstance(value, list):
        yield path, str(value)


def words_of(goal: str) -> list[str]:
    """As a `Place` counts them."""
    return [word.strip(".,;!?()\"'") for word in goal.replace(":", " ").split()]


def _told(call: SkillCall, calls: Sequence[SkillCall]) -> str:
    def where(place: Place) -> str:
        if place.constant:
            return f"={place.constant}"
        return " from the goal" if place.call < 0 else f" from {calls[place.call].tool}"

    return f"{call.tool}({', '.join(f'{name}{where(place)}' for name, place in call.arguments.items())})"
