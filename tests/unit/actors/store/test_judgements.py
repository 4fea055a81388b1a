"""Judgements are found by content."""

import pytest

from actors.store import Store
from tests.support.fakes import Clock

pytestmark = pytest.mark.anyio


async def test_they_are_found_by_key_with_the_state_of_their_transaction(store_url):
    store = Store(store_url, clock=Clock())
    await store.open()
    for number in range(10):
        await store.keep_judgements(
            {f"k{number}": ("t", f"{number}".encode())}, {f"page.{number}": b"v", "other": b"w"}
        )
    assert await store.judgements(["k3", "k7", "nobody"]) == {"k3": b"3", "k7": b"7"}
    assert len(await store.states("page.")) == 10
    assert await store.states("other") == {"other": b"w"}
    await store.aclose()
