"""Assembler, curator, experiencer and failures on one store, driven step by step, with a clock to turn."""

from pathlib import Path

from sqlalchemy import select

from actors.curation.curator import Curator
from actors.curation.curriculum import Curriculum
from actors.curation.pool import CuratorSettings
from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.kinds.clusters import cluster_of
from actors.messages import (
    Attributed,
    Attribution,
    BatchItem,
    BatchOrder,
    Candidate,
    Serving,
    StepLabel,
    Trajectory,
    decode_batch,
)
from actors.store import Store
from actors.store import tables as t
from actors.store.run_story import RunStory, run_story
from actors.system.streams import (
    POLICY_CANDIDATE,
    POLICY_SERVING,
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

    def __init__(self, store: Store, path: Path, *, restarts: bool = False, exam: bool = False) -> None:
        """
        Args:
            restarts: everything is started anew after each step.
            exam: every run is the gate's.
        """
        self.store, self.path, self.now, self.restarts, self.exam = store, path, 1000.0, restarts, exam
        self.orders: list[BatchOrder] = []
        self._said = 0

    async def start(self) -> "Daemon":
        store, kept = self.store, lambda key: self.exam
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

    async def _step(self) -> None:
        if self.restarts:
            await self.start()

    async def run(self, *keys: str, version: int = 0) -> None:
        """Runs that nobody reports while they are open."""
        calls = [exchange(key, 0, version=version, started=self.now) for key in keys]
        await self.assembler.feed(TRAFFIC_EXCHANGE, *calls)
        await self._step()
        self.now += IDLE + 1
        await self.credit(await self.assembler.tick())
        await self._step()

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
        await self._step()

    async def hear(self) -> None:
        """Time for everybody to look."""
        self.now += 11.0
        for driver in (self.curator, self.experiencer, self.failures):
            self._take(await driver.tick())
        await self._step()

    async def answer(self, version: int, *, answer: str = "trained", **fields) -> None:
        """The learner answers the newest order."""
        self.now += 1.0  # no two orders are of one moment
        made = Candidate(
            id=f"{answer}{version}-{len(self.orders)}", version=version, parent=version - 1, path="", files=(),
            manifest="", batch_ids=(self.orders[-1].id,), created=self.now, answer=answer, **fields,  # type: ignore[arg-type]  # of its words
        )  # fmt: skip
        self._take(await self.curator.feed(POLICY_CANDIDATE, made))
        await self._step()

    async def serve(self, version: int) -> None:
        """It serves now, whatever was trained."""
        self.now += 1.0
        for number in range(1, version + 1):
            made = Candidate(
                id=f"other{number}", version=number, parent=number - 1, path="", files=(), manifest="",
                created=self.now + number / 1000,
            )  # fmt: skip
            self._take(await self.curator.feed(POLICY_CANDIDATE, made))
        swap = Serving(
            id=f"s{version}", engine="serving", version=version, previous=0, path="", result="swapped", since=self.now
        )
        await self.store.save([swap])
        self._take(await self.curator.feed(POLICY_SERVING, swap))
        await self._step()

    def _take(self, out: list) -> None:
        self.orders += [message for message in out if isinstance(message, BatchOrder)]

    def items(self, order: BatchOrder) -> dict[str, BatchItem]:
        """What is in it, by the goal's last word."""
        found = decode_batch(Path(order.path).read_bytes())
        return {item.attributed.trajectory.goal.split()[-1]: item for item in found}

    async def effects(self, key: str) -> list[dict[str, str]]:
        """Of each revision of a run's outcome: channel to effect, or why there is none; without kinds and lessons."""
        story = await self.story(key)
        return [
            {
                one.channel: one.detail if one.effect == "none" else one.effect
                for one in revision.effects
                if one.channel in ("training", "gate", "tasks")
            }
            for revision in story.revisions
        ]

    async def weighs(self, key: str) -> list[set[str]]:
        """Of each revision: whether kinds and lessons have it."""
        story = await self.story(key)
        return [{one.channel for one in revision.effects} & {"kinds", "lessons"} for revision in story.revisions]

    async def story(self, key: str) -> RunStory:
        """What `evolved why` tells, by the id of an answer."""
        found = await self.store.ask(lambda connection: run_story(connection, f"r-default-{key}-0"))
        assert isinstance(found, RunStory)
        return found

    async def words(self) -> dict[str, str]:
        """What each report did, by its id."""
        row = t.FeedbackRow
        return await self.store.ask(
            lambda connection: {one.id: one.effect for one in connection.execute(select(row.id, row.effect))}
        )
