"""The server is killed and comes back in mid-work: what was confirmed is there, nothing is there twice."""

from collections.abc import Callable

import anyio
import pytest

from actors.messages import Directive
from actors.store import Store, StoreUnavailable
from actors.store.archive import ask
from actors.store.audit import verify
from actors.system.outgoing import Outgoing
from tests.support.databases import rows
from tests.support.patience import until
from tests.support.postgres import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.promise]
WRITERS, KILLS = 3, 3


async def more(confirmed: list[str]) -> None:
    """Until some more are confirmed."""
    seen = len(confirmed)
    await until(lambda: len(confirmed) >= seen + 8, "more is confirmed", 120, every=0.003)


async def test_nothing_confirmed_is_lost_and_nothing_is_done_twice_through_kills(own_server: Cluster, new_store):
    url = own_server.url(own_server.create(empty=True))
    stores = [new_store(url) for _ in range(WRITERS)]
    for store in stores:
        await store.open()
    confirmed: list[str] = []
    outages, done = [0], anyio.Event()

    async def write(store: Store, number: int) -> None:
        """As the runner does: the same input again until the store has answered."""
        turn = 0
        while not done.is_set():
            key = f"{number}-{turn}"
            made = Directive(id=f"d-{key}", kind="notice", reason="", origin="test", created=1.0)
            try:
                await store.commit("gate", [key], [made], [Outgoing("policy.directive", f"o-{key}", b"x")])
            except StoreUnavailable:
                outages[0] += 1
                await anyio.sleep(0.05)
                continue
            confirmed.append(key)
            turn += 1

    async with anyio.create_task_group() as group:
        for number, store in enumerate(stores):
            group.start_soon(write, store, number)
        for _ in range(KILLS):
            await more(confirmed)
            own_server.kill()
            before = outages[0]
            await until(lambda before=before: outages[0] > before, "somebody meets the outage")
            await anyio.to_thread.run_sync(own_server.start)
        await more(confirmed)
        done.set()

    assert outages[0] > 0
    keys = [key for (key,) in rows(url, "SELECT input_id FROM processed")]
    assert len(keys) == len(set(keys))
    assert set(confirmed) == set(keys)
    assert len(confirmed) == len(set(confirmed))
    for table, column in (("directives", "id"), ("outbox", "output_id")):
        found = [key.partition("-")[2] for (key,) in rows(url, f"SELECT {column} FROM {table}")]
        assert sorted(found) == sorted(keys)
    findings = ask(url, verify)
    assert (findings.problem, findings.head.sequence) == ("", len(keys))


async def test_a_restart_between_two_questions_is_not_noticed(own_server: Cluster, new_store: Callable[..., Store]):
    store = new_store(own_server.url(own_server.create()))
    await store.open()
    await store.state_put("k", b"v")
    own_server.stop()
    with pytest.raises(StoreUnavailable, match=r"database\.url postgresql\+psycopg://evolved@/"):
        await store.state_get("k")
    own_server.start()
    assert await store.state_get("k") == b"v"
    own_server.stop()
    own_server.start()
    await store.state_put("k", b"w")
    assert await store.state_get("k") == b"w"
