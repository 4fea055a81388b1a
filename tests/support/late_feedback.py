"""Assembler, curator, experiencer and failures on one store, driven step by step, with a clock to turn."""

from pathlib import Path

from actors.curation.curator import Curator
from actors.curation.curriculum import Curriculum
from actors.curation.pool import CuratorSettings
from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.kinds.clusters import cluster_of
from actors.messages import (
    Attributed,
    Attribution,
    BatchOrder,
    Candidate,
    StepLabel,
    Trajectory,
)
from actors.store import Store
from actors.system.streams import (
    POLICY_CANDIDATE,
    TRAFFIC_EXCHANGE,
    TRAFFIC_FEEDBACK,
    TRAJECTORY_ATTRIBUTED,
)
from actors.tasks.failures import FailureSettings, LiveFailures
from actors.trajectories.assembler import Assembler, AssemblerSettings
from adapters.environments.travel import TravelDesk
from tests.support.driving import Driver
from tests.support.traffic import exchange, feedback

IDLE, BATCH = 900.0, 4


class Daemon:
    """What takes feedback in, and what learns from it."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path, self.now = store, path, 1000.0
        self.orders: list[BatchOrder] = []
        self._said = 0

    async def start(self) -> "Daemon":
        store, kept = self.store, lambda key: False
        self.assembler = Driver(
            Assembler(AssemblerSettings(idle_seconds=IDLE), store=store, clock=lambda: self.now), store
        )
        rules = CuratorSettings(groups_per_batch=0, production_per_batch=BATCH, max_staleness=2, order_seconds=1e9)
        self.curator = Driver(
            Curator(rules, store=store, batches=self.path / "batches", clock=lambda: self.now, exam=kept), store
        )
        self.experiencer = Driver(
            Experiencer(ExperiencerSettings(), store=store, prober=None, clock=lambda: self.now, exam=kept), store
        )
        desk = TravelDesk(self.path / "desk")
        self.failures = Driver(
            LiveFailures(
                FailureSettings(least=1), store=store, environment=desk, mix=None, kinds=Curriculum(), exam=kept
            ),
            store,
        )
        for driver in (self.assembler, self.curator, self.experiencer, self.failures):
            await driver.actor.start()
        return self

    async def run(self, *keys: str, version: int = 0) -> None:
        """Runs that nobody reports while they are open."""
        calls = [exchange(key, 0, version=version, started=self.now) for key in keys]
        await self.assembler.feed(TRAFFIC_EXCHANGE, *calls)
        self.now += IDLE + 1
        await self.credit(await self.assembler.tick())

    async def credit(self, closed: list) -> None:
        """The attributor's work."""
        runs = [run for run in closed if isinstance(run, Trajectory)]
        items = [
            Attributed(
                id=run.id, trajectory=run, cluster=cluster_of(run.goal),
                attribution=Attribution(labels=(StepLabel("GOOD"),) * len(run.steps), judge="j", rubric="r"),
            )
            for run in runs
        ]  # fmt: skip
        await self.store.save(items)
        for driver in (self.curator, self.experiencer, self.failures):
            self._take(await driver.feed(TRAJECTORY_ATTRIBUTED, *items))

    async def say(self, key: str, outcome: float, *, received: float | None = None, **fields) -> None:
        """Somebody reports."""
        self._said += 1
        said = feedback(
            key, 0, outcome, id=f"f{self._said}-{key}", received=self.now if received is None else received, **fields
        )
        await self.credit(await self.assembler.feed(TRAFFIC_FEEDBACK, said))

    async def hear(self) -> None:
        """Time for everybody to look."""
        self.now += 11.0
        for driver in (self.curator, self.experiencer, self.failures):
            self._take(await driver.tick())

    async def answer(self, version: int, *, answer: str = "trained", **fields) -> None:
        """The learner answers the newest order."""
        self.now += 1.0  # no two orders are of one moment
        made = Candidate(
            id=f"{answer}{version}-{len(self.orders)}", version=version, parent=version - 1, path="", files=(),
            manifest="", batch_ids=(self.orders[-1].id,), created=self.now, answer=answer, **fields,  # type: ignore[arg-type]  # of its words
        )  # fmt: skip
        self._take(await self.curator.feed(POLICY_CANDIDATE, made))

    def _take(self, out: list) -> None:
        self.orders += [message for message in out if isinstance(message, BatchOrder)]
