"""What the actors look at: a clock, policies that differ in how often they succeed, an engine, and agents' runs.

A run has a dozen tokens. One of them decides: under a version that succeeds with probability p its log-prob is log p
where the run succeeded and log(1 - p) where it failed, so importance sampling over recorded runs is right on average.
The others are nearly as likely under every version: each update moves them by a little noise, so that the divergence
between parent and child is about what real updates have (some 1e-4 nats a token).
"""

import math
import random
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.kinds.clusters import cluster_of
from actors.messages import (
    Attributed,
    Attribution,
    Feedback,
    Step,
    StepLabel,
    TokenRow,
    ToolCall,
    Trajectory,
    derived_id,
    pack_array,
)
from tests.support.fakes import FakeEngine

_TICK = 1e-6
"""Seconds that pass between two looks at the clock: what happens one after the other has times in that order."""
_FEATURES = 64
_DRIFT = 0.03
"""Nats by which an update moves a token that decides nothing; standard deviation."""
_PROMPT, _NEUTRAL = 4, 7
_DECISION = 2
"""Id of the deciding token of a failure; a success has the next one."""
_FIRST_NEUTRAL = 100
LOWEST, HIGHEST = 0.02, 0.95
_SECONDS = 5.0
"""How long a run takes."""
_GOALS = ("Refund order {}", "Track parcel {} for the customer", "Change the address of account {}")
_TOOLS = b'[{"type":"function","function":{"name":"act","parameters":{"type":"object","properties":{}}}}]'


class Clock:
    """Time that the simulation moves."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += _TICK
        return self.now

    def advance(self, to: float) -> None:
        """Never backwards."""
        self.now = max(self.now, to)


class Policies:
    """How the versions act."""

    def __init__(self, skill: float, rng: np.random.Generator) -> None:
        """
        Args:
            skill: share of version 0's runs that succeed.
        """
        self._rng = rng
        self.skill: dict[int, float] = {0: skill}
        self._drift: dict[int, npt.NDArray[np.float64]] = {0: np.zeros(_FEATURES)}

    def update(self, parent: int, version: int, step: float) -> None:
        """`version` is `parent`, better by `step`."""
        self.skill[version] = min(HIGHEST, max(LOWEST, self.skill[parent] + step))
        moved = self._drift[parent] + self._rng.normal(0.0, _DRIFT, _FEATURES)
        # Probabilities: what some tokens gain the others lose.
        self._drift[version] = moved - math.log(float(np.mean(np.exp(moved))))

    def log_probs(self, ids: npt.NDArray[np.int32], version: int) -> npt.NDArray[np.float32]:
        """Of a run's tokens under `version`, `(n,)`; the first is NaN."""
        values = np.full(len(ids), -1.0, dtype=np.float32)
        neutral = ids >= _FIRST_NEUTRAL
        values[neutral] += self._drift[version][ids[neutral] - _FIRST_NEUTRAL]
        skill = self.skill[version]
        values[_PROMPT] = math.log(skill if ids[_PROMPT] == _DECISION + 1 else 1.0 - skill)
        values[0] = math.nan
        return values


class PolicyEngine(FakeEngine):
    """An engine with the weights of one of the policies."""

    def __init__(self, name: str, policies: Policies) -> None:
        super().__init__(name)
        self._policies = policies

    async def log_probs(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        return self._policies.log_probs(np.asarray(ids, dtype=np.int32), self.current)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent did, and when who said what of it."""

    attributed: Attributed
    """As it closes."""
    closes: float
    """Unix seconds."""
    late: Feedback | None = None
    """What is said of it after it closed."""


class Agents:
    """Makes runs."""

    def __init__(self, policies: Policies, rng: random.Random, *, name: str, feedback: float, idle: float) -> None:
        """
        Args:
            name: makes ids.
            feedback: share of the runs that are reported on.
            idle: seconds after which a run that nobody reports on closes.
        """
        self._policies, self._rng, self._name = policies, rng, name
        self._feedback, self._idle = feedback, idle
        self._count = 0

    def act(self, now: float, version: int, *, late_share: float, delay: float) -> Run:
        """One run, sampled by `version`."""
        rng, policies = self._rng, self._policies
        self._count += 1
        number, identity = self._count, derived_id("run", self._name, self._count)
        success = rng.random() < policies.skill[version]
        goal = _GOALS[rng.randrange(len(_GOALS))].format(10_000 + number)
        ended = now + _SECONDS
        reported = rng.random() < self._feedback
        waits = rng.expovariate(1.0 / delay) if rng.random() < late_share else 0.0
        in_time = reported and waits < self._idle
        trajectory = Trajectory(
            id=identity, goal=goal, tools=_TOOLS, outcome=float(success) if in_time else None,
            steps=(Step(exchange_id=f"x-{identity}", tool_calls=(ToolCall("act", "{}"),), row=0),),
            rows=(self._row(number, success, version),), closed_by="feedback" if in_time else "idle",
            started=now, ended=ended, min_version=version, max_version=version,
        )  # fmt: skip
        label = StepLabel("GOOD" if success else "BAD", 0.9)
        attribution = Attribution(labels=(label,), judge="rules", rubric="1")
        late = None
        if reported and not in_time:
            late = Feedback(
                id=derived_id("feedback", identity), received=ended + waits, exchange_id=f"x-{identity}",
                trajectory_id=identity, outcome=float(success),
            )  # fmt: skip
        return Run(
            attributed=Attributed(
                id=identity, trajectory=trajectory, attribution=attribution, cluster=cluster_of(goal)
            ),
            closes=ended + (waits if in_time else self._idle),
            late=late,
        )  # fmt: skip

    def _row(self, number: int, success: bool, version: int) -> TokenRow:
        ids = [1, *(10 + (number >> shift) % 64 for shift in (12, 6, 0)), _DECISION + success]
        ids += [_FIRST_NEUTRAL + self._rng.randrange(_FEATURES) for _ in range(_NEUTRAL)]
        sampled = np.arange(len(ids)) >= _PROMPT
        scores = self._policies.log_probs(np.asarray(ids, dtype=np.int32), version)
        return TokenRow(
            ids=pack_array(ids, "<i4"),
            step=pack_array(np.where(sampled, 0, -1), "<i2"),
            logprobs=pack_array(np.where(sampled, scores, 0.0), "<f4"),
            versions=pack_array(np.where(sampled, version, -1), "<i4"),
        )
