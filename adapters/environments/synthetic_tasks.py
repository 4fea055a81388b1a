"""`SyntheticTasks`: an environment around another, for tasks that the system set itself.

A self-made task begins in the world of one of the environment's own tasks, with another goal, and its verifier is an
execution: the recorded reference is replayed in a fresh instance, and the attempt is good if it reaches the state that
the reference reaches. The replay happens when the task is attempted, not when it was made: a world that has drifted in
the meantime moves the mark along with it, and a reference that it no longer takes is an environment that failed, never
an agent that did. Tasks that are not self-made pass through.

    task of the questioner, or from a production failure -> reset -> attempt -> evaluate: state against replayed state
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from actors.messages import Step, Task, ToolCall, derived_id
from actors.ports.environments import Environment, Episode, Observation, Profile, Split
from actors.ports.errors import EnvironmentFailed, ModelUnavailable
from actors.ports.models import Grader
from actors.tasks.reference_calls import Reached, SyntheticTaskSpec, replay, state_of

_CACHED = 1024
"""References whose outcome is remembered."""
_ANSWER_WORDS = 24
"""Words that an answer may have beside the value: who lists all values has not answered."""
_WORD = re.compile(r"\w+")


class SyntheticEpisode:
    """One attempt at a self-made task."""

    def __init__(
        self, task: Task, spec: SyntheticTaskSpec, base: Episode, reached: Reached | None, grader: Grader | None
    ) -> None:
        self._task, self._spec, self._base, self._reached, self._grader = task, spec, base, reached, grader
        self.messages: list[dict[str, Any]] = _opened(base.messages, spec.base_goal, task.goal)
        self.tools = base.tools
        self._steps: list[Step] = []
        self._done = False

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """The world's answer; a turn without calls ends the attempt where no tool does."""
        if self._done:
            return Observation("over", True)
        if not calls and (self._reached is None or not self._reached.closes):
            # The base's own user would go on with the base's own conversation.
            seen = Observation("", True)
        else:
            seen = await self._base.step(calls, text)
            self.tools = self._base.tools
        self._done = seen.done
        self._steps.append(
            Step(
                exchange_id=f"step-{len(self._steps)}",
                text=text,
                tool_calls=tuple(calls),
                observation="" if seen.done else seen.text,
            )
        )
        return seen

    async def evaluate(self) -> float:
        """1.0 if the reference's state is reached (and its answer given), else 0.0; or the grader's word."""
        if not self._done:
            return 0.0
        if self._spec.verifier == "graded":
            if self._grader is None:
                raise EnvironmentFailed("a task with verifier 'graded' came to an environment without a grader")
            reference = [call.call(number) for number, call in enumerate(self._spec.reference)]
            grade = await self._grader.grade(self._task, self._steps, reference=reference)
            if grade.score is None:  # no outcome, which is not a bad one
                raise ModelUnavailable(f"{self._grader.name} abstains: {grade.reason}")
            return grade.score
        if self._reached is None or await self.state() != self._reached.state:
            return 0.0
        if self._spec.verifier == "answer":
            return float(_says(self._steps[-1].text, self._reached.answer))
        return 1.0

    @property
    def graded(self) -> bool:
        """The outcome is the grader's word."""
        return self._spec.verifier == "graded"

    async def state(self) -> dict[str, Any]:
        return await state_of(self._base)

    async def aclose(self) -> None:
        await self._base.aclose()


class SyntheticTasks:
    """An `Environment` that knows self-made tasks beside those of `environment`.

    Args:
        environment: the worlds in which they play.
        grader: for tasks that no state can verify; None: such tasks fail to begin.
    """

    def __init__(self, environment: Environment, grader: Grader | None = None) -> None:
        self._environment, self._grader = environment, grader
        self.name = environment.name
        self._cache: OrderedDict[tuple[str, str], Reached] = OrderedDict()
        self._locks: dict[tuple[str, str], anyio.Lock] = {}
        self.counts: Counter[str] = Counter()
        """`replayed`: references that were executed; `no_longer_replays`: those whose world has changed too much."""

    def profile(self) -> Profile:
        return self._environment.profile()

    def tools(self) -> list[dict[str, Any]]:
        return self._environment.tools()

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        return self._environment.sample(seed, split, families)

    async def reset(self, task: Task) -> Episode:
        spec = SyntheticTaskSpec.of(task)
        if spec is None:
            return await self._environment.reset(task)
        if spec.environment != self.name or task.environment != self.name:
            raise EnvironmentFailed(f"a self-made task of {spec.environment!r} came to {self.name!r}")
        if spec.verifier == "graded" and self._grader is None:
            raise EnvironmentFailed("a task with verifier 'graded' came to an environment without a grader")
        reached = await self._reached(task.id, spec) if spec.reference else None
        if reached is None and spec.verifier != "graded":
            raise EnvironmentFailed(f"a task with verifier {spec.verifier!r} needs a reference")
        if reached is not None and reached.problem and spec.verifier != "graded":
            self.counts["no_longer_replays"] += 1
            raise EnvironmentFailed(f"the reference of self-made task {task.id} no longer replays: {reached.problem}")
        base = await self._environment.reset(spec.base_task)
        return SyntheticEpisode(task, spec, base, reached, self._grader)

    async def _reached(self, task_id: str, spec: SyntheticTaskSpec) -> Reached:
        """The outcome of the reference in the world as it is now; executed once for the attempts of a group."""
        now = msgspec.json.encode(self._environment.tools(), order="deterministic").hex()
        key = (derived_id(task_id, msgspec.json.encode(spec, order="deterministic").hex()), derived_id(now))
        async with self._locks.setdefault(key, anyio.Lock()):
            try:
                if key in self._cache:
                    self._cache.move_to_end(key)
                else:
                    self.counts["replayed"] += 1
                    self._cache[key] = await replay(self._environment, spec)
                    if len(self._cache) > _CACHED:
                        self._cache.popitem(last=False)
                return self._cache[key]
            finally:
                if not self._locks[key].statistics().tasks_waiting:
                    del self._locks[key]


def _opened(messages: Sequence[dict[str, Any]], base_goal: str, goal: str) -> list[dict[str, Any]]:
    """`messages` with `goal` where the user's opening words are, or in the place of `base_goal` within them."""
    opened = [dict(message) for message in messages]
    asked = next((message for message in reversed(opened) if message.get("role") == "user"), None)
    if asked is None:
        return [*opened, {"role": "user", "content": goal}]
    content = asked.get("content")
    if isinstance(content, str) and base_goal and base_goal in content:
        asked["content"] = content.replace(base_goal, goal, 1)
    else:
        asked["content"] = goal
    return opened


def _says(text: str, value: str) -> bool:
    """Whether `text` gives `value` as an answer: all its words in a row, and few others."""
    said, wanted = _WORD.findall(text.casefold()), _WORD.findall(value.casefold())
    if not wanted or len(said) > len(wanted) + _ANSWER_WORDS:
        return False
    return any(said[at : at + len(wanted)] == wanted for at in range(len(said) - len(wanted) + 1))
