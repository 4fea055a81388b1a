"""`LlmGrader`: grades by any model behind an OpenAI-compatible endpoint, anchored in a reference or without one (open).

    task, steps, reference -> screening -> prompt -> endpoint -> reading -> repetition gate -> Grade

A model that is away, refuses, cannot be read, or is out of budget abstains, counted by reason: the attempt is masked,
never 0. Praise of an agent that speaks to its judge is not believed, and where tools or users do, nobody is asked.
"""

import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import anyio

from actors.messages import Step, Task, ToolCall, Trajectory
from actors.ports.errors import ModelUnavailable
from actors.ports.models import Grade
from adapters.chat.endpoint import ChatEndpoint
from adapters.chat.keys import read_key
from adapters.chat.quoting import fresh_mark
from adapters.chat.settings import EndpointSettings, settings_of
from adapters.graders import prompt
from adapters.graders.repetition import gated
from adapters.judges.screening import agent_speaks, speaks_to_judge


class GraderSettings(EndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the graders "anchored" and "open"."""

    max_tokens: int = 1024
    patience: float = 60.0
    """Seconds for one grade, all attempts included."""
    tokens_per_hour: int = 1_000_000
    """Of prompts and answers together."""
    shape: prompt.Shape = prompt.Shape()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.patience > 0 or self.tokens_per_hour < 1:
            raise ValueError("patience must be above 0 and tokens_per_hour at least 1")


class LlmGrader:
    """A `Grader`; `aclose()` at the end.

    Args:
        anchored: whether it compares with a reference; without one it abstains then.
    """

    def __init__(
        self,
        settings: GraderSettings,
        *,
        anchored: bool,
        key: str = "",
    ) -> None:
        self._settings, self.needs_reference = settings, anchored
        self._endpoint = ChatEndpoint(settings, key=key, rng=random.Random(), clock=time.time)
        self._spent: deque[tuple[float, int]] = deque()
        self.name = f"{'anchored' if anchored else 'open'}:{settings.model}"
        self.counts: Counter[str] = self._endpoint.counts
        """Grades: `graded`, `irrelevant`, `capped`. Abstentions: `no_reference`, `nothing_done`, `screened`,
        `out_of_budget`, `away`, the endpoint's `refused`, `rejected`, `too_long`, `too_large`, `not_json`, `empty`, and
        `unparsable`, `truncated`, `wrong_mark`, `forbidden_band`, `contradiction`. And what the endpoint counts."""
        self.tokens = 0
        """Spent in all."""
        self.cost = 0.0

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    async def grade(
        self,
        task: Task,
        steps: Sequence[Step],
        *,
        reference: Sequence[ToolCall] = (),
    ) -> Grade:
        if not steps:
            self.counts["nothing_done"] += 1
            return Grade(score=0.0, reason="nothing was done")
        if self.needs_reference and not reference:
            return self._abstain("no_reference")
        if any(map(speaks_to_judge, [task.goal, *(step.observation for step in steps)])):
            return self._abstain("screened", "a tool or a user speaks to the judge")
        if not self._has_budget():
            return self._abstain("out_of_budget")
        shown = Trajectory(id="", goal=task.goal, steps=tuple(steps), started=0.0, ended=0.0)
        mark = fresh_mark([shown])
        known = tuple(reference) if self.needs_reference else ()
        messages = prompt.compose(task, steps, known, self._settings.shape, mark)
        try:
            reply = await self._endpoint.ask(messages, prompt.SCHEMA, anyio.current_time() + self._settings.patience)
        except ModelUnavailable as error:
            return self._abstain("away", str(error))
        self.tokens, self.cost = self.tokens + reply.tokens, self.cost + reply.cost
        self._spent.append((time.monotonic(), reply.tokens))
        if reply.problem:
            return self._abstain(reply.problem, tokens=reply.tokens, cost=reply.cost)
        reading = prompt.read(reply.content, mark=mark, truncated=reply.truncated)
        if reading.problem is not None:
            return self._abstain(reading.problem, tokens=reply.tokens, cost=reply.cost)
        grade = Grade(score=reading.score, reason=reading.reason, tokens=reply.tokens, cost=reply.cost)
        if grade.achieved and any(map(agent_speaks, steps)):
            return self._abstain("screened", "the agent speaks to its judge", tokens=reply.tokens, cost=reply.cost)
        self.counts["graded"] += 1
        capped = gated(grade, steps)
        self.counts["capped"] += capped is not grade
        return capped

    def _abstain(self, reason: str, words: str = "", *, tokens: int = 0, cost: float = 0.0) -> Grade:
        self.counts[reason] += 1
        return Grade(reason=f"{reason}: {words}"[:200] if words else reason, tokens=tokens, cost=cost)

    def _has_budget(self) -> bool:
        now = time.monotonic()
        while self._spent and now - self._spent[0][0] >= 3600.0:
            self._spent.popleft()
        return sum(tokens for _, tokens in self._spent) < self._settings.tokens_per_hour


def anchored(**options: Any) -> LlmGrader:
    """The grader that compares with the reference; `options` are `GraderSettings`.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    return _made(True, options)


def unanchored(**options: Any) -> LlmGrader:
    """The grader that knows the goal alone; `options` are `GraderSettings`.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    return _made(False, options)


def _made(anchored: bool, options: dict[str, Any]) -> LlmGrader:
    settings = settings_of(GraderSettings, options)
    return LlmGrader(settings, anchored=anchored, key=read_key(settings.key_env, settings.key_file))
