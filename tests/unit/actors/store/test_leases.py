"""The lease in a database: one holder, an epoch that rises."""

import time

import anyio
import pytest
from sqlalchemy import update

from actors.store import Store
from actors.store.leases import LEAD, Lead, give_back, renew, standing, take
from actors.store.tables import Leases

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


@pytest.fixture
async def stores(store_url):
    """Two processes' view of one database."""
    made = [Store(store_url, clock=time.time) for _ in range(2)]
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.aclose()


async def test_of_two_one_gets_it_until_it_is_given_back(stores):
    one, two = stores
    mine = await one.change(take, "x", "one", 1.0, "http://one")
    assert await one.change(renew, "x", mine.epoch, 30.0)
    assert mine.taken
    for asked, by in ((two, "two"), (one, "one")):
        theirs = await asked.change(take, "x", by, 30.0)
        assert (theirs.taken, theirs.holder, theirs.about, theirs.epoch) == (False, "one", "http://one", mine.epoch)
        assert 20 < theirs.seconds_left <= 30
    await one.change(give_back, "x", mine.epoch)
    assert not await one.change(renew, "x", mine.epoch, 30.0)
    later = await two.change(take, "x", "two", 30.0)
    assert later.taken
    assert later.epoch > mine.epoch


async def test_many_that_ask_at_once_get_one_holder(stores):
    for _ in range(5):
        taken = []

        async def ask(number: int, taken=taken) -> None:
            found = await stores[number % 2].change(take, "x", f"holder-{number}", 30.0)
            taken.extend([found.epoch] * found.taken)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, number)
        assert len(taken) == 1
        await stores[0].change(give_back, "x", taken[0])


async def test_it_runs_out_by_the_databases_clock_and_cannot_be_renewed_then_taken_back(stores):
    one, two = stores
    mine = await one.change(take, "x", "one", 30.0)
    await one.change(lambda c: c.execute(update(Leases).values(expires=1.0)))
    assert (await two.change(take, "x", "two", 30.0)).taken
    assert not await one.change(renew, "x", mine.epoch, 30.0)
    await one.change(give_back, "x", mine.epoch)
    found = await one.ask(standing, "x")
    assert found.holder == "two"
    assert found.seconds_left


@pytest.fixture
def two_urls(new_store_url):
    return new_store_url(), new_store_url()


async def test_epochs_rise_even_if_the_database_was_made_anew(two_urls):
    epochs = []
    for url in two_urls:
        store = Store(url, clock=time.time)
        await store.open()
        epochs.append((await store.change(take, LEAD, "one", 30.0)).epoch)
        await store.aclose()
        if url == two_urls[0]:
            await anyio.sleep(1.1)
    assert epochs[1] > epochs[0], "an engine that saw the first still takes the second"


async def test_with_sqlite_whoever_starts_leads_at_once_under_a_new_epoch(tmp_path):
    url = f"sqlite:///{tmp_path}/evolved.db"
    store = Store(url, clock=time.time)
    await store.open()
    epochs = []
    for life in ("killed", "the next one"):
        lead = Lead(url, holder=life)
        found = lead.take()
        assert found.taken
        lead.keep(found.epoch)
        store.lead = lead
        await store.change(lambda connection: None)
        epochs.append(found.epoch)
        assert lead.leads
    assert epochs[1] == epochs[0] + 1
    await store.aclose()
