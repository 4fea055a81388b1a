"""The same recorded inputs with provisional outcomes and without: batches differ, and nothing that judges does."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.kinds.holdout import held_out
from actors.messages import (
    Attributed,
    BatchItem,
    BatchOrder,
    Directive,
    Feedback,
    Message,
    Serving,
    Step,
    Trajectory,
    decode_batch,
)
from actors.monitoring.sentinel import Sentinel
from actors.provisional.waiting import RIPE
from actors.store import Guessed, Joined, Store
from actors.store.run_story import run_story
from actors.system.actor import Received
from actors.system.streams import POLICY_CANDIDATE, TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME
from tests.support.credited import attributed, candidate
from tests.support.driving import Driver
from tests.support.fakes import FakeEngine

pytestmark = pytest.mark.anyio
RUNS = 160
"""Of which a fourth is the gate's, and of the others most are reported first, so that the model can learn."""
REPORTED = 110
WELL = random.Random(4)
TRUTH = [WELL.random() < 0.6 for _ in range(RUNS)]
"""How each run really went."""


class World:
    """A curator and a sentinel on a store of their own, fed with recorded runs and reports."""

    def __init__(self, store: Store, path: Path, *, provisional: bool) -> None:
        self.store, self.now, self.answered = store, 100.0, 0
        rules = CuratorSettings(groups_per_batch=0, production_per_batch=4, max_staleness=1000, provisional=provisional)
        self.curator = Curator(rules, store=store, batches=path, clock=lambda: self.now)
        self.driver = Driver(self.curator, store)
        engines = {"serving": FakeEngine("serving")}
        self.sentinel = Sentinel(store=store, engines=engines, clock=lambda: self.now)
        self.verdicts: list[Directive] = []

    async def closes(self, *items: Attributed) -> None:
        await self.store.save([*(item.trajectory for item in items), *items])
        await self.watched(*(item.trajectory for item in items), *items)
        await self.driver.feed(TRAJECTORY_ATTRIBUTED, *items)

    async def watched(self, *messages: Message) -> None:
        """The sentinel hears it."""
        result = await self.sentinel.handle([Received(f"{one.id}-{type(one)}", "any", one) for one in messages])
        self.verdicts += [record for record in result.records if isinstance(record, Directive)]

    async def says(self, key: str, outcome: float) -> None:
        said = Feedback(
            id=f"f-{key}-{outcome}", tenant="default", received=self.now, kind="outcome", outcome=outcome,
            trajectory_id=key,
        )  # fmt: skip
        changed = await self.store.save([said, Joined(id=said.id, trajectory_id=key, outcome=outcome)])
        await self.watched(*changed)
        await self.driver.feed(TRAJECTORY_OUTCOME, *changed)

    async def rounds(self, count: int) -> None:
        """The curator hears of it, and the learner answers what is out until nothing more is ordered."""
        for _ in range(count):
            self.now += 11.0
            await self.driver.tick()
            while self.answered < len(self.orders):
                order = self.orders[self.answered]
                self.answered += 1
                self.now += 1.0
                made = candidate(0, id=f"c{self.answered}", parent=0, batch_ids=(order.id,), created=self.now)
                await self.driver.feed(POLICY_CANDIDATE, made)

    @property
    def orders(self) -> list[BatchOrder]:
        return [message for message in self.driver.out if isinstance(message, BatchOrder)]

    @property
    def items(self) -> list[BatchItem]:
        return [item for order in self.orders for item in decode_batch(Path(order.path).read_bytes())]

    @property
    def guessed(self) -> list[Trajectory]:
        return [item.attributed.trajectory for item in self.items if item.attributed.trajectory.provisional]

    async def known(self, key: str) -> tuple[float | None, float | None, str]:
        """Its outcome, what was guessed, and what came of it."""
        found = await self.store.ask(lambda connection: run_story(connection, key))
        return found.outcome, found.guessed, found.came

    async def judges(self) -> dict[str, Any]:
        """All that gate, canary and sentinel read of outcomes, what kinds know, and what the model has learned from."""
        exam = await self.store.exam(reported=True, limit=1000)
        rows = await self.store.recent_outcomes(source="production", since=0.0, limit=1000)
        return {
            "exam": [(item.id, item.trajectory.outcome, item.trajectory.provisional) for item in exam],
            "outcomes": {row.id: row.outcome for row in rows},
            "of the version": {row.id: row.outcome for row in await self.store.recent_outcomes(version=0)},
            "kinds": sorted((piece.id, piece.value) for piece in self.curator.kinds.estimates.pieces()),
            "model": sorted(self.curator.provisional.model.runs),
            "verdicts": [(one.kind, one.reason) for one in self.verdicts],
        }


def recorded(number: int, well: bool, start: float, version: int = 0) -> Attributed:
    """A run whose user says how it went."""
    said = "thanks, perfect" if well else "that is wrong, nothing happened"
    steps = (
        Step(exchange_id=f"x{number}", text="Done.", observation=said, role="desk#1"),
        Step(exchange_id=f"y{number}", text="I see.", role="desk#1"),
    )
    return attributed(
        f"run{number}", steps=steps, outcome=None, goal=f"please refund order K{number}", caller=f"key{number % 6}",
        started=start, ended=start + 1.0, min_version=version,
    )  # fmt: skip


@asynccontextmanager
async def replayed(path: Path, *, provisional: bool) -> AsyncIterator[World]:
    """A world that has closed all runs and heard the first reports."""
    store = Store(f"sqlite:///{path}/{provisional}.db", clock=lambda: 100.0)
    await store.open()
    world = World(store, path / str(provisional), provisional=provisional)
    await world.curator.start()
    items = [recorded(number, well, world.now + 5.0 * number) for number, well in enumerate(TRUTH)]
    for at in range(0, RUNS, 20):
        await world.closes(*items[at : at + 20])
    world.now += 5.0 * RUNS + RIPE
    await world.rounds(1)
    for number in range(REPORTED):
        await world.says(f"run{number}", float(TRUTH[number]))
    await world.rounds(12)
    yield world
    await store.aclose()


async def test_what_judges_is_the_same_and_gate_and_sentinel_come_to_the_same(tmp_path: Path) -> None:
    async with replayed(tmp_path, provisional=False) as without, replayed(tmp_path, provisional=True) as with_:
        assert len(with_.guessed) >= 8, "or the test says nothing"
        assert all(item.attributed.trajectory.outcome in (0.0, 1.0) for item in without.items)
        assert without.curator.provisional.model.weight("default/desk#1") > 0.0, "it learns, and is not asked"
        for item in with_.items:
            run = item.attributed.trajectory
            if run.provisional:
                assert not held_out(run.id)
                assert (run.outcome > item.estimate) == TRUTH[int(run.id[3:])]
        for world in (without, with_):
            for version in (0, 1):
                # Users thank all the same, and what is reported of the new version is that it failed.
                numbers = range(5000 + 1000 * version, 5040 + 1000 * version)
                start = world.now - 5.0 * numbers[0]
                await world.closes(*[recorded(one, True, start + 5.0 * one, version=version) for one in numbers])
                world.now += 200.0
                for number in numbers:
                    await world.says(f"run{number}", 1.0 - version)
                swap = Serving(
                    id="s1", engine="serving", version=1, previous=0, path="", result="swapped", since=world.now
                )  # fmt: skip
                await world.watched(swap)
            await world.rounds(3)
        found = await with_.judges()
        assert found == await without.judges()
        assert "rollback" in {kind for kind, _ in found["verdicts"]}, "or the test says nothing"
        assert len(found["exam"]) > 20, "what the gate measures by"


async def test_a_guessed_run_that_is_reported_later_trains_once_and_its_report_moves_estimates(tmp_path: Path) -> None:
    async with replayed(tmp_path, provisional=True) as world:
        first, second, *_ = world.guessed
        wrong = float(not TRUTH[int(first.id[3:])])
        assert await world.known(first.id) == (None, first.outcome, "learned")
        assert first.id not in world.curator.kinds.runs, "a guess is no outcome"
        await world.says(first.id, wrong)
        assert first.id in world.curator.kinds.runs
        for number in [number for number in range(1000, 1040) if not held_out(f"run{number}")][:8]:
            await world.closes(recorded(number, True, world.now))
            await world.says(f"run{number}", 1.0)
        await world.rounds(4)
        assert [run.id for run in world.guessed].count(first.id) == 1
        assert [item.attributed.id for item in world.items].count(first.id) == 1
        assert await world.known(first.id) == (wrong, first.outcome, "learned")

        # A report that comes while the batch is written.
        late = recorded(3000, True, world.now)
        await world.store.save([late.trajectory, late])
        await world.says(late.id, 0.0)
        order = BatchOrder(id="late", path="", sha256="", size=0, trajectories=(late.id,), created=world.now)
        await world.store.save([Guessed(id=late.id, outcome=0.8), order])
        assert await world.known(late.id) == (0.0, 0.8, "")

        await world.curator._save_kinds()  # pyright: ignore[reportPrivateUsage]
        before = world.curator.provisional
        await world.curator.start()
        after = world.curator.provisional
        assert (after is before, after.model.serving) == (False, before.model.serving)
        assert set(after.model.runs) == set(before.model.runs)
        await world.says(second.id, 0.0)
        await world.rounds(2)
        assert second.id in after.model.runs, "what was ordered is read again when it is reported"
