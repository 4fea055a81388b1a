"""A way that nobody has gone yet: the shadow policy's own attempts, of which a grader says whether one got there.

The environment has no verifier for a goal that is not its own, so without a grader nothing is searched: an attempt that
merely changed something would teach the policy its own mistakes.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Any

import msgspec

from actors.messages import Task, ToolCall, Trajectory, derived_id
from actors.ports.engines import Engine
from actors.ports.environments import Environment, Episode, Observation
from actors.ports.models import Grader
from actors.rollout.episode_runner import begin, play
from actors.rollout.errors import EpisodeLost
from actors.tasks.reference_calls import SyntheticTaskSpec


class ShadowSearch:
    """Finds a way that nobody has gone yet, by the policy's own attempts."""

    def __init__(
        self,
        *,
        engine: Engine,
        environment: Environment,
        grader: Grader,
        rng: Random,
        clock: Callable[[], float],
        attempts: int = 4,
        max_steps: int = 24,
        max_tokens: int = 512,
        step_timeout: float = 60.0,
    ) -> None:
        """
        Args:
            attempts: at one goal, one after the other.
            max_tokens: per step.
            step_timeout: seconds for one answer of the engine or the environment.
        """
        self._attempts, self._max_steps, self._max_tokens = attempts, max_steps, max_tokens
        self._step_timeout, self._engine, self._environment = step_timeout, engine, environment
        self._grader, self._rng, self._clock = grader, rng, clock

    async def search(self, base: Task, goal: str) -> Trajectory | None:
        """The first attempt at `goal` in the world of `base` that the grader calls achieved; None if there is none."""
        spec = SyntheticTaskSpec(
            base=base.spec, base_goal=base.goal, reference=(), verifier="graded", environment=base.environment
        )
        task = Task(
            id=derived_id("search", base.id, goal), goal=goal, environment=base.environment, origin="production",
            spec=msgspec.to_builtins(spec),
        )  # fmt: skip
        for _ in range(self._attempts):
            try:
                run = await self._attempt(task)
            except EpisodeLost:
                continue
            if (await self._grader.grade(task, run.steps)).achieved:
                return run
        return None

    async def _attempt(self, task: Task) -> Trajectory:
        started = self._clock()
        async with aclosing(await begin(self._environment, task, self._step_timeout)) as episode:
            played = await play(
                self._engine, _Ungraded(episode), max_steps=self._max_steps, max_tokens=self._max_tokens,
                seed=self._rng.getrandbits(31), timeout=self._step_timeout,
            )  # fmt: skip
        return Trajectory(
            id=derived_id(task.id, started, self._rng.random()), source="sandbox", goal=task.goal, steps=played.steps,
            tools=json.dumps(played.tools).encode(), started=started, ended=self._clock(),
        )  # fmt: skip


class _Ungraded:
    """An episode whose outcome is asked for elsewhere: the grader is asked once, with all steps."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self.messages: list[dict[str, Any]] = episode.messages
        self.tools: list[dict[str, Any]] = episode.tools

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        seen = await self._episode.step(calls, text)
        self.tools = self._episode.tools
        return seen

    async def evaluate(self) -> float:
        return 0.0

    async def aclose(self) -> None:
        await self._episode.aclose()
