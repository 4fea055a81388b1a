"""The lease in a database: one holder, an epoch that rises, and a fence that no late write gets over."""

import time

import anyio
import pytest
from sqlalchemy import update

from actors.messages import Directive
from actors.store import Store
from actors.store.tables import LeaseRow
from actors.system.errors import Deposed
from actors.system.leadership import LEADER

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


def freeze(name: str) -> Directive:
    return Directive(id=name, kind="freeze", reason="", origin="test")


async def run_out(store: Store) -> None:
    """As if its time had passed."""
    await store.change(lambda c: c.execute(update(LeaseRow).values(expires=1.0)))


async def test_of_two_one_gets_it_until_it_is_given_back(stores):
    one, two = (store.leases for store in stores)
    mine = await one.take(LEADER, "one", 1.0, about="http://one")
    assert await one.renew(LEADER, "one", mine.epoch, 30.0)
    assert mine.taken
    theirs = await two.take(LEADER, "two", 30.0)
    assert (theirs.taken, theirs.holder, theirs.about, theirs.epoch) == (False, "one", "http://one", mine.epoch)
    assert 20 < theirs.seconds_left <= 30
    await one.give_back(LEADER, mine.epoch)
    assert not await one.renew(LEADER, "one", mine.epoch, 30.0)
    later = await two.take(LEADER, "two", 30.0)
    assert later.taken
    assert later.epoch > mine.epoch


async def test_many_that_ask_at_once_get_one_holder(stores):
    for _ in range(5):
        taken = []

        async def ask(number: int, taken=taken) -> None:
            found = await stores[number % 2].leases.take("x", f"holder-{number}", 30.0)
            taken.extend([found.epoch] * found.taken)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, number)
        assert len(taken) == 1
        await stores[0].leases.give_back("x", taken[0])


async def test_it_runs_out_by_the_databases_clock_and_cannot_be_renewed_then_taken_back(stores):
    one, two = (store.leases for store in stores)
    mine = await one.take(LEADER, "one", 30.0)
    await run_out(stores[0])
    theirs = await two.take(LEADER, "two", 30.0)
    assert theirs.taken
    assert not await one.renew(LEADER, "one", mine.epoch, 30.0)
    await one.give_back(LEADER, mine.epoch)
    assert (await one.look(LEADER)).holder == "two"
    assert (await one.look(LEADER)).live


@pytest.fixture
def two_urls(new_store_url):
    return new_store_url(), new_store_url()


async def test_epochs_rise_even_if_the_database_was_made_anew(two_urls):
    epochs = []
    for url in two_urls:
        store = Store(url, clock=time.time)
        await store.open()
        epochs.append((await store.leases.take(LEADER, "one", 30.0)).epoch)
        await store.aclose()
        if url == two_urls[0]:
            await anyio.sleep(1.1)
    assert epochs[1] > epochs[0], "an engine that saw the first still takes the second"


async def test_a_holder_may_take_it_from_itself_unless_it_must_not(stores):
    leases = stores[0].leases
    first = await leases.take("swap:a", "one", 30.0, again=False)
    assert not (await leases.take("swap:a", "one", 30.0, again=False)).taken
    second = await leases.take("swap:a", "one", 30.0)
    assert second.taken
    assert second.epoch == first.epoch + 1


async def test_a_deposed_leader_writes_nothing(stores):
    one, two = stores
    mine = await one.leases.take(LEADER, "one", 30.0)
    with one.leases.fenced(LEADER, mine.epoch):
        await one.save([freeze("before")])
        await run_out(two)
        await one.save([freeze("nobody else has taken it yet")])
        await two.leases.take(LEADER, "two", 30.0)
        for write in (
            lambda: one.save([freeze("late")]),
            lambda: one.commit("curator", ["input"], [freeze("late")], []),
            lambda: one.state_put("key", b"late"),
            lambda: one.leases.take("swap:serving", "one", 30.0),
        ):
            with pytest.raises(Deposed, match="epoch"):
                await write()
    assert {item.id for item in await two.directives()} == {"before", "nobody else has taken it yet"}
    assert await two.processed("curator", ["input"]) == set()
    assert await two.state_get("key") is None
    assert not (await two.leases.look("swap:serving")).live


async def test_the_fence_is_around_child_tasks_and_nobody_else(stores):
    one, two = stores
    mine = await one.leases.take(LEADER, "one", 30.0)
    refused = []

    async def write() -> None:
        try:
            await one.state_put("key", b"late")
        except Deposed:
            refused.append(True)

    with one.leases.fenced(LEADER, mine.epoch):
        await run_out(two)
        await two.leases.take(LEADER, "two", 30.0)
        async with anyio.create_task_group() as group:
            group.start_soon(write)
    assert refused == [True]
    await write()
    assert await two.state_get("key") == b"late", "an order by hand goes past it"
