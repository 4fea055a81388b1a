"""Judgements are found by content, and the least recently used go first."""

import pytest

from actors.store import Store
from actors.store.judgements import Bounds, Judgement
from tests.support.fakes import Clock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kept(store_url):
    clock = Clock(0.0)
    store = Store(store_url, clock=clock)
    await store.open()
    for number in range(10):
        clock.now = float(number)
        one = Judgement(key=f"k{number}", tenant="t", body=f"{number}".encode())
        await store.keep_judgements([one], [], {f"page.{number}": b"v", "other": b"w"})
    yield store, clock
    await store.aclose()


EVERY = [f"k{number}" for number in range(10)]


async def test_they_are_found_by_key_with_the_state_of_their_transaction(kept):
    store, _ = kept
    assert await store.judgements(["k3", "k7", "nobody"]) == {"k3": b"3", "k7": b"7"}
    assert len(await store.states("page.")) == 10
    assert await store.states("other") == {"other": b"w"}


@pytest.mark.parametrize(
    ("now", "used", "bounds", "left"),
    [
        (20.0, ["k0", "k1"], Bounds(entries=4, seconds=1000.0), {"k0", "k1", "k8", "k9"}),
        (12.0, [], Bounds(entries=1000, seconds=5.0), {"k7", "k8", "k9"}),
    ],
    ids=["the least recently used", "the unused for too long"],
)
async def test_what_goes_first(kept, now, used, bounds, left):
    store, clock = kept
    clock.now = now
    await store.keep_judgements([], used, {})
    assert await store.bound_judgements(bounds) == 10 - len(left)
    assert set(await store.judgements(EVERY)) == left
