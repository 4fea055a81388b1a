"""The lead over one PostgreSQL: who has it keeps it, and whoever lost it writes nothing and ends."""

import time
from collections.abc import Callable

import anyio
import pytest

from actors.messages import Directive
from actors.store import Store, StoreUnavailable, leases
from actors.store.leases import Lead, take
from tests.support.patience import until
from tests.support.postgres import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
SECONDS = 1.0


class Left(BaseException):
    """Where the process would have ended."""


class Daemon:
    """What one daemon has of it."""

    def __init__(self, url: str, store: Store, name: str) -> None:
        self.store, self.left = store, []
        self.lead = Lead(url, holder=name, about=f"http://{name}", leave=self._leave)
        store.lead = self.lead

    def _leave(self):
        self.left.append(True)
        raise Left

    async def takes(self) -> bool:
        found = await anyio.to_thread.run_sync(self.lead.take)
        if found.taken:
            self.lead.keep(found.epoch)
        return found.taken

    async def write(self, key: str) -> None:
        await self.store.save([Directive(id=key, kind="freeze", reason="", origin="test")])

    async def written(self) -> set[str]:
        return {item.id for item in await self.store.newest(Directive)}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEAD_SECONDS", SECONDS)
    monkeypatch.setattr(leases, "_RENEW_SECONDS", SECONDS / 5)


@pytest.fixture
async def two(open_stores: Callable[..., Store], postgres: Cluster, database: str):
    made = [Daemon(postgres.url(database), open_stores(), name) for name in ("one", "two")]
    for daemon in made:
        await daemon.store.open()
    yield made
    for daemon in made:
        daemon.lead.give_back()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_who_was_stopped_while_another_took_it_writes_nothing_and_ends(
    two: list[Daemon], open_stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
):
    one, other = two
    monkeypatch.setattr(leases, "_RENEW_SECONDS", 60.0)  # as one that stands still
    assert await one.takes()
    await one.write("before")
    assert not await other.takes()
    await anyio.sleep(SECONDS)
    assert not one.lead.leads
    await one.write("nobody else has taken it yet")
    assert await other.takes()
    assert other.lead.epoch > one.lead.epoch
    for write in (
        lambda: one.write("late"),
        lambda: one.store.commit("curator", ["input"], [], []),
        lambda: one.store.change(take, "swap:serving", "one", 30.0),
        lambda: one.store.change(lambda connection: None),
    ):
        with pytest.raises(Left):
            await write()
    command = open_stores()
    await command.save([Directive(id="by hand", kind="freeze", reason="", origin="test")])
    assert await other.written() == {"before", "nobody else has taken it yet", "by hand"}
    assert await other.store.processed("curator", ["input"]) == set()


async def test_neither_a_long_write_nor_a_busy_loop_loses_it_and_given_back_it_is_free_at_once(two: list[Daemon]):
    one, other = two
    assert await one.takes()
    await one.store.change(lambda connection: connection.exec_driver_sql(f"SELECT pg_sleep({2 * SECONDS})"))
    time.sleep(2 * SECONDS)  # noqa: ASYNC251 - the loop is to stand still
    assert not await other.takes()
    assert one.lead.leads
    await one.write("still")
    one.lead.give_back()
    assert await other.takes()
    assert one.left == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_while_the_database_is_away_nobody_ends_and_afterwards_who_finds_another_epoch_does(
    own_server: Cluster, new_store: Callable[..., Store]
):
    name = own_server.create(empty=True)
    url = own_server.url(name)
    one = Daemon(url, new_store(url), "one")
    await one.store.open()
    assert await one.takes()
    own_server.kill()
    await anyio.sleep(3 * SECONDS)
    assert (one.left, one.lead.leads) == ([], False)
    with pytest.raises(StoreUnavailable):
        await one.store.change(lambda connection: None)
    own_server.start()
    await until(lambda: one.lead.leads, "it is renewed")
    await one.write("the same life")
    assert one.left == []
    with own_server.connect(name) as other:
        other.execute("UPDATE leases SET epoch = epoch + 1")
    await until(lambda: one.left, "its thread finds out without a write")
