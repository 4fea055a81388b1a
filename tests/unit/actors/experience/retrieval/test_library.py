"""The library behind an embedder that goes away, changes its model, or answers nonsense: nothing is lost or mixed."""

from collections.abc import Callable, Sequence

import anyio
import msgspec
import numpy as np
import pytest

from actors.experience import navigator as navigating
from actors.experience.navigator import Navigator
from actors.experience.retrieval import embedding, library
from actors.messages import Experience
from actors.ports.errors import ModelUnavailable
from actors.store import Store
from adapters.embedders.hashing import HashingEmbedder
from tests.unit.actors.experience.made import lesson, navigator

pytestmark = pytest.mark.anyio
TOPICS = ("refund money", "flight seat", "weather storm", "password reset", "invoice tax")


class Changing:
    """A real embedder whose model, and whose manners, can be changed while it is in use."""

    id = "changing"

    def __init__(self, model: HashingEmbedder | None = None) -> None:
        self.model = model or HashingEmbedder(dimension=64)
        self.spoil: Callable[[Sequence[str], np.ndarray], np.ndarray] = lambda texts, vectors: vectors
        self.away = False
        self.embedded: list[str] = []

    @property
    def dimension(self) -> int:
        return self.model.dimension

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.away:
            raise ModelUnavailable("away")
        self.embedded += texts
        return self.spoil(texts, await self.model.embed(texts))


def lessons(count: int = 40, prefix: str = "l", **fields: object) -> list[Experience]:
    return [lesson(f"{prefix}{n}", f"{TOPICS[n % 5]} {n}", f"step {n}", **fields) for n in range(count)]


async def right(actor: Navigator) -> bool:
    """Whether the search finds what is about refunds, and by vectors as well as words."""
    found = await actor.search("refund money", "default", 5)
    return len(found) == 5 and all("refund" in one.when_to_use for _, one in found)


async def test_a_restart_embeds_nothing_twice_unless_another_model_answers_to_the_name(store: Store):
    await navigator(store, *lessons(), embedder=Changing())
    again = Changing()
    actor = await navigator(store, embedder=again)
    assert (len(again.embedded), actor.figures["waiting"]) == (1, 0), "the probe, whether it is the same model"
    assert await right(actor)
    other = Changing(HashingEmbedder(dimension=64, ngram=2))
    actor = await navigator(store, embedder=other)
    assert (len(other.embedded), actor.figures["embedder_changes"]) == (41, 1)
    assert await right(actor)


async def test_lessons_that_came_while_the_embedder_was_away_get_their_vectors_when_it_is_back(store: Store):
    embedder = Changing()
    embedder.away = True
    actor = await navigator(store, *lessons(), embedder=embedder)
    assert actor.figures["waiting"] == 40
    assert await right(actor)  # by words
    embedder.away = False
    await actor.tick()
    assert actor.figures["waiting"] == 0
    before = actor.figures["by_words"]
    assert await right(actor)
    assert actor.figures["by_words"] == before


async def test_another_dimension_makes_all_be_embedded_anew_and_never_mixes(store: Store):
    embedder = Changing()
    actor = await navigator(store, *lessons(), embedder=embedder)
    embedder.model = HashingEmbedder(dimension=96)
    assert await right(actor)  # by words: no vector of 96 can be compared with one of 64
    assert actor.figures["by_words"] == 1
    await actor.tick()
    assert (actor.figures["waiting"], actor.figures["embedder_changes"]) == (0, 1)
    assert await right(actor)
    assert actor.figures["by_words"] == 1
    spaces = {space for pool in actor._library._pools.values() for space in pool.vectors}
    assert {space.dimension for space in spaces} == {96}


@pytest.mark.parametrize("value", [np.nan, 0.0])
async def test_one_bad_vector_costs_one_lesson_its_vector_and_is_counted(store: Store, value: float):
    embedder = Changing()

    def spoil(texts: Sequence[str], vectors: np.ndarray) -> np.ndarray:
        for row, text in enumerate(texts):
            if text.startswith("flight seat 1 "):
                vectors[row] = value
        return vectors

    embedder.spoil = spoil
    actor = await navigator(store, *lessons(), embedder=embedder)
    for _ in range(5):
        await actor.tick()
    assert actor.figures["waiting"] == 1
    asked = len(embedder.embedded)
    await actor.tick()
    assert len(embedder.embedded) == asked  # not for ever
    assert actor.figures["refused_AnswerRefused"] > 0
    assert "l1" in {one.id for _, one in await actor.search("flight seat 1 step", "default", 40)}


async def test_an_embedder_that_hangs_is_not_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch):
    class Hangs(Changing):
        async def embed(self, texts: Sequence[str]) -> np.ndarray:
            await anyio.sleep_forever()
            raise AssertionError

    await store.save(lessons())
    monkeypatch.setattr(embedding, "_TIMEOUT", 0.05)
    monkeypatch.setattr(embedding, "_QUESTION_TIMEOUT", 0.05)
    actor = await navigator(store, embedder=Hangs())
    assert await right(actor)
    assert actor.figures["embedder_unavailable"] > 0


async def test_while_the_embedder_is_away_not_every_question_waits_for_it(store: Store):
    embedder = Changing()
    actor = await navigator(store, *lessons(), embedder=embedder)
    embedder.away = True
    for _ in range(3):
        assert await right(actor)
    assert actor.figures["by_words"] == 3
    assert actor.figures["embedder_unavailable"] == 1


async def test_the_pool_of_a_tenant_is_bounded_and_the_most_useful_stay(store: Store, monkeypatch: pytest.MonkeyPatch):
    flood = lessons(300, prefix="loud", tenant="loud")
    useful = lesson("useful", "refund money", "x", tenant="loud", guided=(9, 9), unguided=(9, 0))
    await store.save([useful, *flood, *lessons()])
    monkeypatch.setattr(library, "_MOST", 100)
    actor = await navigator(store, embedder=Changing())
    assert actor.figures["lessons"] <= 140
    assert actor.figures["left_out"] >= 201
    assert await right(actor)
    assert "useful" in {one.id for _, one in await actor.search("refund money", "loud", 3)}


async def test_vectors_of_a_lesson_that_is_forgotten_do_not_stay_in_the_cache(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    await store.save(lessons(3))
    monkeypatch.setattr(navigating, "_REFRESH_SECONDS", 0.0)
    actor = await navigator(store, embedder=Changing())
    await store.save([lesson("l1", "", "", state="retired", revision=1)])
    await actor.tick()
    await actor._prune()
    assert {one.id for _, one in await actor.search("flight seat", "default", 9)}.isdisjoint({"l1"})
    space = actor._embeddings.space
    kept = await store.prune_embeddings(space.embedder, space.dimension, set())
    assert kept == 2


async def test_what_is_taken_away_or_says_something_else_is_found_no_more():
    shelf = library.Library(None)
    a, c = lesson("a", "refund money"), lesson("c", "refund money", tenant="other")
    await shelf.put([a, lesson("b", "flight seat"), c])
    await shelf.put([lesson("b", "password reset", revision=1)])
    await shelf.put(msgspec.structs.replace(one, when_to_use="", content="", revision=1) for one in (a, a, c))
    assert len(shelf) == 1
    for tenant, text in (("default", "refund money"), ("default", "flight seat"), ("other", "refund money")):
        assert [one.lesson.id for one in await shelf.find([text], tenant, 9) if one.coverage > 0.5] == []
    assert [one.lesson.id for one in await shelf.find(["reset my password"], "default", 9)] == ["b"]
