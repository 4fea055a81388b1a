"""A trajectory cut into what one call of a judge can take, with an outline of all that lies outside.

The outline is drawn by rule from calls and results, never written by a model: a summary by the judge would carry an
injected sentence from one window into the next. So windows need nothing of each other.
"""

import json
import re
from collections.abc import Sequence

import msgspec

from actors.messages import Step, Trajectory
from actors.ports.parsed_calls import offered
from adapters.chat.quoting import quoted
from adapters.judges.evidence import failures

_PLAIN = re.compile(r"[^\w.:-]+")
_CALLS = 8
"""Calls of one step that are shown; more are counted."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a trajectory a judge is shown; all in characters unless they say otherwise."""

    field: int = 1500
    """Most of one text, one call's arguments or one result."""
    step: int = 4000
    """Most of one step, of which its result has at least half if it needs it."""
    goal: int = 2000
    """Most of the goal."""
    window: int = 40_000
    """Most of the steps in one call."""
    window_steps: int = 20
    """Most steps in one call."""
    windows: int = 8
    """Most calls for one trajectory; of a longer one the last steps are judged, the others abstain."""
    outline: int = 2000
    """Most of the outline of the steps outside a window."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"shape.{name} must be at least 1")
        if self.field < 100 or self.step < 200 or self.goal < 100:
            raise ValueError("shape: a judge needs to see something: field and goal from 100, step from 200 characters")


class Shown(msgspec.Struct, frozen=True):
    """A step as a judge sees it: names of lines with their quoted content."""

    number: int
    """From 0."""
    lines: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        return sum(len(name) + len(text) for name, text in self.lines)


class Window(msgspec.Struct, frozen=True):
    """Consecutive steps for one call."""

    steps: tuple[Shown, ...]
    before: str = ""
    """Outline of the steps before; a JSON string, empty if there are none."""
    after: str = ""

    @property
    def numbers(self) -> range:
        return range(self.steps[0].number, self.steps[-1].number + 1)


def windows(trajectory: Trajectory, shape: Shape) -> list[Window]:
    """The windows in order. Steps in none of them were too many: the earliest."""
    runs: list[list[Shown]] = []
    size = 0
    # From the end, so that what is left out lies as far from the outcome as possible.
    for number in reversed(range(len(trajectory.steps))):
        shown = show(number, trajectory.steps[number], shape)
        if not runs or len(runs[-1]) >= shape.window_steps or size + shown.size > shape.window:
            if len(runs) == shape.windows:
                break
            runs.append([])
            size = 0
        runs[-1].append(shown)
        size += shown.size
    found = [tuple(reversed(run)) for run in reversed(runs)]
    steps = trajectory.steps
    return [
        Window(run, _outline(steps, 0, run[0].number, shape), _outline(steps, run[-1].number + 1, len(steps), shape))
        for run in found
    ]


def show(number: int, step: Step, shape: Shape) -> Shown:
    """`step` with every field quoted and cut."""
    lines: list[tuple[str, str]] = []

    def add(name: str, text: str, room: int) -> int:
        text = quoted(text, max(_LEAST, min(room, shape.field)))
        lines.append((name, text))
        return len(text)

    room = shape.step - min(len(step.observation), shape.field, shape.step // 2)
    if step.text.strip():
        room -= add("TEXT", step.text, room)
    for call in step.tool_calls[:_CALLS]:
        room -= add("CALL", call.name, 100)
        room -= add("ARGUMENTS", call.arguments, room)
    if len(step.tool_calls) > _CALLS:
        lines.append(("CALLS", json.dumps(f"{len(step.tool_calls) - _CALLS} more")))
    if not step.text.strip() and not step.tool_calls:
        lines.append(("TEXT", '""'))
    add("RESULT" if step.tool_calls else "NEXT", step.observation, shape.step // 2)
    return Shown(number, tuple(lines))


def tool_names(trajectory: Trajectory, most: int = 64) -> str:
    """Names of the tools that were offered, as a JSON list."""
    names = list(offered(trajectory.tools))
    return json.dumps([_plain(name) for name in names[:most]], ensure_ascii=False)


_LEAST = 60
"""Characters that a field gets even if its step has no room left: a judge must see that it is there."""


def _outline(steps: Sequence[Step], first: int, end: int, shape: Shape) -> str:
    """What the steps from `first` to before `end` did: names of tools and how many results were errors."""
    if first >= end:
        return ""
    parts: list[str] = []
    size = 0
    numbers = list(range(first, end))
    # Those next to the window matter most.
    for number in numbers if first else reversed(numbers):
        step = steps[number]
        wrong, results = failures(step)
        names = ", ".join(_plain(call.name) for call in step.tool_calls[:_CALLS]) or "text"
        part = f"{number + 1}: {names}" + (f" ({wrong} of {results} failed)" if wrong else "")
        if size + len(part) > shape.outline:
            parts.append(f"{len(numbers) - len(parts)} more")
            break
        parts.append(part)
        size += len(part) + 2
    return json.dumps("; ".join(parts if first else reversed(parts)), ensure_ascii=False)


def _plain(name: str) -> str:
    return _PLAIN.sub("_", name)[:60]
