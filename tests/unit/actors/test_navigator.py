"""The navigator: which lessons a goal is given, in which order, and which never."""

import random

import pytest

from actors.lessons import render
from actors.messages import Experience
from actors.navigator import Navigator, NavigatorSettings, utility
from actors.system.actor import Received
from actors.system.errors import DependencyUnavailable
from adapters.embedders.hashing import HashingEmbedder
from adapters.errors import EmbedderUnavailable

pytestmark = pytest.mark.anyio

BOTH = "Cancel the order for:Mia and book a flight to:Oslo."


class Lessons:
    """The store's part."""

    def __init__(self, *lessons: Experience) -> None:
        self.lessons = list(lessons)

    async def experiences(self, state: str | None = None) -> list[Experience]:
        return self.lessons


def lesson(id: str, intent: str, content: str, state: str = "active", **fields: object) -> Experience:
    return Experience(id=id, when_to_use=intent, content=content, state=state, **fields)  # type: ignore[arg-type]


BOOK = lesson("book", "book", "search then book:buy")
CANCEL = lesson("cancel", "cancel", "before_cancel:check_policy then cancel:drop")
WEATHER = lesson("weather", "weather", "weather:forecast")


async def navigator(*lessons: Experience, seed: int = 0, **settings: float) -> Navigator:
    actor = Navigator(
        NavigatorSettings(**settings),  # type: ignore[arg-type]
        store=Lessons(*lessons),
        embedder=HashingEmbedder(),
        rng=random.Random(seed),
    )
    await actor.start()
    return actor


async def ids(actor: Navigator, goal: str, tenant: str = "default") -> list[str]:
    return [found.id for found in await actor.lessons(goal, tenant)]


async def test_a_goal_gets_the_lessons_whose_intent_it_names_in_its_own_order():
    actor = await navigator(BOOK, CANCEL, WEATHER)
    assert await ids(actor, BOTH) == ["cancel", "book"]
    assert await ids(actor, "Book a flight to:Oslo for:Mia.") == ["book"]
    assert await ids(actor, "Clear the queue.") == []
    assert render(await actor.lessons(BOTH)) == (
        "\nWhen to use: cancel. Content: before_cancel:check_policy then cancel:drop."
        "\nWhen to use: book. Content: search then book:buy."
    )


async def test_a_goal_that_is_alike_without_naming_the_intent_gets_the_lesson_too():
    actor = await navigator(lesson("w", "forecast weather tomorrow", "weather:forecast"), CANCEL)
    assert await ids(actor, "weather forecast for tomorrow") == ["w"]


async def test_no_lessons_are_no_error():
    assert await ids(await navigator(), BOTH) == []


async def test_of_two_lessons_for_one_intent_the_more_useful_is_given():
    better = lesson("better", "book", "search then book:buy", guided=(20, 18), unguided=(20, 2))
    worse = lesson("worse", "book", "search then book:take", guided=(20, 10), unguided=(20, 9))
    assert await ids(await navigator(worse, better), BOTH) == ["better"]


async def test_an_active_lesson_comes_before_any_candidate():
    candidate = lesson("candidate", "book", "search then book:take", "candidate", guided=(9, 9), unguided=(9, 0))
    assert await ids(await navigator(candidate, BOOK, trial_share=1.0), "Book it.") == ["book"]


async def test_at_most_k_lessons_are_given_the_most_useful_ones():
    useful = lesson("useful", "book", "search then book:buy", guided=(20, 18), unguided=(20, 2))
    assert await ids(await navigator(CANCEL, useful, k=1), BOTH) == ["useful"]


async def test_a_candidate_is_tried_in_its_share_of_the_questions():
    candidate = lesson("candidate", "book", "search then book:buy", "candidate")
    actor = await navigator(candidate, trial_share=0.25)
    given = [len(await ids(actor, "Book it.")) for _ in range(400)]
    assert 70 < sum(given) < 130


async def test_retired_lessons_are_never_given_and_news_counts_at_once():
    actor = await navigator(BOOK)
    assert await ids(actor, "Book it.") == ["book"]
    retired = lesson("book", "book", "search then book:buy", "retired", revision=1)
    await actor.handle([Received("1", "", retired), Received("2", "", CANCEL)])
    assert await ids(actor, BOTH) == ["cancel"]


async def test_news_that_another_daemon_heard_is_read_from_the_store():
    store = Lessons(BOOK)
    actor = Navigator(NavigatorSettings(), store=store, embedder=HashingEmbedder(), rng=random.Random(0))
    await actor.start()
    store.lessons.append(CANCEL)
    await actor.tick()
    assert await ids(actor, BOTH) == ["cancel", "book"]


async def test_an_older_revision_changes_nothing():
    actor = await navigator(lesson("book", "book", "search then book:buy", "retired", revision=3))
    await actor.handle([Received("1", "", BOOK)])
    assert await ids(actor, "Book it.") == []


async def test_tenants_never_see_each_others_lessons():
    actor = await navigator(lesson("acme", "book", "search then book:buy", tenant="acme"), CANCEL)
    assert await ids(actor, BOTH) == ["cancel"]
    assert await ids(actor, BOTH, "acme") == ["acme"]
    assert await ids(actor, BOTH, "nobody") == []


async def test_switched_off_it_gives_nothing():
    assert await ids(await navigator(BOOK, enabled=False), BOTH) == []


async def test_an_embedder_that_is_away_is_an_outage():
    class Away(HashingEmbedder):
        async def embed(self, texts: object) -> object:  # type: ignore[override]
            raise EmbedderUnavailable("no answer")

    actor = Navigator(NavigatorSettings(), store=Lessons(BOOK), embedder=Away(), rng=random.Random(0))  # type: ignore[arg-type]
    await actor.start()
    with pytest.raises(DependencyUnavailable, match="no answer"):
        await actor.lessons(BOTH)


def test_utility_is_shrunk_while_trials_are_few():
    few = lesson("few", "book", "x", guided=(1, 1), unguided=(1, 0))
    many = lesson("many", "book", "x", guided=(50, 50), unguided=(50, 0))
    assert 0 < utility(few) < utility(many) < 1
    assert utility(BOOK) == 0
