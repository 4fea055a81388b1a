"""Forgetting end to end: store, lessons, batch files, what actors hold; journalled, told, and done once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.experience.forgetting import forget
from actors.messages import Attributed, Directive, decode_batch
from actors.store import Store
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.erasing import Selector
from actors.system.streams import POLICY_CANDIDATE, TRAJECTORY_ATTRIBUTED
from daemon.experience.forgetting import Forgetter
from tests.support.credited import attributed, candidate, group
from tests.support.driving import Driver
from tests.support.experience import lesson, lessons_of
from tests.support.traffic import exchange

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
MIXED = [0.0, 1.0, 1.0, 0.0]


class Place:
    """A store, a curator on it, and a forgetter whose lessons' part can be made to fail."""

    def __init__(self, path: Path, url: str) -> None:
        self.path, self.url, self.now, self.broken = path, url, 100.0, False
        self.store = Store(url, clock=lambda: self.now)
        self.forgetter = Forgetter(
            store=self.store, lessons=self._lessons, memory=path / "learner", clock=lambda: self.now
        )
        settings = CuratorSettings(groups_per_batch=1, group_size=4)
        curator = Curator(settings, store=self.store, batches=path / "batches", clock=lambda: self.now)
        self.curator, self.driver = curator, Driver(curator, self.store)

    async def _lessons(self, store, trajectory_ids, clock):
        if self.broken:
            raise RuntimeError("the daemon died here")
        return await forget(store, trajectory_ids, clock)

    async def credit(self, *items: Attributed) -> list:
        await self.store.save(items)
        return await self.driver.feed(TRAJECTORY_ATTRIBUTED, *items)


@pytest.fixture
async def place(tmp_path: Path, store_url: str) -> AsyncIterator[Place]:
    made = Place(tmp_path, store_url)
    await made.store.open()
    await made.curator.start()
    yield made
    await made.store.aclose()


async def test_it_reaches_store_lessons_and_batch_files_and_tells_the_versions(place: Place) -> None:
    (order,) = await place.credit(*group("g", MIXED))
    version = candidate(1, batch_ids=(order.id,), created=101.0)
    await place.driver.feed(POLICY_CANDIDATE, version)
    await place.store.save([lesson("alone", sources=("g-0",)), lesson("both", sources=("g-0", "other"))])
    assert Path(order.path).is_file()
    told = await place.forgetter.forget(Selector(trajectories=("g-0",)), "request 4711", "admin-1")
    assert (told.trajectories, told.batches, told.files) == (1, 1, 1)
    assert [touched.version for touched in told.versions] == [1]
    assert set(told.lessons) == {"alone", "both"}
    assert not Path(order.path).exists()
    lessons = await lessons_of(place.store)
    alone = lessons["alone"]
    assert (alone.state, alone.reason, alone.content, alone.when_to_use) == ("retired", "forgotten", "", "")
    assert (lessons["both"].state, lessons["both"].sources) == ("active", ("other",))
    assert place.store.edits == 1
    for selector in (Selector(trajectories=("g-0",)), Selector(tenant="default")):
        await place.forgetter.forget(selector, "r")
        again = await place.forgetter.forget(selector, "r")
        assert (again.trajectories, again.exchanges, again.lessons, again.notice) == (0, 0, (), "")


async def test_the_curator_never_chooses_what_is_forgotten(place: Place) -> None:
    """It holds three of a group when one of them goes; the group is played on, and the order has none of it."""
    first, second = group("g", MIXED), group("h", MIXED)
    assert await place.credit(*first[:3]) == []
    assert place.curator.pool.waiting == 3
    await place.forgetter.forget(Selector(trajectories=("g-0",)), "r")
    await place.curator.start()  # what the runner does then
    assert place.curator.pool.waiting == 2
    assert await place.driver.feed(TRAJECTORY_ATTRIBUTED, first[0]) == []
    (order,) = await place.credit(*second)
    assert set(order.trajectories) == {item.id for item in second}
    assert {item.attributed.id for item in decode_batch(Path(order.path).read_bytes())} == set(order.trajectories)


async def test_a_look_before_touches_nothing(place: Place) -> None:
    await place.store.save([attributed("t"), exchange("r", 0), lesson("l", sources=("t",))])
    for selector in (Selector(trajectories=("t",)), Selector(tenant="default")):
        told = await place.forgetter.plan(selector)
        assert (told.dry_run, told.trajectories, told.lessons) == (True, 1, ("l",))
    assert await place.store.trajectory("t") is not None
    assert await place.store.tombstoned(["t"]) == set()
    assert await place.store.newest(Directive) == []
    assert place.store.edits == 0


async def test_the_audit_trail_keeps_order_counts_and_versions_and_stays_sound(place: Place) -> None:
    await place.store.save([attributed("t", goal="the goal of Ms Hyde")])
    told = await place.forgetter.forget(Selector(tenant="default"), "contract ended", "admin-1")
    (notice,) = await place.store.newest(Directive)
    assert (notice.id, notice.kind, notice.reason) == (told.notice, "notice", "forget: contract ended")
    assert notice.details == {
        "forget": "tenant", "tenant": "default", "trajectories": "1", "trajectory_ids": "t", "exchanges": "0",
        "feedback": "0", "lessons": "0", "by": "admin-1",
    }  # fmt: skip
    findings = ask(place.url, verify)
    assert (findings.problem, findings.head.sequence) == ("", 1)
    assert b"Hyde" not in b"".join(file.read_bytes() for file in place.path.glob("evolved.db*"))


async def test_a_daemon_that_died_on_the_way_finishes_when_it_is_back(place: Place) -> None:
    await place.store.save([attributed("t"), lesson("l", sources=("t",))])
    place.broken = True
    with pytest.raises(RuntimeError):
        await place.forgetter.forget(Selector(tenant="default"), "r")
    # The tenant's trajectories are gone by now: only the journal knows which lessons were drawn from them.
    assert await place.store.trajectory("t") is None
    assert (await lessons_of(place.store))["l"].state == "active"
    place.broken = False
    back = Forgetter(store=place.store, lessons=forget, memory=place.path / "learner", clock=lambda: 200.0)
    assert await back.resume()
    assert (await lessons_of(place.store))["l"].state == "retired"
    assert not await back.resume()
