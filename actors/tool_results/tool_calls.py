"""Tool calls of a trajectory with their results, and where each argument came from.

What `lessons` (contrast between trajectories) and `probing` (experiments in the sandbox) both read. Pure.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.messages import ToolCall, Trajectory
from actors.ports.parsed_calls import offered, read_call
from actors.ports.tool_answers.reader import failed

GOAL = ""
"""Origin of a value that the goal, or the user later on, already names."""
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w(?:[\w.@:/+#-]*\w)?")
"""A name, a number or an address in a text, without the punctuation around it."""
_TEXT = 20_000
"""Characters of a text that names are looked for in."""
_FIRST_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|\w")
_EMPTY = frozenset({"ok", "yes", "no", "none", "null", "true", "false", "done", "success"})
"""Values that say how it went, not what was found."""


class ToolCallResult(msgspec.Struct, frozen=True):
    """A call that was answered."""

    tool: str
    arguments: dict[str, Any]
    error: bool
    """The answer says that it failed."""
    origins: dict[str, str | None]
    """By argument: the tool whose result first held its value, `GOAL`, or None for a value from nowhere. Arguments
    that could coincide by chance (flags, small numbers) are left out."""
    unknown: bool = False
    """Nothing was answered, or which call of a turn failed cannot be told."""
    turn: int = 0
    """Number of its step: calls of one turn come in no order."""
    about: frozenset[str] = frozenset()
    """The telling values of its arguments."""

    def shares(self, other: "ToolCallResult") -> bool:
        """Whether both speak of the same thing."""
        return not self.about.isdisjoint(other.about)


class Reader:
    """Reads the calls of one attempt in order.

    Args:
        goal: the attempt's goal.
    """

    def __init__(self, goal: str) -> None:
        self._said = ""
        self._words: set[str] = set()
        self._found: dict[str, str] = {}
        self.results: dict[str, Any] = {}
        """The latest value under each name in the results so far."""
        self.hear(goal)

    def hear(self, text: str) -> None:
        """The user says `text`: the goal, or what was asked for later."""
        self._said = f"{self._said}\n{text[:_TEXT]}"
        self._words |= _tokens(text)

    def origins(self, arguments: Mapping[str, Any]) -> dict[str, str | None]:
        """Where the values of `arguments` come from, as `ToolCallResult.origins` says."""
        return {key: self._origin(value) for key, value in arguments.items() if values(value)}

    def add(self, tool: str, arguments: dict[str, Any], observation: str, turn: int = 0) -> ToolCallResult:
        """The call `tool(arguments)` was answered with `observation`."""
        call = self.look(tool, arguments, observation, turn)
        self.learn(call, observation)
        return call

    def look(self, tool: str, arguments: dict[str, Any], observation: str, turn: int = 0) -> ToolCallResult:
        """The same, but what was answered is not known yet: a turn's other calls were made without it."""
        about = frozenset(values(arguments))
        return ToolCallResult(
            tool, arguments, failed(observation), self.origins(arguments), not observation.strip(), turn, about
        )

    def learn(self, call: ToolCallResult, observation: str) -> None:
        """What `call` was answered with is known from here on."""
        if call.error:
            return
        result = read_json(observation)
        for value in values(result if result is not None else [observation]):
            for found in (value, *_tokens(value)):
                if values(found):
                    self._found.setdefault(found, call.tool)
        if isinstance(result, dict):
            self.results.update(result)

    def _origin(self, value: Any) -> str | None:
        text = str(value)
        if text in self._words or (_TOKEN.fullmatch(text) is None and text in self._said):
            return GOAL
        return next((self._found[found] for found in values(value) if found in self._found), None)


def _tokens(text: str) -> set[str]:
    """Names in `text`: as they stand there, and the words that they are made of."""
    text = text[:_TEXT]
    return {*_TOKEN.findall(text), *_WORD.findall(text)}


def calls_of(trajectory: Trajectory) -> list[ToolCallResult]:
    """The answered calls of `trajectory`, in order; those of one turn have the same `turn`.

    Where the results of a turn cannot be told apart, one that speaks of a failure leaves all of them unknown. What the
    user says between the calls counts as part of the goal. Unreadable arguments are none.
    """
    reader = Reader(trajectory.goal)
    calls: list[ToolCallResult] = []
    for turn, step in enumerate(trajectory.steps):
        if not step.tool_calls:
            reader.hear(step.observation)
        if not step.tool_calls or not step.observation:
            continue
        answers = _answers(step.observation, len(step.tool_calls))
        made: list[tuple[ToolCallResult, str]] = []
        for call, answer in zip(step.tool_calls, answers or [step.observation] * len(step.tool_calls), strict=True):
            one = reader.look(call.name, arguments_of(call) or {}, answer, turn)
            if answers is None and one.error:
                one = msgspec.structs.replace(one, error=False, unknown=True)
            made.append((one, answer if answers is not None else ""))
        for one, answer in made:
            reader.learn(one, answer)
        if answers is None:
            reader.hear(step.observation)
        calls += [one for one, _ in made]
    return calls


def _answers(observation: str, number: int) -> list[str] | None:
    """The results of a turn's `number` calls, which stand one below the other; None if they cannot be told apart."""
    if number == 1:
        return [observation]
    lines = [line for line in observation.splitlines() if line.strip()]
    return lines if len(lines) == number else None


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """The arguments of `call`, None if it has none or they are no JSON object."""
    return read_call(call).arguments if call.arguments else None


def read_json(text: str) -> Any:
    """The JSON value in `text`, None if there is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def values(value: Any) -> set[str]:
    """The telling leaves of a JSON value: names, ids, dates; neither flags nor small numbers."""
    if isinstance(value, dict | list):
        return set().union(*map(values, value.values() if isinstance(value, dict) else value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {str(value)} if isinstance(value, float) or abs(value) >= 10 else set()
    return {value} if isinstance(value, str) and len(value) >= 2 and value.lower() not in _EMPTY else set()


def first_word(tool: str) -> str:
    """The first word of a tool's name in lower case: `order_seat`, `orderSeat` and `order.seat` give "order"."""
    found = _FIRST_WORD.search(tool)
    return found.group().lower() if found else tool.lower()


def mentions(goal: str, word: str) -> bool:
    """Whether `goal` speaks of `word`, in this form or with an ending ("book", "books", "booking")."""
    return position(goal, word) is not None


def position(goal: str, word: str) -> int | None:
    """Where in `goal` it first speaks of `word`; None if it does not."""
    wanted = word.lower()
    for found in _WORD.finditer(goal.lower()):
        if found.group().startswith(wanted) and len(found.group()) - len(wanted) <= 3:
            return found.start()
    return None


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as its list describes it."""

    name: str
    parameters: frozenset[str]
    required: frozenset[str]

    def takes(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with `arguments` has everything that is required and nothing that is unknown."""
        return self.required <= arguments.keys() <= self.parameters


def tool_specs(tools: Sequence[Mapping[str, Any]]) -> dict[str, ToolSpec]:
    """Tools by name, in the order of their list; what cannot be read is left out."""
    return {
        name: ToolSpec(name, *(frozenset(map(str, schema.get(part) or ())) for part in ("properties", "required")))
        for name, schema in offered(tools).items()
    }
