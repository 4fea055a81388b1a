"""Reports that come after their runs closed: curator, experiencer and failures take each in once, in whatever order
records reach them and however often they start anew; and what is the gate's teaches nobody."""

import random
from pathlib import Path

import pytest

from actors.curation.curator import Curator
from actors.curation.curriculum import Curriculum
from actors.curation.pool import CuratorSettings
from actors.experience.experiencer import Experiencer
from actors.experience.window import Window
from actors.kinds.kinds import Kinds
from actors.messages import Attributed, BatchOrder, Feedback, Message, OutcomeChanged, Trajectory
from actors.store import Joined, Store
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME
from actors.tasks.failures import LiveFailures
from adapters.environments.travel import TravelDesk
from tests.support.credited import attributed
from tests.support.driving import Driver

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
ACTORS = "curator", "experiencer", "failures"
STEPS = ("close", "report", "credit", "correct")
Told = list[tuple[str, float | None]]
AFTER = {"credit": "close", "correct": "report"}


class Rooms:
    """A run "a", of which 1 is reported and then 0; what is published of it waits until it is handed on."""

    def __init__(self, store: Store, path: Path, exam: bool = False) -> None:
        self.store, self.path, self.exam, self.closed = store, path, exam, False
        self.waiting: list[tuple[str, Message]] = []
        self.orders: list[Message] = []

    def make(self, name: str) -> Driver:
        more = {"store": self.store, "exam": lambda key: self.exam}
        if name == "curator":
            rules = CuratorSettings(groups_per_batch=0, production_per_batch=1)
            made = Curator(rules, batches=self.path, clock=lambda: 100.0, **more)
        elif name == "experiencer":
            made = Experiencer(prober=None, clock=lambda: 100.0, **more)
        else:
            made = LiveFailures(environment=TravelDesk(), families=None, kinds=Curriculum(), **more)
        return Driver(made, self.store)

    async def do(self, step: str) -> None:
        item = attributed("a", outcome=None, goal="Book a table.")
        if step == "close":
            self.closed = True
            await self._commit(step, item.trajectory)
        elif step == "credit":
            found = await self.store.trajectory("a")
            assert isinstance(found, Trajectory)
            await self._commit(step, item)  # with what the attributor had in hand
            self.waiting.append((TRAJECTORY_ATTRIBUTED, item))
        else:
            outcome, at = (1.0, 50.0) if step == "report" else (0.0, 60.0)
            said = Feedback(id=step, received=at, trajectory_id="a", outcome=outcome)
            joins = [Joined(id=step, trajectory_id="a", outcome=outcome)] if self.closed else []
            await self._commit(step, said, *joins)

    async def _commit(self, step: str, *records: Message) -> None:
        for _ in range(2):
            written = await self.store.commit("assembler", [step], records, [])
            self.waiting += [(TRAJECTORY_OUTCOME, decoded(one.id)) for one in written or ()]

    async def hand_on(self, place: int, name: str) -> None:
        """A new life, which is handed one record twice."""
        driver = self.make(name)
        await driver.actor.start()
        subject, message = self.waiting[place]
        for _ in range(2):
            self.orders += await driver.feed(subject, message)


def decoded(key: str) -> OutcomeChanged:
    _, run, revision = key.split(":")
    return OutcomeChanged(id=run, revision=int(revision))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What each actor was told of how "a" went, while it handled records."""
    found: Told = []
    for name, kind, method in zip(ACTORS, (Kinds, Window, LiveFailures), ("tell", "revise", "_note"), strict=True):
        before = getattr(kind, method)

        def tells(self, run: Trajectory, *, name: str = name, before=before):
            found.append((name, run.outcome))
            return before(self, run)

        monkeypatch.setattr(kind, method, tells)
    start = Experiencer.start

    async def rebuilds(self: Experiencer) -> None:
        number = len(found)
        await start(self)
        del found[number:]

    monkeypatch.setattr(Experiencer, "start", rebuilds)
    return found


@pytest.mark.parametrize("seed", range(24))
async def test_each_is_told_each_newest_outcome_once_in_any_order(
    store: Store, tmp_path: Path, told: Told, seed: int
) -> None:
    rng, rooms = random.Random(seed), Rooms(store, tmp_path)
    left, handed = list(STEPS), set[tuple[int, str]]()
    while True:
        able = [one for one in left if AFTER.get(one) not in left]
        open_ones = [(n, name) for n in range(len(rooms.waiting)) for name in ACTORS if (n, name) not in handed]
        choices = [*able, *open_ones]
        if not choices:
            break
        chosen = rng.choice(choices)
        if isinstance(chosen, str):
            left.remove(chosen)
            await rooms.do(chosen)
        else:
            handed.add(chosen)
            await rooms.hand_on(*chosen)
    for name in ACTORS:
        heard = [outcome for who, outcome in told if who == name]
        assert heard[-1] == 0.0, f"{name} has the newest"
        assert len(set(heard)) == len(heard), f"{name} was told {heard}"
    assert sum(isinstance(one, BatchOrder) for one in rooms.orders) == 1, "it trains once"


async def test_an_outcome_in_the_books_whose_event_is_to_come_counts_once_however_often_the_curator_starts(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[float] = []
    monkeypatch.setattr(Curriculum, "observe", lambda self, source, cluster, outcome: counted.append(outcome))
    rooms = Rooms(store, tmp_path)
    for step in ("close", "credit", "report"):
        await rooms.do(step)
    driver = rooms.make("curator")
    for _ in range(2):
        counted.clear()
        await driver.actor.start()  # as after every outage, and every record that failed
    for subject, message in rooms.waiting:
        await driver.feed(subject, message)
    assert counted == [1.0]


async def test_a_restart_of_the_experiencer_forgets_no_run_whose_outcome_came_late(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.experience.experiencer._WINDOW", 4)
    monkeypatch.setattr("actors.experience.experiencer._LATE_SHARE", 4)
    rooms = Rooms(store, tmp_path)
    driver = rooms.make("experiencer")
    await rooms.do("close")
    await rooms.do("credit")
    newer: list[Attributed] = [attributed(f"n{number}", ended=10.0 + number) for number in range(4)]
    await store.save(newer)
    await driver.feed(TRAJECTORY_ATTRIBUTED, *newer)
    await rooms.do("report")
    for subject, message in rooms.waiting:
        await driver.feed(subject, message)
    again = rooms.make("experiencer")
    await again.actor.start()
    held = [sorted((run.id, run.outcome) for run in one.actor._window) for one in (driver, again)]
    assert ("a", 1.0) in held[0]
    assert held[0] == held[1]


async def test_what_is_the_gates_moves_no_estimate_and_its_exam_has_the_newest_outcome(
    store: Store, tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.store.runs.held_out", lambda key: True)
    rooms = Rooms(store, tmp_path, exam=True)
    drivers = [rooms.make(name) for name in ACTORS]
    for step in ("close", "credit", "report", "correct"):
        await rooms.do(step)
    for driver in drivers:
        await driver.actor.start()
        for subject, message in rooms.waiting:
            rooms.orders += await driver.feed(subject, message)
    assert [one for one in told if one[0] != "experiencer"] == []
    assert list(drivers[1].actor._window) == []
    assert rooms.orders == []
    (item,) = await store.exam(reported=True, limit=9)
    assert item.trajectory.outcome == 0.0
    (agent,) = await store.agents(0.0)
    assert (agent.dropped, agent.learned) == ({"held out": 1}, 0)
