"""One cell: the real curator, gatekeeper, swapper and sentinel at their defaults, agents, and a simulated learner."""

import contextlib
import logging
import math
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import structlog

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.deployment.swapper import Swapper, SwapperSettings
from actors.gate.drift import DriftCheck, DriftSettings
from actors.gate.gatekeeper import Gatekeeper, GatekeeperSettings
from actors.gate.panel import Panel, PanelSettings
from actors.gate.replay_trial import ReplayTrial, ReplayTrialSettings
from actors.gate.sandbox_trial import Trial
from actors.messages import Directive, Feedback, Message, derived_id
from actors.messages.signing import SigningKey, sign
from actors.monitoring.sentinel import Sentinel, SentinelSettings
from actors.store import Joined, Store
from actors.system.streams import (
    POLICY_DIRECTIVE,
    TRAFFIC_FEEDBACK,
    TRAJECTORY_ATTRIBUTED,
    TRAJECTORY_CLOSED,
)
from actors.versions.version_timeline import VersionTimeline
from tests.benchmarks.standstill.learner import STEPS, SimulatedLearner
from tests.benchmarks.standstill.loop import Loop
from tests.benchmarks.standstill.meter import Meter, Ran
from tests.benchmarks.standstill.plan import DELAY, PROMOTIONS, Cell
from tests.benchmarks.standstill.world import Agents, Clock, Policies, PolicyEngine, Run
from tests.support.fakes import FakeRunner
from tests.support.keys import key_pair

SERVING, SHADOW = "serving", "shadow"
SKILL = 0.4
"""Share of version 0's runs that succeed."""
IDLE = 900.0
"""Seconds after which the assembler closes a run of which nobody says anything; its default."""
THAW = 600.0
"""Seconds after which somebody has looked at a freeze and lets learning go on."""
_EPOCH = 1_800_000_000.0
_GATHER = 5.0
"""Seconds: what closes in so long reaches the actors together, for the judge takes as long."""
_SILENT, _SILENT_MINUTES = 16, 5.0
"""Runs that nobody reports on are handed on together, by so many or those of so long: they are most of the work."""


class Unlucky:
    """`Trial` that has bad luck with its first decisions: they are rejections, whatever was measured."""

    def __init__(self, trial: Trial, times: int) -> None:
        self._trial, self._left = trial, times

    async def compare(self, *args: Any, **options: Any) -> Any:
        comparison = await self._trial.compare(*args, **options)
        # A hold decides nothing; where there is no evidence, there is no luck.
        if self._left and comparison.decision in ("promote", "reject"):
            self._left -= 1
            return msgspec.structs.replace(comparison, decision="reject", reason=f"bad luck: {comparison.reason}")
        return comparison

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)


class World:
    """The cell's actors and what they work on."""

    def __init__(self, cell: Cell, seed: int, *, state: Path) -> None:
        self.cell = cell
        self._rng = random.Random(f"{seed}-{cell.name}")
        self.clock = Clock(_EPOCH)
        self.policies = Policies(SKILL, np.random.default_rng([seed, *cell.name.encode()]))
        self.serving = PolicyEngine(SERVING, self.policies)
        shadow = PolicyEngine(SHADOW, self.policies)
        versions, clock = state / "versions", self.clock
        self.learner = SimulatedLearner(self.policies, step=STEPS[cell.scenario], versions=versions, clock=clock)
        self.key, keys = key_pair(state / "keys")
        self.store = Store(f"sqlite:///{state / 'store.db'}", clock=clock)
        runner, times = FakeRunner(self.serving, shadow), VersionTimeline(clock)
        curator = Curator(
            CuratorSettings(groups_per_batch=0), store=self.store, batches=state / "batches", clock=clock
        )  # fmt: skip
        # No checks of prompts and of safety: they ask for words, and these policies have none.
        replay = ReplayTrial(ReplayTrialSettings(), engine=shadow, store=self.store)
        panel = Panel(
            PanelSettings(), trial=replay, checks=[DriftCheck(DriftSettings(), engine=shadow, store=self.store)]
        )
        gatekeeper = Gatekeeper(
            GatekeeperSettings(), store=self.store, shadow=shadow, shadow_name=SHADOW, runner=runner,
            trial=Unlucky(panel, cell.luck), versions=versions, key=self.key, clock=clock, times=times,
        )  # fmt: skip
        swapper = Swapper(
            SwapperSettings(), store=self.store, engines={SERVING: self.serving}, runner=runner, versions=versions,
            key=self.key, keys=keys, clock=clock, times=times,
        )  # fmt: skip
        sentinel = Sentinel(
            SentinelSettings(), store=self.store, engines={SERVING: self.serving, SHADOW: shadow}, clock=clock
        )
        self.meter = Meter(cell, clock, lambda: swapper.fleet)
        self.loop = Loop(
            [curator, gatekeeper, swapper, sentinel], store=self.store, learner=self.learner, clock=clock,
            seen=self._seen, recorded=self.meter.recorded,
        )  # fmt: skip
        self._agents = Agents(self.policies, self._rng, name=f"{seed}-{cell.name}", feedback=cell.feedback, idle=IDLE)
        self._closed: list[Run] = []
        self._silent: list[Run] = []
        self._thaws = 0

    async def play(self) -> None:
        """Until enough promotions stuck, or the bound."""
        await self.store.open()
        try:
            await self.loop.start()
            self._next()
            while self.meter.runs < self.cell.limit and self.meter.settled < PROMOTIONS:
                await self.loop.step()
        finally:
            await self.store.aclose()

    def _next(self) -> None:
        self.loop.at(self.clock.now + self._rng.expovariate(self.cell.rate / 60.0), self._arrive)

    async def _arrive(self) -> None:
        self.meter.began()
        run = self._agents.act(self.clock(), self.serving.current, late_share=self.cell.late, delay=DELAY)
        # Everything that closes within a few seconds is handed on together.
        when = math.ceil(run.closes / _GATHER) * _GATHER
        self.loop.at(when, lambda: self._close(run, when))
        if run.late is not None:
            late = run.late
            self.loop.at(late.received, lambda: self._late(late))
        self._next()

    async def _close(self, run: Run, when: float) -> None:
        if run.attributed.trajectory.outcome is not None or run.late is not None:
            self._closed.append(run)
        else:
            self._silent.append(run)
            if len(self._silent) < min(_SILENT, _SILENT_MINUTES * self.cell.rate):
                return
            self._closed, self._silent = [*self._silent, *self._closed], []
        # After all others that close at the same moment.
        self.loop.at(when, self._hand_on)

    async def _hand_on(self) -> None:
        closed, self._closed = self._closed, []
        if not closed:
            return
        items = [run.attributed for run in closed]
        runs = [item.trajectory for item in items]
        await self.store.save([*runs, *items])
        for run in runs:
            if run.outcome is not None:
                self.meter.reported(run.id)
        await self.loop.say(TRAJECTORY_CLOSED, *runs, record=False)
        await self.loop.say(TRAJECTORY_ATTRIBUTED, *items, record=False)

    async def _late(self, late: Feedback) -> None:
        """As the assembler does: it is written down, and the run's row takes the outcome over."""
        self.meter.reported(late.trajectory_id)
        await self.store.save([late, Joined(id=late.id, trajectory_id=late.trajectory_id, outcome=late.outcome)])
        await self.loop.say(TRAFFIC_FEEDBACK, late, record=False)

    def _seen(self, message: Message) -> None:
        self.meter.seen(message)
        if isinstance(message, Directive) and message.kind == "freeze":
            self.loop.at(self.clock.now + THAW, self._thaw)

    async def _thaw(self) -> None:
        if not await self.store.frozen():
            return
        self._thaws += 1
        await self.loop.say(POLICY_DIRECTIVE, thaw(self._thaws, self.clock(), self.key))


def thaw(number: int, now: float, key: SigningKey) -> Directive:
    """Somebody looked, and lets learning go on."""
    order = Directive(
        id=derived_id("thaw", number), kind="thaw", reason="looked at", origin="operator", created=now
    )  # fmt: skip
    return sign(order, key)


def simulate(cell: Cell, seed: int) -> Ran:
    """Play one cell."""
    began = time.perf_counter()
    with silence(), tempfile.TemporaryDirectory(prefix="standstill-", dir=_memory()) as state:
        world = World(cell, seed, state=Path(state))
        # Trio shuffles its tasks; the same seed must give the same cell.
        anyio.run(world.play, backend="asyncio")
    return world.meter.result(
        trained=world.learner.trained, refused=world.learner.dropped,
        skill=world.policies.skill[world.serving.current], wall=round(time.perf_counter() - began, 2),
    )  # fmt: skip


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Meanwhile no actor logs."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _memory() -> str | None:
    """A directory that is no disk, if there is one: each order is synced to disk before it is sent."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
