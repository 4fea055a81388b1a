"""The navigator: which lessons a goal is given, in which order, and which never."""

import msgspec
import pytest

from actors.experience import navigator as navigating
from actors.experience.lessons import Practice, detail_of
from actors.experience.navigator import Navigator
from actors.messages.experience import lessons_text
from actors.store import Store
from actors.system.actor import Received
from adapters.embedders.hashing import HashingEmbedder
from tests.unit.actors.experience.made import lesson, navigator

pytestmark = pytest.mark.anyio

BOOK = lesson("book")
BOTH = "Cancel the order for:Mia and book a flight to:Oslo."


CANCEL = lesson("cancel", "cancel", "before_cancel:check_policy then cancel:drop")
RENAMED = Practice(intent="refund money", tool="zokari", what="instead", other="create_refund")
WEATHER = lesson("weather", "weather", "weather:forecast")


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


async def test_an_agent_with_a_renamed_tool_is_told_whatever_its_goal_says(store: Store):
    renamed = lesson("zokari", "refund money", RENAMED.content, kind="rename", detail=detail_of(RENAMED))
    actor = await navigator(store, renamed, BOOK)
    goal = "the kettle leaks, I want it sorted"
    assert [one.id for one in await actor.lessons(goal, tools=["zokari", "lookup_order"])] == ["zokari"]
    assert not await actor.lessons(goal, tools=["lookup_order"])
    assert not await actor.lessons(goal)
    # A revision says that it was no rename: its words are the same.
    await actor.handle([Received("1", "", msgspec.structs.replace(renamed, kind="practice", revision=1))])
    assert not await actor.lessons(goal, tools=["zokari"])
    await actor.handle([Received("2", "", msgspec.structs.replace(renamed, state="retired", revision=2))])
    assert not await actor.lessons(goal, tools=["zokari"])


async def test_an_active_lesson_comes_before_any_candidate(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(navigating, "_TRIAL_SHARE", 1.0)
    candidate = lesson("candidate", content="search then book:take", state="candidate", guided=(9, 9), unguided=(9, 0))
    assert await ids(await navigator(store, candidate, BOOK), "Book it.") == ["book"]


async def test_a_candidate_is_tried_in_its_share_of_the_questions(store: Store):
    candidate = lesson("candidate", state="candidate")
    actor = await navigator(store, candidate)
    given = [len(await ids(actor, "Book it.")) for _ in range(400)]
    assert 160 < sum(given) < 240


async def test_retired_lessons_are_never_given_and_news_counts_at_once(store: Store):
    actor = await navigator(store, BOOK)
    assert await ids(actor, "Book it.") == ["book"]
    retired = lesson("book", state="retired", revision=1)
    await actor.handle([Received("1", "", retired), Received("2", "", CANCEL)])
    assert await ids(actor, BOTH) == ["cancel"]


async def test_news_that_another_daemon_heard_is_read_from_the_store(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(navigating, "_REFRESH_SECONDS", 0.0)
    actor = await navigator(store, BOOK)
    await store.save([CANCEL])
    await actor.tick()
    assert await ids(actor, BOTH) == ["cancel", "book"]


async def test_tenants_never_see_each_others_lessons(store: Store):
    actor = await navigator(store, lesson("acme", tenant="acme"), CANCEL)
    assert await ids(actor, BOTH) == ["cancel"]
    assert await ids(actor, BOTH, "acme") == ["acme"]
    assert await ids(actor, BOTH, "nobody") == []


async def test_with_no_embedder_configured_words_alone_find_and_nothing_waits(store: Store):
    refund = lesson("refund", "get the money back for a broken parcel", "look the order up first")
    actor = await navigator(store, refund, WEATHER, embedder=None)
    await actor.tick()
    assert await ids(actor, "My parcels came broken, I want my money back please") == ["refund"]
    assert await ids(actor, "Sing me something in Latin") == []
    assert (actor.figures["waiting"], actor.figures["by_words"]) == (0, 0)


async def test_a_lesson_is_found_by_how_the_runs_that_it_is_from_were_asked_for(store: Store):
    asked = ("my cash returned", "reimburse me for this", "i was charged and want it undone")
    without, taught = lesson("a", "refunds", "look up"), lesson("b", "repayments", "look up", asked=asked)
    actor = await navigator(store, without, taught)
    assert await ids(actor, "Please reimburse me, I was charged") == ["b"]


async def test_a_skill_and_insights_for_the_same_use_are_given_beside_one_of_two_rival_practices(store: Store):
    when = "a customer wants money back for a broken parcel"
    actor = await navigator(
        store,
        lesson("picture", when, "Ask for a picture of the damage.", kind="insight"),
        lesson("steps", when, "1. orders.find 2. refunds.create", kind="skill"),
        lesson("one", when, "Look the order up first.", kind="practice", guided=(9, 9)),
        lesson("two", when, "Never look the order up.", kind="practice", guided=(9, 0)),
    )
    assert sorted(await ids(actor, "A customer wants money back for a broken parcel")) == ["one", "picture", "steps"]


async def test_no_more_lessons_than_fit_none_where_disabled_and_never_an_older_revision(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr(navigating, "_MOST", 1)
        assert len(await ids(await navigator(store, BOOK, CANCEL), BOTH)) == 1
    assert await ids(await navigator(store, enabled=False), BOTH) == []
    actor = await navigator(store)
    await actor.handle([Received("1", "", lesson("book", state="retired", revision=2))])
    await actor.handle([Received("2", "", lesson("book", revision=1))])
    assert await ids(actor, BOTH) == ["cancel"]


async def test_now_and_then_it_looks_whether_another_model_answers(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(navigating, "_PROBE_SECONDS", 0.0)
    embedder = HashingEmbedder(dimension=64)
    actor = await navigator(store, BOOK, embedder=embedder)
    embedder.dimension = 96
    await actor.tick()
    assert (actor.figures["embedder_changes"], actor.figures["waiting"]) == (1, 0)
