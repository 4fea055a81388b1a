"""Tool memory: of each tool what it is good for, how it fails and what it costs, from the calls of the window.

Pure. Errors are put together by class: what remains of a message when names, numbers and quotations are masked. Words
are told that two origins at least have shown: they stand in everybody's prompt, and anybody may have written them. One
memory a tool; it is written anew when its figures have moved.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from actors.experience.origins import INDEPENDENT
from actors.kinds.clusters import template_of
from actors.messages import Trajectory, derived_id
from actors.ports.tool_answers.reader import failed
from actors.tool_results.tool_calls import calls_of, read_json

_SUCCESS = 0.5
_CHARACTERS_A_TOKEN = 4
_TOLD = ("error", "errors", "message", "detail", "msg", "reason")
"""Members of an error object that tell of what kind it is."""
_MAX_TEXT = 80
_MASKED = re.compile(r"\"[^\"]*\"|'[^']*'|\b\w*\d\w*\b")


_MIN_CALLS = 8
"""Answered calls before a tool gets a memory."""
_MOST = 64
"""Tools of a tenant at most, the most called first."""
_ERRORS = 3
"""Classes of errors that are named."""
_MOVED = 0.1
"""Change of the error rate after which a memory is written anew; or twice as many calls."""
_SOURCES = 16
"""Trajectories that are named as sources at most."""


class ToolMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One tool."""

    tool: str
    calls: int
    errors: int
    by_class: tuple[tuple[str, int], ...]
    """Classes of errors with their numbers, most frequent first."""
    tokens: int
    """Of an answer, on average; a quarter of its characters."""
    yields: tuple[str, ...]
    """Names in its results."""
    goals: tuple[str, ...]
    """Templates of goals that were reached with it, most frequent first."""
    independent: int
    """Origins among the trajectories that called it."""
    runs: tuple[Trajectory, ...]

    def id(self, tenant: str) -> str:
        """One memory a tool."""
        return derived_id("tool", tenant, self.tool)

    @property
    def error_rate(self) -> float:
        """Share of the calls that were answered with an error."""
        return self.errors / self.calls

    @property
    def content(self) -> str:
        """The memory in words."""
        parts = [f"gives {', '.join(self.yields)}"] if self.yields else []
        parts += [f"good for: {'; '.join(self.goals)}"] if self.goals else []
        failed = "; ".join(f"{text} ({number})" for text, number in self.by_class)
        parts.append(f"fails {self.errors} of {self.calls}: {failed}" if failed else f"{self.calls} calls, no error")
        return ". ".join([*parts, f"an answer is about {self.tokens} tokens"])

    @property
    def detail(self) -> dict[str, Any]:
        """For `Experience.detail`."""
        return {
            "calls": self.calls, "errors": self.errors, "error_rate": round(self.error_rate, 4),
            "tokens": self.tokens, "classes": dict(self.by_class),
        }  # fmt: skip

    def moved(self, before: dict[str, Any]) -> bool:
        """Whether it differs from the figures `before` enough to be written anew."""
        calls, rate = before.get("calls", 0), before.get("error_rate", 0.0)
        if not isinstance(calls, int) or not isinstance(rate, int | float):
            return True
        return self.calls >= 2 * calls or abs(self.error_rate - rate) >= _MOVED


class _Seen:
    def __init__(self) -> None:
        self.calls, self.characters = 0, 0
        self.errors: Counter[str] = Counter()
        self.yields: Counter[str] = Counter()
        self.goals: Counter[str] = Counter()
        self.origins: dict[str, set[str]] = defaultdict(set)
        """Who has shown each of these words."""
        self.runs: dict[str, Trajectory] = {}

    def told(self, words: Counter[str], most: int) -> tuple[tuple[str, int], ...]:
        """The most frequent of `words`, with their numbers."""
        return tuple(one for one in words.most_common() if len(self.origins[one[0]]) >= INDEPENDENT)[:most]


def draw_tools(runs: Sequence[Trajectory], origin: Callable[[Trajectory], str]) -> list[ToolMemory]:
    """A memory of each tool that `runs` call often enough; `runs` are of one tenant and one tool list."""
    seen: dict[str, _Seen] = defaultdict(_Seen)
    for run in runs:
        for step in run.steps:
            if len(step.tool_calls) == 1 and step.observation:
                _count(seen[step.tool_calls[0].name], run, origin(run), step.observation)
        if run.outcome is not None and run.outcome >= _SUCCESS:
            for tool in {call.tool for call in calls_of(run) if not call.error}:
                goal = template_of(run.goal)[:_MAX_TEXT]
                seen[tool].goals[goal] += 1
                seen[tool].origins[goal].add(origin(run))
    most = sorted(seen.items(), key=lambda found: (-found[1].calls, found[0]))[:_MOST]
    return [_memory(tool, s, origin) for tool, s in most if s.calls >= _MIN_CALLS]


def error_class(observation: str) -> str:
    """What kind of error `observation` tells of."""
    found = read_json(observation)
    told: Any = observation if found is None else found
    if isinstance(told, dict):
        told = next((told[name] for name in _TOLD if told.get(name)), told)
    text = told if isinstance(told, str) else json.dumps(told)
    return " ".join(_MASKED.sub("*", text).split())[:_MAX_TEXT]


def _count(seen: _Seen, run: Trajectory, origin: str, observation: str) -> None:
    seen.calls += 1
    seen.characters += len(observation)
    seen.runs[run.id] = run
    if failed(observation):
        words = [error_class(observation)]
        seen.errors.update(words)
    else:
        result = read_json(observation)
        names = cast(dict[str, Any], result) if isinstance(result, dict) else {}
        words = [str(name)[:_MAX_TEXT] for name in names]
        seen.yields.update(words)
    for word in words:
        seen.origins[word].add(origin)


def _memory(tool: str, seen: _Seen, origin: Callable[[Trajectory], str]) -> ToolMemory:
    runs = tuple(seen.runs.values())
    return ToolMemory(
        tool=tool,
        calls=seen.calls,
        errors=sum(seen.errors.values()),
        by_class=seen.told(seen.errors, _ERRORS),
        tokens=round(seen.characters / _CHARACTERS_A_TOKEN / seen.calls),
        yields=tuple(name for name, _ in seen.told(seen.yields, 4)),
        goals=tuple(goal for goal, _ in seen.told(seen.goals, 2)),
        independent=len({origin(run) for run in runs}),
        runs=runs[-_SOURCES:],
    )
