"""Forgetting by source, on the real store."""

import pytest

from actors.experience.forgetting import Forgotten, forget
from actors.messages import Experience
from actors.store import Store
from tests.support.databases import rows
from tests.support.experience import lessons_of
from tests.unit.actors.experience import made

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


def lesson(id: str, *sources: str, **fields: object) -> Experience:
    return made.lesson(id, content=f"secret of {id}", sources=sources, independent=len(sources), **fields)


async def test_a_lesson_with_other_sources_loses_the_source_and_its_counters(store: Store):
    await store.save([lesson("a", "t1", "t2", guided=(9, 9), unguided=(9, 1)), lesson("b", "t9")])
    assert await forget(store, ["t1"], lambda: 9.0) == Forgotten(trimmed=("a",))
    found = await lessons_of(store)
    after = found["a"]
    assert (after.state, after.sources, after.independent) == ("active", ("t2",), 1)
    assert (after.guided, after.unguided, after.revision) == ((0, 0), (0, 0), 1)
    assert found["b"].revision == 0


async def test_words_that_quote_a_source_do_not_outlive_it(store: Store):
    await store.save([lesson("a", "t1", "t2", kind="tool", detail={"errors": ["secret"]})])
    assert (await forget(store, ["t1"], lambda: 9.0)).retired == ("a",)
    assert (await lessons_of(store))["a"].detail == {}


async def test_earlier_revisions_are_erased(store: Store, store_url: str):
    await store.save([lesson("a", "t1"), lesson("a", "t1", revision=1)])
    await forget(store, ["t1"], lambda: 9.0)
    ((revision, body),) = rows(store_url, "SELECT revision, body FROM experiences")
    assert revision == 2
    assert b"secret" not in body
