"""Attributed trajectories in, orders out, with the real store: one order at a time, each trajectory once."""

import errno
import hashlib
from pathlib import Path

import pytest

from actors.curation import curator as curator_module
from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.kinds.clusters import cluster_of
from actors.kinds.levels import ENOUGH
from actors.messages import Attributed, BatchOrder, Directive, Feedback, MalformedMessage, Serving, decode_batch
from actors.store import Joined, Store
from actors.store.erasing import Selector
from actors.system.actor import Received
from actors.system.errors import DependencyUnavailable
from actors.system.streams import POLICY_CANDIDATE, POLICY_DIRECTIVE, TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME
from tests.support.credited import attributed, candidate, group
from tests.support.driving import Driver
from tests.unit.actors.kinds.test_levels import ASKED

pytestmark = pytest.mark.anyio
MIXED = [0.0, 1.0, 1.0, 0.0]


class Bench:
    """A curator on a store, and a clock to turn."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path, self.now = store, path, 100.0
        self.settings: dict = {"groups_per_batch": 1, "group_size": 4}
        self.exam = False
        self.driver = self.make()

    def make(self) -> Driver:
        settings = CuratorSettings(**self.settings)
        curator = Curator(
            settings,
            store=self.store,
            batches=self.path / "batches",
            clock=lambda: self.now,
            exam=lambda key: self.exam,
        )
        return Driver(curator, self.store)

    async def restart(self, **settings) -> None:
        self.settings |= settings
        self.driver = self.make()
        await self.driver.actor.start()

    async def credit(self, *items: Attributed, commit: bool = True) -> list[BatchOrder]:
        await self.store.save(items)  # the attributor's commit
        return await self.driver.feed(TRAJECTORY_ATTRIBUTED, *items, commit=commit)

    async def train(self, order: BatchOrder, version: int) -> list[BatchOrder]:
        return await self.driver.feed(POLICY_CANDIDATE, candidate(version, batch_ids=(order.id,), created=self.now))

    async def direct(self, kind: str) -> list[BatchOrder]:
        self.now += 1
        said = Directive(id=f"{kind}-{self.now}", kind=kind, reason="", origin="test", created=self.now)
        return await self.driver.feed(POLICY_DIRECTIVE, said)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.path / "batches").iterdir())


def read(order: BatchOrder) -> bytes:
    """The order's file, which nobody else on the machine may read."""
    path = Path(order.path)
    assert path.stat().st_mode & 0o077 == 0
    return path.read_bytes()


@pytest.fixture
async def bench(tmp_path: Path, store: Store) -> Bench:
    made = Bench(store, tmp_path)
    await made.driver.actor.start()
    return made


async def test_an_order_names_a_file_with_its_members(bench: Bench) -> None:
    items = group("a", MIXED)
    (order,) = await bench.credit(*items)
    data = read(order)
    assert [item.attributed for item in decode_batch(data)] == items
    with pytest.raises(MalformedMessage):
        decode_batch(data[:-1])
    assert (order.sha256, order.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert order.production == 0
    assert [stored.id for stored in await bench.store.newest(BatchOrder)] == [order.id]


async def test_freeze_stops_ordering_and_thaw_goes_on(bench: Bench) -> None:
    await bench.direct("freeze")
    assert await bench.credit(*group("a", MIXED)) == []
    await bench.restart()
    assert await bench.driver.tick() == []
    (order,) = await bench.direct("thaw")
    assert order.trajectories[0] == "a-0"


async def test_after_a_restart_the_outstanding_order_is_known_and_the_pool_is_back(bench: Bench) -> None:
    (first,) = await bench.credit(*group("a", MIXED))
    await bench.credit(*group("b", MIXED)[:2])
    await bench.restart()
    assert bench.driver.actor.outstanding == first
    await bench.credit(*group("b", MIXED)[2:])
    (second,) = await bench.train(first, 1)
    assert second.trajectories == ("b-0", "b-1", "b-2", "b-3")


async def test_a_crash_before_the_commit_gives_the_same_order_again(bench: Bench) -> None:
    items = group("a", MIXED)
    await bench.credit(*items, commit=False)
    assert len(bench.files()) == 1
    await bench.restart()
    (order,) = await bench.credit(*items)
    assert bench.files() == [Path(order.path).name]
    await bench.credit(*items)
    assert len(await bench.store.newest(BatchOrder)) == 1


async def test_a_full_disk_is_waited_out_and_the_order_comes_when_there_is_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr("actors.curation.batch_files.write_whole", no_space)
        with pytest.raises(DependencyUnavailable, match=r"No space left.*state_dir"):
            await bench.credit(*group("a", MIXED))
    await bench.restart()  # as the runner does after an outage
    (order,) = await bench.driver.tick()
    assert order.trajectories == ("a-0", "a-1", "a-2", "a-3")


def no_space(path: Path, *_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


async def test_batch_files_are_bounded_and_torn_ones_removed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.path / "batches").mkdir(exist_ok=True)
    (bench.path / "batches" / ".0123456789abcdef.x.batch.part").write_bytes(b"torn")
    monkeypatch.setattr("actors.curation.batch_files.KEEP_FILES", 2)
    await bench.restart()
    for version in range(1, 5):
        (order,) = await bench.credit(*group(f"g{version}", MIXED, min_version=version))
        await bench.train(order, version)
    assert len(bench.files()) == 2
    assert Path(order.path).name in bench.files()


@pytest.mark.promise
async def test_the_curriculum_is_told_each_outcome_once_and_knows_it_after_a_restart(bench: Bench) -> None:
    goals = "stack the red block", "find my shoes"
    asked = [attributed(f"p{n}", goal=goals[1], outcome=float(n % 2), ended=3.0 + n) for n in range(ENOUGH)]
    played = [one for n in range(ENOUGH) for one in group(f"g{n}", MIXED, goal=goals[0], ended=20.0 + n)]
    await bench.credit(*played, *asked, attributed("q", outcome=None))
    await bench.driver.tick()
    curriculum = bench.driver.actor.curriculum
    kinds = [cluster_of(goal) for goal in goals]
    assert [curriculum.kind(goal) for goal in goals] == kinds
    await bench.restart()
    again = bench.driver.actor.curriculum
    assert again is not curriculum
    assert [again.kind(goal) for goal in goals] == kinds, "and every outcome is of the kind that it is of by now"
    assert len(again.gains) == 2
    known = [again.gains.index(name) for name in kinds]
    bench.exam = True
    await bench.credit(attributed("kept"))
    items = [*played, *asked]
    await bench.driver.actor.handle([Received(item.id, TRAJECTORY_ATTRIBUTED, item) for item in items])
    assert [again.gains.index(name) for name in kinds] == known, "the stream brings them again"


async def test_what_the_pool_has_no_room_for_at_a_restart_has_its_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.curation.pool.POOL_PRODUCTION", 3)
    monkeypatch.setattr(curator_module, "POOL_PRODUCTION", 3)
    monkeypatch.setattr(curator_module, "POOL_GROUPS", 0)
    await bench.direct("freeze")
    await bench.restart()
    await bench.store.save([attributed(f"p{number}", ended=float(number)) for number in range(10)])
    await bench.restart()
    assert bench.driver.actor.pool.waiting == 3
    assert (await bench.store.counts())["dropped_pool_full"] == 7
    await bench.restart()
    assert bench.driver.actor.pool.waiting == 3


def free(key: str, number: int, outcome: float) -> Attributed:
    """Production in words of its own."""
    return attributed(key, goal=f"{ASKED[number % 4]} ({key})", outcome=outcome, cluster=f"c-{key}")


async def test_runs_without_a_group_go_with_what_was_to_be_expected_of_them(bench: Bench) -> None:
    await bench.restart(groups_per_batch=0, production_per_batch=4)
    orders = await bench.credit(*[free(f"p{number}", number, float(number < 3)) for number in range(4)])
    items = {item.attributed.id: item for item in decode_batch(Path(orders[0].path).read_bytes())}
    expected = {key: item.estimate for key, item in items.items()}
    # The failure is no part of its own estimate, and a part of the others'.
    assert expected["p3"] > expected["p0"] == pytest.approx(expected["p1"], abs=0.05)
    assert all(0.0 < one < 1.0 for one in expected.values())
    # And with whose like they are: labels are compared among those.
    (kind,) = {item.kind for item in items.values()}
    assert kind == bench.driver.actor.kinds.names(free("p9", 1, 0.0).trajectory)
    assert kind[1].startswith(kind[0])


async def test_what_is_known_of_kinds_outlives_a_restart_and_ends_with_a_drift(bench: Bench) -> None:
    await bench.restart(groups_per_batch=0, production_per_batch=99)
    await bench.credit(*[free(f"p{number}", number, 1.0) for number in range(12)])
    asked = free("new", 1, 0.0).trajectory
    before = bench.driver.actor.kinds.estimate(asked)
    bench.now += 100.0
    await bench.driver.tick()
    await bench.restart()
    assert bench.driver.actor.kinds.estimate(asked) == before
    assert before > 0.8
    await bench.direct("drift")
    assert bench.driver.actor.kinds.estimate(asked) is None
    await bench.restart()
    assert bench.driver.actor.kinds.estimate(asked) is None


@pytest.mark.promise
async def test_what_was_erased_leaves_the_estimates(bench: Bench) -> None:
    await bench.restart(groups_per_batch=0, production_per_batch=99)
    await bench.credit(*[free(f"p{number}", number, float(number)) for number in range(2)])
    kinds = bench.driver.actor.kinds
    meant = Selector(trajectories=("p1",))
    scope = await bench.store.find(meant)
    await bench.store.tombstone(meant, scope)
    await bench.store.erase(scope)
    bench.now += 100.0
    await bench.driver.tick()
    assert kinds.runs == ["p0"]


async def test_an_order_that_nobody_answers_is_sent_again_given_up_and_not_taken_up_by_a_restart(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curator_module, "ORDER_ATTEMPTS", 2)
    monkeypatch.setattr(curator_module, "ORDER_SECONDS", 10.0)
    await bench.restart()
    (order,) = await bench.credit(*group("a", MIXED))
    assert await bench.credit(*group("b", MIXED)) == [], "one order at a time"
    assert await bench.driver.tick() == []
    bench.now += 10
    assert await bench.driver.tick() == [order]
    bench.now += 10
    (second,) = await bench.driver.tick()
    assert second.trajectories[0] == "b-0"
    skipped = candidate(0, batch_ids=(second.id,), answer="skipped")
    await bench.driver.feed(POLICY_CANDIDATE, skipped)
    curator = bench.driver.actor
    assert (curator.effects["skipped"], curator.effects["given up"]) == (4, 4)
    await bench.restart()
    assert bench.driver.actor.outstanding is None


async def test_an_order_is_given_up_with_its_runs_and_not_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curator_module, "ORDER_ATTEMPTS", 1)
    (order,) = await bench.credit(*group("a", MIXED))
    for committed in (False, True):  # killed before the commit, the daemon gives it up again
        bench.now += curator_module.ORDER_SECONDS
        await (bench.driver if committed else bench.driver.actor).tick()
        await bench.restart()
        assert bench.driver.actor.outstanding == (None if committed else order)


async def test_a_late_outcome_is_found_in_the_store_and_trained_on(bench: Bench) -> None:
    await bench.restart(groups_per_batch=0, production_per_batch=2)
    assert await bench.credit(attributed("p", outcome=None), attributed("q", outcome=None)) == []
    await bench.restart()
    said = [Feedback(id=f"f-{key}", received=bench.now, trajectory_id=key, outcome=1.0) for key in "pq"]
    joins = [Joined(id=f"f-{key}", trajectory_id=key, outcome=1.0) for key in "pq"]
    changed = await bench.store.save([*said, *joins])
    (order,) = await bench.driver.feed(TRAJECTORY_OUTCOME, *changed)
    assert set(order.trajectories) == {"p", "q"}
    assert order.production == 2


async def test_where_the_learner_stands_and_what_serves_are_known_after_a_restart(bench: Bench) -> None:
    await bench.restart(groups_per_batch=0, production_per_batch=1)
    made = [candidate(n, created=float(n)) for n in range(1, 7)]
    back = candidate(1, id="b", parent=0, created=50.0, answer="went_back")
    serving = Serving(id="s", engine="serving", version=1, previous=0, path="", result="swapped", since=40.0)
    await bench.driver.feed(POLICY_CANDIDATE, *made, back)
    await bench.store.save([serving])
    await bench.restart()
    freshness = bench.driver.actor.pool.freshness
    assert (freshness.head, freshness.serving, freshness.lead) == (1, {1}, 0)
    (order,) = await bench.credit(attributed("p", min_version=1, max_version=1))
    assert order.trajectories == ("p",)
