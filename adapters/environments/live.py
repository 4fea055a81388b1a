"""`LiveEnvironment`: a sandbox over live APIs, for those who have no other.

    goals of yours -> reset -> the model's calls -> the APIs, as their policy lets them -> a grader's word

Nothing here can be reset, so nothing may be executed that changes something: each API stands behind its policy in
shadow mode (`adapters/live/guarded.py`), which executes what an operator listed as read-only, answers the rest from
records or its schema, and else refuses. No verifier can say whether a goal was reached in such a world; a grader does,
from the calls and what came back, and from calls that are known to reach the goal, where its line has some. Where it
abstains the attempt has no outcome and counts for nothing.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.messages import Step, Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed, LiveApiError, LiveApiRefused, ModelUnavailable
from actors.ports.models import Grader, needs_reference
from actors.ports.tool_answers.reader import flagged
from actors.tasks.reference_calls import ReferenceCall
from adapters.live import LiveApi, Operation

NAME = "live"
_HELD_OUT = 5
"""One goal in so many is held out."""
_LISTED_SECONDS = 60.0
"""How long a list of tools is good."""


class Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file of goals."""

    goal: str
    system: str = ""
    """System prompt, as your agents have it; empty for the environment's."""
    reference: tuple[ReferenceCall, ...] = ()
    """Calls that are known to reach it, such as those of a production run that did: for a grader that compares."""


class LiveEpisode:
    """One attempt: the model calls tools until it answers without calling one."""

    graded = True

    def __init__(self, task: Task, goal: Goal, opening: list[dict[str, Any]], api: LiveApi,
                 tools: list[dict[str, Any]], grader: Grader, limit: int) -> None:  # fmt: skip
        self._task, self._api, self._grader, self._limit = task, api, grader, limit
        self._reference = [call.call(number) for number, call in enumerate(goal.reference)]
        self.messages, self.tools = opening, tools
        self._steps: list[Step] = []
        self._done = False

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """The APIs' answers, one for each call, in order; a turn without calls is the model's last word."""
        if self._done:
            return Observation("over", True)
        answers = [await self._call(call) for call in calls]
        self._done = not calls or len(self._steps) + 1 >= self._limit
        told = "\n".join(answers)
        self._steps.append(
            Step(
                exchange_id=f"step-{len(self._steps)}", text=text, tool_calls=tuple(calls),
                # The grader must see what the last calls came to; without calls nothing came.
                observation=told,
            )
        )  # fmt: skip
        messages = tuple(
            {"role": "tool", "tool_call_id": call.id or "none", "content": answer}
            for call, answer in zip(calls, answers, strict=True)
        )
        return Observation(told, self._done, messages)

    async def _call(self, call: ToolCall) -> str:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments of {call.name[:64]!r} are not JSON: {error}"
        if not isinstance(arguments, dict):
            return f"Error: the arguments of {call.name[:64]!r} are not a JSON object"
        try:
            result = await self._api.call(call.name, arguments)
            return flagged(result.text, result.error)
        except LiveApiRefused as error:
            return f"Error: {error}"
        except LiveApiError as error:
            raise EnvironmentFailed(f"{type(error).__name__}: {error}") from error

    async def evaluate(self) -> float:
        if not self._done:
            return 0.0
        try:
            grade = await self._grader.grade(self._task, self._steps, reference=self._reference)
        except ModelUnavailable as error:
            raise EnvironmentFailed(f"no grade: {error}") from error
        if grade.score is None:
            raise EnvironmentFailed(f"no grade: {self._grader.name} abstains: {grade.reason}")
        return grade.score

    async def aclose(self) -> None:
        """Nothing is held: the APIs are their owner's."""


class LiveEnvironment:
    """Your goals, your APIs, a grader's word."""

    name = NAME

    def __init__(
        self,
        api: LiveApi,
        grader: Grader | None,
        *,
        goals: str = "",
        system: str = "",
        limit: int = 24,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            api: usually all that are registered, each behind its policy.
            grader: says how well an attempt went.
            goals: JSON lines file, a `Goal` each; what your agents were asked for is the best there is.
            system: system prompt of goals that have none of their own.
            limit: turns of an attempt.

        Raises:
            AdapterNotSetUp: no grader, or one that compares with references that the goals do not have, or a file of
                goals that cannot be used.
        """
        if grader is None:
            raise AdapterNotSetUp('nothing verifies an attempt at live APIs: name one, sandbox.grader = "open"')
        if limit < 1:
            raise AdapterNotSetUp(f"limit = {limit} must be at least 1")
        self._api, self._grader, self._system, self._limit, self._clock = api, grader, system, limit, clock
        self._goals: dict[Split, list[Goal]] = {"train": [], "heldout": []}
        found = _read(goals)
        without = [goal.goal for goal in found if not goal.reference]
        if without and needs_reference(grader):
            raise AdapterNotSetUp(
                f"grader {grader.name} compares with a reference, and {len(without)} of {len(found)} goals in goals ="
                f" {goals!r} have none, such as {without[0][:60]!r}: it would never grade them. Add calls that"
                ' reached the goal, "reference": [{"name": ..., "arguments": {...}}], or set sandbox.grader = "open"'
            )
        for goal in found:
            self._goals["heldout" if _held_out(goal) else "train"].append(goal)
        for split, part in self._goals.items():
            if not part:
                raise AdapterNotSetUp(
                    f"goals = {goals!r}: no goal falls to the {split} part (one in {_HELD_OUT} is held out); give more"
                )
        self._operations: Sequence[Operation] = ()
        self._listed = float("-inf")

    def profile(self) -> Profile:
        apis = sorted({tag for one in self._operations for tag in one.tags[:1]})
        return Profile(name=NAME, description=f"Live APIs: {', '.join(apis) or 'not listed yet'}.")

    def tools(self) -> list[dict[str, Any]]:
        """The tools as they were listed last; none before the first attempt."""
        return [_tool(one) for one in self._operations]

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        if families:
            raise ValueError("live APIs have no families of tasks; leave sandbox.families empty")
        goals = self._goals[split]
        goal = goals[seed % len(goals)]
        return Task(
            id=derived_id(NAME, split, seed),
            goal=goal.goal,
            environment=NAME,
            spec=msgspec.json.decode(msgspec.json.encode(goal)),  # lists, as they are behind the wire
            origin="heldout" if split == "heldout" else "environment",
        )

    async def reset(self, task: Task) -> LiveEpisode:
        try:
            goal = msgspec.convert(task.spec, Goal)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a task of the live APIs: {error}") from error
        if task.environment != NAME:
            raise EnvironmentFailed(f"not a task of the live APIs: {task.environment!r}")
        if self._clock() - self._listed > _LISTED_SECONDS or not self._operations:
            try:
                self._operations = await self._api.tools()
            except LiveApiError as error:
                raise EnvironmentFailed(f"{type(error).__name__}: {error}") from error
            self._listed = self._clock()
        if not self._operations:
            raise EnvironmentFailed("no live API has a tool; `evolved adapters list` says which are there")
        system = goal.system or self._system
        opening: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        opening.append({"role": "user", "content": goal.goal})
        return LiveEpisode(task, goal, opening, self._api, self.tools(), self._grader, self._limit)


def _tool(one: Operation) -> dict[str, Any]:
    parameters = one.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": one.name, "description": one.description or one.title, "parameters": parameters},
    }


def _held_out(goal: Goal) -> bool:
    digest = hashlib.sha256(goal.goal.encode("utf-8", "surrogatepass")).digest()
    return digest[0] % _HELD_OUT == 0


def _read(path: str) -> list[Goal]:
    if not path:
        raise AdapterNotSetUp('goals is empty: name a file with a line {"goal": "..."} for each')
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise AdapterNotSetUp(f"goals = {path!r}: {error.strerror}") from error
    found: dict[str, Goal] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            goal = msgspec.json.decode(line, type=Goal)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AdapterNotSetUp(f'goals = {path!r}, line {number}: {error}; write {{"goal": "..."}}') from error
        if goal.goal.strip():
            found[goal.goal] = goal
    return list(found.values())
