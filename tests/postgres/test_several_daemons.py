"""Several daemons on one database: each record once, each input by one of them, one unbroken audit trail."""

import contextlib
from collections.abc import Callable

import anyio
import msgspec
import psycopg
import pytest

from actors.messages import Directive, Experience
from actors.store import Store, StoreUnavailable, postgresql
from actors.store import settings as waits
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.leases import LEAD, Lead, take
from actors.store.schema import wanted
from actors.system.outgoing import Outgoing
from tests.support.databases import rows
from tests.support.patience import until
from tests.support.postgres import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
DAEMONS, INPUTS = 4, 25


def directive(key: str) -> Directive:
    return Directive(id=key, kind="notice", reason="test", origin="test", created=1.0)


async def together(stores: list[Store], work) -> None:
    """`work` with each store, all at once."""
    async with anyio.create_task_group() as group:
        for number, store in enumerate(stores):
            group.start_soon(work, store, number)


@pytest.fixture
async def daemons(open_stores: Callable[..., Store]) -> list[Store]:
    stores = [open_stores() for _ in range(DAEMONS)]
    await together(stores, lambda store, _: store.open())
    return stores


async def test_each_input_is_handled_by_one_of_them_and_the_audit_trail_is_whole(
    daemons: list[Store], postgres: Cluster, database: str
):
    taken: list[bool] = []

    async def handle(store: Store, number: int) -> None:
        for turn in range(INPUTS):
            key = f"i{(turn + 7 * number) % INPUTS}"  # each in another order, so that they meet
            made = directive(f"d-{key}-{number}")
            output = Outgoing("policy.directive", f"o-{key}-{number}", b"x")
            taken.append(await store.commit("gate", [key], [made], [output]) is not None)

    await together(daemons, handle)
    assert sum(taken) == INPUTS
    first = daemons[0]
    assert {await store.state_get("store.schema") for store in daemons} == {wanted().encode()}, "made once"
    assert len(await first.newest(Directive, 1000)) == INPUTS
    assert len(await first.unpublished("gate", 1000)) == INPUTS
    assert await daemons[1].processed("gate", [f"i{n}" for n in range(INPUTS)]) == {f"i{n}" for n in range(INPUTS)}
    findings = ask(postgres.url(database), verify)
    assert (findings.problem, findings.head.sequence) == ("", INPUTS)


async def test_no_revision_is_lost_between_them(daemons: list[Store]):
    await daemons[0].save([Experience(id="a", when_to_use="w", content="")])

    async def work(store: Store, number: int) -> None:
        for _ in range(5):
            await store.revise("a", lambda lesson: msgspec.structs.replace(lesson, content=lesson.content + "x"))

    await together(daemons, work)
    (latest,) = await daemons[0].experiences()
    assert (latest.revision, len(latest.content)) == (5 * DAEMONS, 5 * DAEMONS)


async def test_a_writer_waits_for_another_only_so_long(
    open_stores: Callable[..., Store], postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
):
    await open_stores().open()  # the tables are made without a deadline
    monkeypatch.setattr(waits, "LOCK_SECONDS", 0.2)
    store = open_stores()
    with postgres.connect(database) as other:
        other.execute("BEGIN")
        other.execute("SELECT pg_advisory_xact_lock(x'65766F6C766564'::bigint)")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await store.state_put("k", b"v")
        assert await store.state_get("k") is None, "readers wait for nobody"
        other.execute("ROLLBACK")
    await store.state_put("k", b"v")
    assert await store.state_get("k") == b"v"


async def test_a_daemon_that_stands_still_in_a_transaction_loses_it(
    open_stores: Callable[..., Store], postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
):
    other = open_stores()
    await other.open()  # the tables are made without a deadline
    monkeypatch.setattr("actors.store.settings.STATEMENT_SECONDS", 0.3)
    stopped = open_stores()
    gone = anyio.Event()

    def sits(connection) -> None:
        connection.exec_driver_sql("INSERT INTO state VALUES ('k', 'half')")
        connection.exec_driver_sql("SELECT 1")
        anyio.from_thread.run(gone.wait)
        connection.exec_driver_sql("SELECT 1")

    caught: list[Exception] = []

    async def half() -> None:
        try:
            await stopped.change(sits)
        except StoreUnavailable as error:
            caught.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(half)
        locked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
        await until(lambda: rows(postgres.url(database), locked), "it stands in its transaction")
        await other.state_put("k", b"whole")
        gone.set()
    assert "idle-in-transaction" in str(caught[0])
    assert await other.state_get("k") == b"whole"


async def test_a_daemon_that_stands_still_in_mid_pipeline_loses_it_to_who_leads_next(
    open_stores: Callable[..., Store], postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
):
    store, lead = open_stores(), Lead(postgres.url(database), holder="b")
    await store.open()
    assert (await store.change(take, LEAD, "a", 0.1)).taken
    monkeypatch.setattr(waits, "IDLE_SECONDS", 0.5)

    async def taken() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return (await anyio.to_thread.run_sync(lead.take)).taken
        return False

    with postgres.connect(database) as stopped, contextlib.suppress(psycopg.OperationalError), stopped.pipeline():
        stopped.execute(f"SELECT pg_advisory_xact_lock({postgresql._WRITERS})")
        stopped.execute("SELECT * FROM leases FOR KEY SHARE")
        stopped.pgconn.send_flush_request()
        stopped.pgconn.flush()
        await until(taken, "another leads")
    await store.state_put("k", b"whole")
