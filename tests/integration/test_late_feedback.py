"""Feedback that comes late, twice, out of order, and is corrected: real actors and store, killed at each point."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.store import Store
from actors.store.erasing import Selector
from actors.store.outcomes import CORRECTIONS
from tests.support.late_feedback import BATCH, Daemon

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
OTHERS = tuple(f"other{number}" for number in range(BATCH))


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    made = Store(store_url, clock=lambda: 5000.0)
    await made.open()
    yield made
    await made.aclose()


@pytest.fixture(params=[False, True], ids=["one life", "killed at each point"])
async def daemon(store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> Daemon:
    return await Daemon(store, tmp_path, restarts=request.param).start()


async def trained(daemon: Daemon) -> None:
    """`late` was trained on with outcome 1, into version 1."""
    await daemon.run("late", *OTHERS[1:])
    for key in ("late", *OTHERS[1:]):
        await daemon.say(key, 1.0)
    await daemon.hear()
    await daemon.answer(1)


async def more(daemon: Daemon, name: str) -> None:
    """Company for the next order."""
    keys = [f"{name}{number}" for number in range(BATCH)]
    await daemon.run(*keys, version=1)
    for key in keys:
        await daemon.say(key, 0.0)


@pytest.mark.parametrize("late", [300.0, 4 * 3600.0, 2 * 86_400.0], ids=["minutes", "hours", "two days"])
async def test_a_late_outcome_is_trained_on_while_its_run_is_fresh(daemon: Daemon, late: float) -> None:
    await daemon.run("late", *OTHERS)
    daemon.now += late
    for key in ("late", *OTHERS[1:]):
        await daemon.say(key, 0.0)
    await daemon.hear()
    (order,) = daemon.orders
    assert daemon.items(order)["late"].attributed.trajectory.outcome == 0.0
    await daemon.answer(1)
    (effects,) = await daemon.effects("late")
    assert effects["training"] == "trained"
    assert await daemon.weighs("late") == [{"kinds", "lessons"}]
    (revision,) = (await daemon.story("late")).revisions
    assert revision.late is not None
    assert revision.late >= late
    assert (await daemon.story("other0")).revisions == ()


async def test_after_staleness_it_still_feeds_kinds_and_lessons_and_says_why_it_was_not_trained_on(
    daemon: Daemon,
) -> None:
    await daemon.run("late")
    await daemon.serve(5)
    await daemon.hear()
    await daemon.say("late", 0.0)
    await daemon.hear()
    assert daemon.orders == []
    assert (await daemon.effects("late"))[0]["training"] == "too late"
    assert await daemon.weighs("late") == [{"kinds", "lessons"}]


async def test_what_says_the_same_or_comes_after_a_newer_word_is_no_revision(daemon: Daemon) -> None:
    await daemon.run("late")
    await daemon.say("late", 1.0, received=daemon.now + 100)
    await daemon.say("late", 1.0, received=daemon.now + 200)
    await daemon.say("late", 0.0, received=daemon.now + 150)
    await daemon.say("late", 0.0, received=daemon.now + 300, kind="rating", final=False)
    assert [revision.outcome for revision in (await daemon.story("late")).revisions] == [1.0]
    assert list((await daemon.words()).values()) == ["told", "equal", "outdated", "not_final"]


async def test_corrected_before_training_the_latest_is_trained_on_once(daemon: Daemon) -> None:
    await daemon.run("late", *OTHERS[1:])
    await daemon.say("late", 1.0)
    await daemon.hear()
    await daemon.say("late", 0.0)
    for key in OTHERS[1:]:
        await daemon.say(key, 1.0)
    await daemon.hear()
    (order,) = daemon.orders
    item = daemon.items(order)["late"]
    assert (item.attributed.trajectory.outcome, item.corrects) == (0.0, None)
    await daemon.answer(1)
    first, second = await daemon.effects("late")
    assert (first["training"], second["training"]) == ("superseded", "trained")


async def test_corrected_after_training_it_trains_once_more_with_the_difference(daemon: Daemon) -> None:
    await trained(daemon)
    await daemon.say("late", 0.0)
    await more(daemon, "more")
    await daemon.hear()
    item = daemon.items(daemon.orders[1])["late"]
    assert (item.attributed.trajectory.outcome, item.corrects) == (0.0, 1.0)
    await daemon.answer(2)
    await more(daemon, "again")
    await daemon.hear()
    assert "late" not in daemon.items(daemon.orders[2])
    first, second = await daemon.effects("late")
    assert (first["training"], second["training"]) == ("trained", "trained")
    versions = [
        one.version for revision in (await daemon.story("late")).revisions for one in revision.effects
        if one.channel == "training"
    ]  # fmt: skip
    assert versions == [1, 2]


async def test_corrected_between_order_and_answer_it_waits_for_the_answer(daemon: Daemon) -> None:
    await daemon.run("late", *OTHERS[1:])
    for key in ("late", *OTHERS[1:]):
        await daemon.say(key, 1.0)
    await daemon.hear()
    await daemon.say("late", 0.0)
    await more(daemon, "more")
    await daemon.hear()
    assert len(daemon.orders) == 1
    await daemon.answer(1)
    await daemon.hear()
    # The next order was drawn at the answer, which is no use of it before it is in the store.
    assert "late" not in daemon.items(daemon.orders[1])
    await daemon.answer(2)
    await more(daemon, "again")
    await daemon.hear()
    assert daemon.items(daemon.orders[2])["late"].corrects == 1.0


async def test_what_an_order_learned_nothing_from_is_corrected_whole(daemon: Daemon) -> None:
    await daemon.run("late", *OTHERS[1:])
    for key in ("late", *OTHERS[1:]):
        await daemon.say(key, 1.0)
    await daemon.hear()
    late = (await daemon.story("late")).trajectory_id
    await daemon.answer(1, no_gradient={late: "equal_outcomes"})
    await daemon.say("late", 0.0)
    await more(daemon, "more")
    await daemon.hear()
    assert daemon.items(daemon.orders[1])["late"].corrects is None
    assert (await daemon.effects("late"))[0]["training"] == "no gradient: equal_outcomes"


async def test_corrected_after_staleness_it_is_not_trained_on_and_says_so(daemon: Daemon) -> None:
    await trained(daemon)
    await daemon.serve(5)
    await daemon.say("late", 0.0)
    await daemon.hear()
    first, second = await daemon.effects("late")
    assert (first["training"], second["training"]) == ("trained", "stale")
    assert (await daemon.weighs("late"))[1] == {"kinds", "lessons"}


async def test_nobody_trains_a_run_a_thousand_times(daemon: Daemon) -> None:
    await daemon.run("late")
    for number in range(10):
        daemon.now += 1.0
        await daemon.say("late", float(number % 2))
    assert len((await daemon.story("late")).revisions) == 1 + CORRECTIONS
    assert list((await daemon.words()).values()).count("capped") > 1


async def test_a_run_that_was_forgotten_meanwhile_is_not_brought_back(daemon: Daemon) -> None:
    await trained(daemon)
    key = (await daemon.story("late")).trajectory_id
    await daemon.say("late", 0.0)
    selector = Selector(trajectories=(key,))
    scope = await daemon.store.find(selector)
    await daemon.store.tombstone(selector, scope)
    await daemon.store.erase(scope)
    await daemon.say("late", 1.0)
    await more(daemon, "more")
    await daemon.hear()
    assert "late" not in daemon.items(daemon.orders[1])
    assert await daemon.store.trajectory(key) is None
    assert (await daemon.store.outcome_figures())["reported"] == 2 * BATCH - 1


async def test_a_late_outcome_of_a_held_out_run_is_evidence_and_nothing_else(store: Store, tmp_path: Path) -> None:
    daemon = await Daemon(store, tmp_path, exam=True).start()
    await daemon.run("late")
    await daemon.say("late", 1.0)
    await daemon.say("late", 0.0, received=daemon.now + 1)
    await daemon.hear()
    assert await daemon.effects("late") == [
        {"training": "held out", "gate": "superseded"}, {"training": "held out", "gate": "exam"},
    ]  # fmt: skip
    assert await daemon.weighs("late") == [set(), set()]
    (row,) = await store.judged_outcomes(0, since=0.0)
    assert row.outcome == 0.0


async def test_what_reports_came_to_is_counted(daemon: Daemon) -> None:
    await trained(daemon)
    await daemon.run("waits")
    await daemon.say("waits", 0.0)
    figures = await daemon.store.outcome_figures()
    assert (figures["reported"], figures["had_effect"], figures["under_way"]) == (BATCH + 1, BATCH, 1)
    assert figures["share"] == 1.0
    assert daemon.store.reports.effects["training", "trained"] == BATCH
    assert daemon.store.reports.words["told"] == BATCH + 1
