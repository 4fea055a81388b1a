"""Assembler, curator and experiencer on one store, driven step by step, with a clock to turn."""

from pathlib import Path
from typing import Any

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.experience.experiencer import Experiencer
from actors.kinds.clusters import cluster_of
from actors.messages import Attributed, Attribution, BatchOrder, Candidate, OutcomeChanged, StepLabel, Trajectory
from actors.store import Store
from actors.system import streams
from actors.trajectories.assembler import Assembler
from actors.trajectories.stitching import Limits
from tests.support.driving import Driver
from tests.support.traffic import exchange, feedback

IDLE, BATCH = 900.0, 4


class Daemon:
    """What takes feedback in, and what learns from it."""

    def __init__(self, store: Store, path: Path) -> None:
        self.now = 1000.0
        self._orders: list[BatchOrder] = []
        self._said = 0
        more: dict[str, Any] = {"store": store, "clock": lambda: self.now}
        learning = more | {"exam": lambda key: False}
        rules = CuratorSettings(groups_per_batch=0, production_per_batch=BATCH, max_staleness=2)
        self._assembler = Driver(Assembler(limits=Limits(idle_seconds=IDLE), **more), store)
        self._curator = Driver(Curator(rules, batches=path / "batches", **learning), store)
        experiencer = Experiencer(prober=None, **learning)
        self._learning = (self._curator, Driver(experiencer, store))

    async def start(self) -> "Daemon":
        for driver in (self._assembler, *self._learning):
            await driver.actor.start()
        return self

    async def run(self, *keys: str) -> None:
        """Runs that nobody reports while they are open."""
        calls = [exchange(key, 0, started=self.now) for key in keys]
        await self._assembler.feed(streams.TRAFFIC_EXCHANGE, *calls)
        self.now += IDLE + 1
        await self._credit(await self._assembler.tick())

    async def _credit(self, closed: list) -> None:
        """The attributor's work, and what was said of runs that have credit already."""
        items = [
            Attributed(
                id=run.id, trajectory=run, cluster=cluster_of(run.goal),
                attribution=Attribution(labels=(StepLabel("GOOD"),) * len(run.steps), judge="j", rubric="r"),
            )
            for run in closed if isinstance(run, Trajectory)
        ]  # fmt: skip
        await self._assembler.store.save(items)
        changed = [one for one in closed if isinstance(one, OutcomeChanged)]
        for driver in self._learning:
            self._take(await driver.feed(streams.TRAJECTORY_ATTRIBUTED, *items))
            self._take(await driver.feed(streams.TRAJECTORY_OUTCOME, *changed))

    async def say(self, key: str, outcome: float, **fields) -> None:
        """Somebody reports."""
        self._said += 1
        said = feedback(key, 0, outcome, id=f"f{self._said}-{key}", received=self.now, **fields)
        await self._credit(await self._assembler.feed(streams.TRAFFIC_FEEDBACK, said))

    async def hear(self) -> None:
        """Time for everybody to look."""
        self.now += 11.0
        for driver in self._learning:
            self._take(await driver.tick())

    async def answer(self, version: int) -> None:
        """The learner answers the newest order."""
        self.now += 1.0  # no two orders are of one moment
        made = Candidate(
            id=f"trained{version}", version=version, parent=version - 1, path="", files=(), manifest="",
            batch_ids=(self._orders[-1].id,), created=self.now, answer="trained",
        )  # fmt: skip
        self._take(await self._curator.feed(streams.POLICY_CANDIDATE, made))

    def _take(self, out: list) -> None:
        self._orders += [message for message in out if isinstance(message, BatchOrder)]
