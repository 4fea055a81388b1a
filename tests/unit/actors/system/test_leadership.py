"""Who leads, when it moves, and that what was stopped writes nothing; on a mock clock, with the lease in memory."""

import contextlib
import random

import anyio
import pytest

from actors.system.errors import DependencyUnavailable, Deposed
from actors.system.leadership import LEADER, Leadership, Standing
from actors.system.lifecycle import Lifecycle
from actors.system.supervisor import Supervisor

pytestmark = pytest.mark.anyio


class Row:
    """The lease as a database keeps it; the mock clock is the database's."""

    def __init__(self) -> None:
        self.holder, self.epoch, self.expires = "", 0, 0.0
        self.away: set[str] = set()
        """Holders that cannot reach it."""
        self.fences: list[int] = []

    def standing(self, taken: bool = False) -> Standing:
        left = max(0.0, self.expires - anyio.current_time())
        return Standing(holder=self.holder, epoch=self.epoch, seconds_left=left, taken=taken)

    async def take(self, name, holder, seconds, *, about="", force=False) -> Standing:
        self._reach(holder)
        if self.expires > anyio.current_time() and holder != self.holder and not force:
            return self.standing()
        self.holder, self.epoch, self.expires = holder, self.epoch + 1, anyio.current_time() + seconds
        return self.standing(taken=True)

    async def renew(self, name, holder, epoch, seconds) -> bool:
        self._reach(holder)
        if (holder, epoch) != (self.holder, self.epoch):
            return False
        self.expires = anyio.current_time() + seconds
        return True

    async def give_back(self, name, epoch) -> None:
        self._reach(self.holder)
        if epoch == self.epoch:
            self.expires = 0.0

    @contextlib.contextmanager
    def fenced(self, name, epoch):
        assert name == LEADER
        self.fences.append(epoch)
        yield

    def _reach(self, holder: str) -> None:
        if holder in self.away:
            raise DependencyUnavailable("no way to the database")


class Daemon:
    """A leadership with one singleton, which notes when it ran."""

    def __init__(self, row: Row, name: str, work=None, **options) -> None:
        self.leadership = Leadership(row, holder=name, **{"seconds": 3.0, **options})
        self.supervisor = Supervisor(rng=random.Random(1))
        self.spans: list[list[float]] = []
        """[began, ended] of the singleton."""
        self._work = work
        self.supervisor.add("leadership", self.leadership.run)
        self.supervisor.add("singleton", self.leadership.holds(self._singleton))

    async def _singleton(self, lifecycle: Lifecycle) -> None:
        lifecycle.ready()
        self.spans.append([anyio.current_time(), float("inf")])
        try:
            if self._work is not None:
                await self._work(lifecycle)
            else:
                await lifecycle.draining.wait()
        finally:
            self.spans[-1][1] = anyio.current_time()

    def statuses(self) -> dict[str, str]:
        return {actor.name: actor.status for actor in self.supervisor.state().actors}


@contextlib.asynccontextmanager
async def running(*daemons: Daemon):
    async with anyio.create_task_group() as group:
        for daemon in daemons:
            group.start_soon(lambda one=daemon: one.supervisor.run(signals=False))
            await anyio.sleep(0.01)
        yield group
        for daemon in daemons:
            daemon.supervisor.drain()


async def test_one_leads_and_the_others_are_ready_beside_it():
    row = Row()
    one, two = Daemon(row, "one"), Daemon(row, "two")
    async with running(one, two):
        await anyio.sleep(100)
        assert (len(one.spans), len(two.spans)) == (1, 0)
        assert (one.leadership.leading, two.leadership.leading) == (True, False)
        assert two.statuses() == {"leadership": "standby", "singleton": "standby"}
        assert two.supervisor.state().ready


@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_leader_that_drains_hands_over_within_a_second_of_the_end_of_its_last_singleton(seconds: int):
    async def work(lifecycle: Lifecycle) -> None:
        await lifecycle.draining.wait()
        await anyio.sleep(seconds)

    row = Row()
    one, two = Daemon(row, "one", work), Daemon(row, "two")
    async with running(one, two):
        await anyio.sleep(10)
        one.supervisor.drain()
        await anyio.sleep(seconds + 1)
        assert two.leadership.leading
        assert 0 <= two.spans[0][0] - one.spans[0][1] < 0.6


async def test_a_leader_without_its_database_stops_its_singletons_before_another_could_lead():
    row = Row()
    one, two = Daemon(row, "one"), Daemon(row, "two")
    async with running(one, two):
        await anyio.sleep(10)
        row.away = {"one"}
        await anyio.sleep(5)
        assert two.leadership.leading
        assert one.spans[0][1] < two.spans[0][0], "never both"
        assert two.spans[0][0] - 10 < 4, "and soon"
        assert one.leadership.lost == 1
        row.away.clear()
        await anyio.sleep(5)
        assert one.statuses()["singleton"] == "standby"


async def test_a_task_that_is_told_that_another_leads_ends_and_waits_for_the_lease():
    row = Row()

    async def work(lifecycle: Lifecycle) -> None:
        await anyio.sleep(5)
        async with anyio.create_task_group():
            raise Deposed(LEADER, 1, 2)

    one = Daemon(row, "one", work)
    async with running(one):
        await anyio.sleep(4)
        row.holder, row.epoch, row.expires = "two", 2, anyio.current_time() + 20
        await anyio.sleep(10)
        assert one.statuses() == {"leadership": "standby", "singleton": "standby"}
        assert one.supervisor.state().actors[1].restarts == 0, "it did not fail"
        await anyio.sleep(20)
        assert one.leadership.leading
        assert row.fences[:2] == [1, 3]


async def test_a_term_begins_only_when_what_ran_in_the_last_one_has_gone():
    row, left = Row(), []

    async def work(lifecycle: Lifecycle) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(8)  # a transaction that cannot be cut short
            left.append(anyio.current_time())

    one = Daemon(row, "one", work)
    async with running(one) as group:
        await anyio.sleep(10)
        row.away = {"one"}
        await anyio.sleep(3)
        row.away.clear()
        await anyio.sleep(10)
        assert len(one.spans) == 2
        assert one.spans[1][0] >= left[0]
        group.cancel_scope.cancel()


async def test_who_is_certainly_alone_takes_the_lease_of_the_dead_at_once():
    row, told = Row(), []
    row.holder, row.epoch, row.expires = "dead", 7, 1e9
    one = Daemon(row, "one", sole=True, on_taken=lambda: told.append(len(one.spans)))
    async with running(one):
        await anyio.sleep(0.1)
        assert one.leadership.epoch == 8
        assert told == [0], "before anything runs in it"
