"""The navigator: which lessons a goal is given, in which order, and which never."""

import random
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from actors.experience.navigator import Navigator
from actors.experience.retrieval.ranking import utility
from actors.experience.retrieval.settings import NavigatorSettings
from actors.messages import Experience
from actors.messages.experience import lessons_text
from actors.ports.errors import EmbedderUnavailable
from actors.store import Store
from actors.system.actor import Received
from adapters.embedders.hashing import HashingEmbedder

pytestmark = pytest.mark.anyio

BOTH = "Cancel the order for:Mia and book a flight to:Oslo."


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    yield store
    await store.aclose()


def lesson(id: str, intent: str, content: str, state: str = "active", **fields: object) -> Experience:
    return Experience(id=id, when_to_use=intent, content=content, state=state, **fields)  # type: ignore[arg-type]


BOOK = lesson("book", "book", "search then book:buy")
CANCEL = lesson("cancel", "cancel", "before_cancel:check_policy then cancel:drop")
WEATHER = lesson("weather", "weather", "weather:forecast")


async def navigator(store: Store, *lessons: Experience, seed: int = 0, **settings: object) -> Navigator:
    await store.save(lessons)
    actor = Navigator(
        NavigatorSettings(**settings),  # type: ignore[arg-type]
        store=store,
        embedder=HashingEmbedder(),
        rng=random.Random(seed),
    )
    await actor.start()
    return actor


async def ids(actor: Navigator, goal: str, tenant: str = "default") -> list[str]:
    return [found.id for found in await actor.lessons(goal, tenant)]


async def test_a_goal_gets_the_lessons_whose_intent_it_names_in_its_own_order(store: Store):
    actor = await navigator(store, BOOK, CANCEL, WEATHER)
    assert await ids(actor, BOTH) == ["cancel", "book"]
    assert await ids(actor, "Book a flight to:Oslo for:Mia.") == ["book"]
    assert await ids(actor, "Clear the queue.") == []
    assert lessons_text(await actor.lessons(BOTH)) == (
        "\nWhen to use: cancel. Content: before_cancel:check_policy then cancel:drop."
        "\nWhen to use: book. Content: search then book:buy."
    )


async def test_a_goal_that_is_alike_without_naming_the_intent_gets_the_lesson_too(store: Store):
    actor = await navigator(store, lesson("w", "forecast weather tomorrow", "weather:forecast"), CANCEL)
    assert await ids(actor, "weather forecast for tomorrow") == ["w"]


async def test_no_lessons_are_no_error(store: Store):
    assert await ids(await navigator(store), BOTH) == []


async def test_of_two_lessons_for_one_intent_the_more_useful_is_given(store: Store):
    better = lesson("better", "book", "search then book:buy", guided=(20, 18), unguided=(20, 2))
    worse = lesson("worse", "book", "search then book:take", guided=(20, 10), unguided=(20, 9))
    assert await ids(await navigator(store, worse, better), BOTH) == ["better"]


async def test_an_active_lesson_comes_before_any_candidate(store: Store):
    candidate = lesson("candidate", "book", "search then book:take", "candidate", guided=(9, 9), unguided=(9, 0))
    assert await ids(await navigator(store, candidate, BOOK, trial_share=1.0), "Book it.") == ["book"]


async def test_at_most_k_lessons_are_given_the_most_useful_ones(store: Store):
    useful = lesson("useful", "book", "search then book:buy", guided=(20, 18), unguided=(20, 2))
    assert await ids(await navigator(store, CANCEL, useful, k=1), BOTH) == ["useful"]


async def test_a_candidate_is_tried_in_its_share_of_the_questions(store: Store):
    candidate = lesson("candidate", "book", "search then book:buy", "candidate")
    actor = await navigator(store, candidate, trial_share=0.25)
    given = [len(await ids(actor, "Book it.")) for _ in range(400)]
    assert 70 < sum(given) < 130


async def test_retired_lessons_are_never_given_and_news_counts_at_once(store: Store):
    actor = await navigator(store, BOOK)
    assert await ids(actor, "Book it.") == ["book"]
    retired = lesson("book", "book", "search then book:buy", "retired", revision=1)
    await actor.handle([Received("1", "", retired), Received("2", "", CANCEL)])
    assert await ids(actor, BOTH) == ["cancel"]


async def test_news_that_another_daemon_heard_is_read_from_the_store(store: Store):
    actor = await navigator(store, BOOK, refresh_seconds=0.0)
    await store.save([CANCEL])
    await actor.tick()
    assert await ids(actor, BOTH) == ["cancel", "book"]


async def test_an_older_revision_changes_nothing(store: Store):
    actor = await navigator(store, lesson("book", "book", "search then book:buy", "retired", revision=3))
    await actor.handle([Received("1", "", BOOK)])
    assert await ids(actor, "Book it.") == []


async def test_tenants_never_see_each_others_lessons(store: Store):
    actor = await navigator(store, lesson("acme", "book", "search then book:buy", tenant="acme"), CANCEL)
    assert await ids(actor, BOTH) == ["cancel"]
    assert await ids(actor, BOTH, "acme") == ["acme"]
    assert await ids(actor, BOTH, "nobody") == []


async def test_switched_off_it_gives_nothing(store: Store):
    assert await ids(await navigator(store, BOOK, enabled=False), BOTH) == []


async def test_without_an_embedder_lessons_are_found_by_intent_and_words_and_that_is_counted(store: Store):
    class Away(HashingEmbedder):
        async def embed(self, texts: Sequence[str]) -> np.ndarray:
            raise EmbedderUnavailable("no answer")

    await store.save([BOOK, lesson("w", "forecast weather tomorrow", "weather:forecast")])
    actor = Navigator(NavigatorSettings(), store=store, embedder=Away(), rng=random.Random(0))
    await actor.start()
    assert await ids(actor, "Book it.") == ["book"]
    assert await ids(actor, "weather forecast") == ["w"]
    assert actor.figures["by_words"] == 2
    assert actor.figures["waiting"] == 2


def test_utility_is_shrunk_while_trials_are_few():
    few = lesson("few", "book", "x", guided=(1, 1), unguided=(1, 0))
    many = lesson("many", "book", "x", guided=(50, 50), unguided=(50, 0))
    assert 0 < utility(few) < utility(many) < 1
    assert utility(BOOK) == 0
