"""The same recorded inputs with provisional outcomes and without: batches differ, and nothing that judges does."""

import copy
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.gate.evidence import reported_runs
from actors.kinds.holdout import held_out
from actors.messages import (
    Attributed,
    BatchItem,
    BatchOrder,
    Candidate,
    Directive,
    Feedback,
    Message,
    Serving,
    Step,
    decode_batch,
)
from actors.monitoring.sentinel import Sentinel, SentinelSettings
from actors.provisional.waiting import RIPE
from actors.store import Guessed, Joined, Store
from actors.store.run_story import RunStory, run_story
from actors.system.actor import Received
from actors.system.streams import POLICY_CANDIDATE, TRAJECTORY_ATTRIBUTED
from tests.support.credited import attributed
from tests.support.driving import Driver
from tests.support.fakes import FakeEngine

pytestmark = pytest.mark.anyio
RUNS = 160
"""Of which a fourth is the gate's, and of the others most are reported first, so that the model can learn."""
REPORTED = 110
WELL = random.Random(4)
TRUTH = {f"run{number}": WELL.random() < 0.6 for number in range(RUNS)}
"""How each run really went."""


class World:
    """A curator on a store of its own, fed with recorded runs and reports."""

    def __init__(self, store: Store, path: Path, *, provisional: bool) -> None:
        self.store, self.now, self.orders = store, 100.0, list[BatchOrder]()
        rules = CuratorSettings(
            groups_per_batch=0, production_per_batch=4, max_staleness=1000, order_seconds=1e9, provisional=provisional
        )
        self.curator = Curator(rules, store=store, batches=path, clock=self.clock)
        self.driver = Driver(self.curator, store)
        self.sentinel = Sentinel(
            SentinelSettings(), store=store, engines={"serving": FakeEngine("serving")}, clock=self.clock
        )
        self.verdicts: list[Directive] = []

    def clock(self) -> float:
        return self.now

    async def closes(self, *items: Attributed) -> None:
        await self.store.save([item.trajectory for item in items])
        await self.store.save(items)
        await self.watched(*(item.trajectory for item in items), *items)
        self._take(await self.driver.feed(TRAJECTORY_ATTRIBUTED, *items))

    async def watched(self, *messages: Message) -> None:
        """The sentinel hears it."""
        result = await self.sentinel.handle([Received(f"{one.id}-{type(one)}", "any", one) for one in messages])
        self.verdicts += [record for record in result.records if isinstance(record, Directive)]

    async def says(self, key: str, outcome: float) -> None:
        said = Feedback(
            id=f"f-{key}-{outcome}", tenant="default", received=self.now, kind="outcome", outcome=outcome,
            trajectory_id=key,
        )  # fmt: skip
        await self.store.save([said, Joined(id=said.id, trajectory_id=key, outcome=outcome)])
        await self.watched(said)

    async def hears(self) -> None:
        self.now += 11.0
        self._take(await self.driver.tick())

    async def learns(self) -> None:
        """The learner answers what is out, until nothing more is ordered."""
        answered = 0
        while answered < len(self.orders):
            order = self.orders[answered]
            answered += 1
            self.now += 1.0
            made = Candidate(
                id=f"c{answered}-{self.now}", version=0, parent=0, path="", files=(), manifest="",
                batch_ids=(order.id,), created=self.now,
            )  # fmt: skip
            self._take(await self.driver.feed(POLICY_CANDIDATE, made))

    def _take(self, out: list[Any]) -> None:
        self.orders += [message for message in out if isinstance(message, BatchOrder)]

    @property
    def items(self) -> list[BatchItem]:
        return [item for order in self.orders for item in decode_batch(Path(order.path).read_bytes())]

    @property
    def guessed(self) -> list[BatchItem]:
        return [item for item in self.items if item.attributed.trajectory.provisional]

    async def story(self, key: str) -> RunStory:
        found = await self.store.ask(lambda connection: run_story(connection, key))
        assert isinstance(found, RunStory)
        return found


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


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "trio"


async def new_store(path: Path) -> Store:
    store = Store(f"sqlite:///{path}", clock=lambda: 100.0)
    await store.open()
    return store


@pytest.fixture(scope="module")
async def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, World]:
    """The world without and the one with, fed with the same; by their closed databases."""
    path, made = tmp_path_factory.mktemp("replayed"), dict[Path, World]()
    for name in ("without", "with"):
        database = path / f"{name}.db"
        world = made[database] = World(await new_store(database), path / name, provisional=name == "with")
        await world.curator.start()
        await replay(world)
        await world.store.aclose()
    return made


@pytest.fixture
async def worlds(replayed: dict[Path, World], tmp_path: Path) -> AsyncIterator[list[World]]:
    """Copies of both, for one test alone."""
    made: list[World] = []
    for database, world in replayed.items():
        store = await new_store(Path(shutil.copy(database, tmp_path)))
        made.append(copy.deepcopy(world, {id(world.store): store}))
    yield made
    for world in made:
        await world.store.aclose()


async def replay(world: World) -> None:
    start = world.now
    items = [recorded(number, TRUTH[f"run{number}"], start + 5.0 * number) for number in range(RUNS)]
    for at in range(0, RUNS, 20):
        await world.closes(*items[at : at + 20])
    world.now += 5.0 * RUNS
    world.now += RIPE
    await world.hears()
    for number in range(REPORTED):
        await world.says(f"run{number}", float(TRUTH[f"run{number}"]))
    for _ in range(12):
        await world.hears()
        await world.learns()


async def judged(world: World) -> dict[str, Any]:
    """All that gate, canary and sentinel read of outcomes, what kinds know, and what the model has learned from."""
    store = world.store
    exam = await store.exam(reported=True, limit=1000)
    rows = await store.recent_outcomes(source="production", since=0.0, limit=1000)
    return {
        "exam": [(item.id, item.trajectory.outcome, item.trajectory.provisional) for item in exam],
        "outcomes": {row.id: row.outcome for row in rows},
        "of the version": {row.id: row.outcome for row in await store.judged_outcomes(0)},
        "kinds": sorted((piece.id, piece.value) for piece in world.curator.kinds.estimates.pieces()),
        "model": sorted(world.curator.provisional.model.runs),
    }


async def test_what_judges_is_the_same_and_gate_and_sentinel_come_to_the_same(worlds: list[World]) -> None:
    without, with_ = worlds
    assert not without.guessed
    assert len(with_.guessed) >= 8, "or the test says nothing"
    assert await judged(with_) == await judged(without)
    for item in with_.guessed:
        run = item.attributed.trajectory
        assert not held_out(run.id)
        assert item.estimate is not None
        assert run.outcome is not None
        assert (run.outcome > item.estimate.mean) == TRUTH[run.id]
    for world in worlds:
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
        for _ in range(3):
            await world.hears()
            await world.learns()
    assert [(one.kind, one.reason) for one in with_.verdicts] == [(one.kind, one.reason) for one in without.verdicts]
    assert "rollback" in {one.kind for one in with_.verdicts}, "or the test says nothing"
    evidence = [await reported_runs(world.store, 1000) for world in worlds]
    assert evidence[0] == evidence[1]
    assert evidence[0][1] > 20, "without tokens none is scored, but all are found"


async def test_what_is_reported_later_corrects_what_was_guessed(worlds: list[World]) -> None:
    world = worlds[1]
    guess = world.guessed[0].attributed.trajectory
    story = await world.story(guess.id)
    assert [(one.revision, one.rank, one.outcome) for one in story.revisions] == [(0, "provisional", guess.outcome)]
    wrong = float(not TRUTH[guess.id])
    await world.says(guess.id, wrong)
    # A correction rides with a batch: four more runs make one.
    fresh = [number for number in range(1000, 1040) if not held_out(f"run{number}")][:8]
    for number in fresh:
        await world.closes(recorded(number, True, world.now))
        await world.says(f"run{number}", 1.0)
    for _ in range(4):
        await world.hears()
        await world.learns()
    (again,) = [item for item in world.items if item.corrects is not None]
    assert again.attributed.id == guess.id
    assert (again.corrects, again.attributed.trajectory.outcome) == (guess.outcome, wrong)
    assert not again.attributed.trajectory.provisional
    story = await world.story(guess.id)
    assert [(one.revision, one.rank, one.outcome) for one in story.revisions] == [
        (0, "provisional", guess.outcome), (1, "reported", wrong),
    ]  # fmt: skip
    trained = [{one.channel: one.effect for one in revision.effects}.get("training") for revision in story.revisions]
    assert trained == ["trained", "trained"]


async def test_a_report_before_the_order_takes_the_guesss_place(worlds: list[World]) -> None:
    world = worlds[1]
    some = [recorded(number, True, world.now) for number in range(2000, 2010)]
    await world.closes(*[one for one in some if not held_out(one.id)])
    world.now += RIPE
    # An order is out and not answered, so what is guessed now waits in the pool.
    await world.hears()
    waiting = [key for key in world.curator.pool._guesses]  # pyright: ignore[reportPrivateUsage]
    if not waiting:
        pytest.skip("all were ordered at once")
    key = waiting[0]
    await world.says(key, 0.0)
    await world.hears()
    await world.learns()
    mine = [item.attributed.trajectory for item in world.items if item.attributed.id == key]
    assert [(run.outcome, run.provisional) for run in mine] in ([], [(0.0, False)])


async def test_a_report_that_comes_while_the_batch_is_written_is_the_next_revision(worlds: list[World]) -> None:
    world = worlds[1]
    store = world.store
    item = recorded(3000, True, world.now)
    await store.save([item.trajectory])
    await store.save([item])
    await world.says(item.id, 0.0)
    order = BatchOrder(
        id="late", path="", sha256="", size=0, trajectories=(item.id,), revisions=(0,), created=world.now
    )
    await store.save([Guessed(id=item.id, outcome=0.8), order])
    story = await world.story(item.id)
    assert [(one.revision, one.rank, one.outcome) for one in story.revisions] == [
        (0, "provisional", 0.8), (1, "reported", 0.0),
    ]  # fmt: skip
    known = await store.trajectory(item.id)
    assert isinstance(known, Attributed)
    assert (known.trajectory.outcome, known.trajectory.outcome_revision) == (0.0, 1)


async def test_off_the_model_learns_and_nothing_is_ordered_that_nobody_reported(worlds: list[World]) -> None:
    world = worlds[0]
    assert world.curator.provisional.model.serving is not None
    assert world.curator.provisional.model.weight("default/desk#1") > 0.0
    assert all(item.attributed.trajectory.outcome in (0.0, 1.0) for item in world.items)


async def test_a_restart_takes_up_the_model_and_the_runs_that_wait(worlds: list[World]) -> None:
    world = worlds[1]
    await world.curator._save_kinds()  # pyright: ignore[reportPrivateUsage]
    before = world.curator.provisional
    await world.curator.start()
    after = world.curator.provisional
    assert after is not before
    assert after.model.serving == before.model.serving
    assert set(after.model.runs) == set(before.model.runs)
    after.ripen(world.now)
    gone = set(before.runs) - set(after.runs)
    assert gone == {item.attributed.id for item in world.guessed}, "what waits comes again from the store"
    await world.says(min(gone), 0.0)
    await world.hears()
    await world.hears()
    assert min(gone) in after.model.runs, "and what was ordered is read again when it is reported"
