"""Forgetting by source, on the real store."""

from collections.abc import AsyncIterator

import pytest

from actors.experience.forgetting import Forgotten, forget
from actors.messages import Experience
from actors.store import Store
from tests.support.databases import rows

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


def lesson(id: str, *sources: str, **fields: object) -> Experience:
    given = {"when_to_use": "book", "content": f"secret of {id}", "state": "active", "independent": len(sources)}
    return Experience(id=id, sources=sources, **{**given, **fields})  # type: ignore[arg-type]


async def latest(store: Store) -> dict[str, Experience]:
    return {found.id: found for found in await store.experiences()}


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 5.0)
    await store.open()
    yield store
    await store.aclose()


async def test_a_lesson_that_stands_on_forgotten_sources_alone_ends_and_its_words_go(store: Store):
    await store.save([lesson("a", "t1", "t2")])
    assert await forget(store, ["t1", "t2", "t3"], lambda: 9.0) == Forgotten(retired=("a",))
    after = (await latest(store))["a"]
    assert (after.state, after.reason, after.content, after.when_to_use) == ("retired", "forgotten", "", "")
    assert (after.sources, after.revision, after.updated) == ((), 1, 9.0)


async def test_a_lesson_with_other_sources_loses_the_source_and_its_counters(store: Store):
    await store.save([lesson("a", "t1", "t2", guided=(9, 9), unguided=(9, 1)), lesson("b", "t9")])
    assert await forget(store, ["t1"], lambda: 9.0) == Forgotten(trimmed=("a",))
    found = await latest(store)
    after = found["a"]
    assert (after.state, after.sources, after.independent) == ("active", ("t2",), 1)
    assert (after.guided, after.unguided, after.revision) == ((0, 0), (0, 0), 1)
    for again in (["t1"], []):
        assert await forget(store, again, lambda: 10.0) == Forgotten()
    assert found["b"].revision == 0


async def test_words_that_quote_a_source_do_not_outlive_it(store: Store):
    await store.save([lesson("a", "t1", "t2", kind="tool", detail={"errors": ["secret"]})])
    assert (await forget(store, ["t1"], lambda: 9.0)).retired == ("a",)
    assert (await latest(store))["a"].detail == {}


async def test_earlier_revisions_are_erased(store: Store, store_url: str):
    await store.save([lesson("a", "t1"), lesson("a", "t1", revision=1)])
    await forget(store, ["t1"], lambda: 9.0)
    ((revision, body),) = rows(store_url, "SELECT revision, body FROM experiences")
    assert revision == 2
    assert b"secret" not in body
