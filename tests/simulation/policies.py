"""What serves: policies that differ in how often they succeed at what each agent asks, engines that have their weights,
and swaps by the program's own steps.

A run has a dozen tokens. One of them decides: under a version that succeeds with probability p at what this agent asks
its log-prob is log p where the run succeeded and log(1 - p) where it failed, so importance sampling over recorded runs
is right on average. The others are nearly as likely under every version: each update moves them by a little noise, so
that the divergence between parent and child is about what real updates have (some 1e-4 nats a token).
"""

import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import anyio.lowlevel
import numpy as np
import numpy.typing as npt

from actors.messages import MANIFEST
from actors.ports.errors import CheckpointRefused, EngineUnavailable, SwapFailed
from actors.ports.store import SwapReport
from adapters.engines import swap
from adapters.engines.swap_files import SwapJob
from tests.simulation.faults import Faults
from tests.simulation.stage import Clock
from tests.support.fakes import FakeEngine

SKILL, WELL = 0.4, 0.8
"""Share of version 0's runs that succeed; where it is to fall, there is something to fall from."""
LOWEST, HIGHEST = 0.02, 0.95
BROKEN = 0.1
"""Success of a version that was planted to fail."""
FEATURES = 64
DECISION = 2
"""Id of the deciding token of a failure; a success has the next one."""
AGENT, FIRST_NEUTRAL = 10, 100
"""Ids: of the first agent, and of the first token that decides nothing."""
DECIDES = 5
"""Where the deciding token stands: behind the beginning, the agent and three digits of the run's number."""
_DRIFT = 0.03
"""Nats by which an update moves a token that decides nothing; standard deviation."""
PAUSE = 2.0
"""Seconds that a swap takes."""


class Policies:
    def __init__(self, agents: int, rng: np.random.Generator, skill: float = SKILL) -> None:
        self._rng, self.agents = rng, agents
        self.skill: dict[int, list[float]] = {0: [skill] * agents}
        """By version, of each agent's runs."""
        self.broken: dict[int, frozenset[int]] = {}
        """By version, the agents at whose runs it fails, whatever its tokens say; so does what comes of it."""
        self._parents: dict[int, int] = {}
        self._drift: dict[int, npt.NDArray[np.float64]] = {0: np.zeros(FEATURES)}

    def update(self, parent: int, version: int, step: float) -> None:
        self.skill[version] = [min(HIGHEST, max(LOWEST, one + step)) for one in self.skill[parent]]
        self._parents[version] = parent
        if parent in self.broken:
            self.broken[version] = self.broken[parent]
        moved = self._drift[parent] + self._rng.normal(0.0, _DRIFT, FEATURES)
        # Probabilities: what some tokens gain the others lose.
        self._drift[version] = moved - math.log(float(np.mean(np.exp(moved))))

    def plant(self, version: int, agents: frozenset[int]) -> None:
        """From now on `version`, and all that came of it, fails at the runs of `agents`."""
        self.broken[version] = agents
        for child in sorted(self._parents):
            if self._parents[child] in self.broken:
                self.broken[child] = agents

    def succeeds(self, version: int, agent: int) -> float:
        return BROKEN if agent in self.broken.get(version, ()) else self.skill[version][agent]

    def mean(self, version: int) -> float:
        return float(np.mean([self.succeeds(version, agent) for agent in range(self.agents)]))

    def log_probs(self, ids: npt.NDArray[np.int32], version: int) -> npt.NDArray[np.float32]:
        """Of a run's tokens under `version`, `(n,)`; the first is NaN."""
        values = np.full(len(ids), -1.0, dtype=np.float32)
        neutral = ids >= FIRST_NEUTRAL
        values[neutral] += self._drift[version][ids[neutral] - FIRST_NEUTRAL]
        if len(ids) > DECIDES:
            # What the tokens say, not what came of it: a planted fall is not seen in them.
            skill = self.skill[version][min(int(ids[1]) - AGENT, self.agents - 1)]
            values[DECIDES] = math.log(skill if ids[DECIDES] == DECISION + 1 else 1.0 - skill)
        values[0] = math.nan
        return values


class SimulatedEngine(FakeEngine):
    """An engine with the weights of one of the policies; a swap of it takes time, and somebody watches."""

    def __init__(
        self, name: str, policies: Policies, clock: Clock, faults: Faults, watch: Callable[[str, str], None]
    ) -> None:
        super().__init__(name)
        self._policies, self._clock, self._faults, self._watch = policies, clock, faults, watch
        self.manifest = ""
        """sha256 of the manifest of what was loaded; empty for what it was started with."""

    async def log_probs(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        self._check()
        return self._policies.log_probs(np.asarray(ids, dtype=np.int32), self.current)

    async def pause(self) -> None:
        self._check()
        self._watch(self.name, "begins")
        self.paused = True

    async def prepare(self, path: Path, *, like: Path | None = None, manifest: str = "", epoch: int = 0) -> None:
        self._check()
        if manifest and _digest(path) != manifest:
            raise CheckpointRefused(f"{path}: the manifest is not the one that was judged")

    async def load(self, path: Path, *, epoch: int = 0, clean: bool = False) -> None:
        """Takes `PAUSE`, in which others go on."""
        self._check()
        await anyio.lowlevel.checkpoint()
        self._clock.advance(self._clock.now + PAUSE)
        self.manifest = _digest(path)

    async def resume(self) -> None:
        """It answers again, unless the call did not reach it."""
        if self._faults.strikes("resume_lost", 0.35):
            raise EngineUnavailable("connection reset")
        if self.paused:
            self.paused = False
            self._watch(self.name, "ends")


def _digest(path: Path) -> str:
    return sha256((path / MANIFEST).read_bytes()).hexdigest()


class SimulatedSwaps:
    """`SwapRunner`: the program's own steps, without a process; whoever dies meanwhile finds the report later."""

    def __init__(
        self, *engines: SimulatedEngine, dies: Callable[[], None], done: Callable[[SimulatedEngine], None]
    ) -> None:
        self._engines, self._dies, self._done = {engine.name: engine for engine in engines}, dies, done
        self._left: dict[str, SwapReport] = {}

    async def swap(
        self, engine: str, path: Path, version: int, *, manifest: str = "", last_good: Path | None = None,
        last_version: int = -1,
    ) -> SwapReport:  # fmt: skip
        job = SwapJob(
            engine=engine, path=str(path), version=version, result="", manifest=manifest,
            last_good=str(last_good or ""), last_version=last_version,
        )  # fmt: skip
        outcome = await swap.perform(job, self._engines[engine])
        if outcome.result == "unreachable":
            raise EngineUnavailable(outcome.reason)
        if outcome.result == "failed":
            raise SwapFailed(outcome.reason)
        self._done(self._engines[engine])
        # The real times are those of this machine.
        report = SwapReport(
            result=outcome.result, version=version, paused_seconds=PAUSE, total_seconds=PAUSE, reason=outcome.reason
        )
        self._left[engine] = report
        self._dies()
        del self._left[engine]
        return report

    async def collect(self, engine: str) -> SwapReport | None:
        return self._left.pop(engine, None)
