"""What each report did to its run's outcome, and that whoever uses it hears of it, in the same commit."""

from collections.abc import Sequence

import pytest

from actors.messages import BatchOrder, Candidate, Feedback, OutcomeChanged, decode
from actors.store import Dropped, Guessed, Joined, Store, Used
from actors.store.outcomes import CORRECTIONS, GIVEN_UP
from actors.store.run_story import RunStory, run_story
from tests.support.credited import attributed, candidate

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
CLOSED = 10.0


def reports(*outcomes: float | None, start: float = CLOSED, **fields: object) -> list[Feedback]:
    """Of the run "a", one a second."""
    return [
        Feedback(id=f"f{start}-{number}", received=start + number, trajectory_id="a", outcome=outcome, **fields)
        for number, outcome in enumerate(outcomes)
    ]


async def say(store: Store, *outcomes: float | None, start: float = CLOSED, **fields: object) -> list[int]:
    """Revisions that are told of, a report at a time."""
    told: list[int] = []
    for said in reports(*outcomes, start=start, **fields):
        changed = await store.save([said, Joined(id=said.id, trajectory_id="a", outcome=said.outcome)])
        told += [one.revision for one in changed]
    return told


async def row(store: Store, source: str = "production") -> tuple[float | None, int]:
    (found,) = await store.recent_outcomes(source=source)
    return found.outcome, found.revision


async def story(store: Store) -> RunStory:
    found = await store.ask(lambda connection: run_story(connection, "a"))
    assert isinstance(found, RunStory)
    return found


CHANGES = [number / 10 for number in range(CORRECTIONS + 3)]


@pytest.mark.parametrize(
    ("closed_with", "outcomes", "fields", "words", "becomes"),
    [
        (None, [1.0], {}, {"told": 1}, (1.0, 0)),
        (None, [1.0, 0.0], {}, {"told": 1, "correction": 1}, (0.0, 1)),
        (None, [1.0, 1.0], {}, {"told": 1, "equal": 1}, (1.0, 0)),
        (None, [float("nan"), 1.0, float("nan")], {}, {"told": 1, "not_a_number": 2}, (1.0, 0)),
        (1.0, [0.0], {"final": False}, {"not_final": 1}, (1.0, 0)),
        (1.0, [0.0], {"kind": "step"}, {"not_final": 1}, (1.0, 0)),
        (1.0, [None], {}, {}, (1.0, 0)),
        (None, CHANGES, {}, {"told": 1, "correction": CORRECTIONS, "capped": 2}, (CHANGES[CORRECTIONS], CORRECTIONS)),
    ],
    ids=["first", "other", "same", "no number", "not final", "of a step", "without", "too many"],
)
async def test_a_report_is_the_first_word_a_correction_or_changes_nothing(
    store: Store, closed_with: float | None, outcomes: Sequence[float | None], fields: dict, words: dict, becomes: tuple
) -> None:
    await store.save([attributed("a", outcome=closed_with)])
    told = await say(store, *outcomes, **fields)
    assert store.reports == words
    assert told == list(range(words.get("told", 0) + words.get("correction", 0))), "each change is told of, once"
    assert await row(store) == becomes
    item = await store.trajectory("a")
    assert item is not None
    assert (item.trajectory.outcome, item.trajectory.outcome_revision) == becomes, "the body too"
    did = [one.did for one in (await story(store)).reports if one.did]
    assert {word: did.count(word) for word in did} == words, "and each report's"


async def test_a_report_that_is_older_than_the_last_word_changes_nothing(store: Store) -> None:
    await store.save([attributed("a", outcome=None)])
    await say(store, 1.0, 1.0, start=100.0)
    assert await say(store, 0.0, start=100.5) == []
    assert store.reports == {"told": 1, "equal": 1, "outdated": 1}
    assert await row(store) == (1.0, 0)


async def test_what_was_measured_in_the_sandbox_is_corrected_by_nobody(store: Store) -> None:
    await store.save([attributed("a", source="sandbox", group="g", outcome=1.0)])
    assert await say(store, 0.0) == []
    assert (await row(store, "sandbox"), dict(store.reports)) == ((1.0, 0), {})


async def test_the_event_is_in_the_outbox_of_the_commit_that_decided_it(store: Store) -> None:
    """Killed after it, or told twice that it went wrong: it comes all the same, and once."""
    early, *later = reports(1.0, 0.0, 1.0, start=3.0)
    await store.save([early])
    closes = ["closes"], [attributed("a", outcome=None).trajectory], []
    written = await store.commit("assembler", *closes)
    assert [(one.subject, one.id) for one in written or ()] == [("trajectory.outcome", "trajectory.outcome:a:0")]
    assert await store.unpublished("assembler", 9) == written
    assert await store.commit("assembler", *closes) is None, "it was handled"
    both = [*later, *(Joined(id=said.id, trajectory_id="a", outcome=said.outcome) for said in later)]
    (last,) = await store.commit("assembler", [], both, []) or ()
    assert decode(last.data) == OutcomeChanged(id="a", revision=2), "of two in one commit the last is told"
    assert await store.commit("assembler", [], both, []) == [], "a tick's commit whose answer was lost"
    assert await store.unpublished("assembler", 9) == [*(written or ()), last]


async def test_an_actor_hears_of_each_revision_once_and_of_none_without_its_credit(store: Store) -> None:
    stale, first, second = attributed("a", outcome=None), *(OutcomeChanged(id="a", revision=n) for n in range(2))
    await store.save([stale.trajectory])
    await say(store, 1.0)
    assert (await store.latest("x", [first])).runs == {}, "it comes with its credit"
    await store.save([stale])
    for message in (stale, first):
        latest = await store.latest("x", [message])
        run = latest.runs["a"].trajectory
        assert (run.outcome, latest.news(run), latest.news(run)) == (1.0, True, False)
    await store.save([Used(id="a", actor="x", revision=0)] * 2)
    for actor, news in (("x", False), ("y", True)):
        latest = await store.latest(actor, [stale, first])
        assert latest.news(latest.runs["a"].trajectory) is news
    await say(store, 0.0, start=20.0)
    assert (await store.latest("x", [first])).runs == {}, "a newer one comes"
    latest = await store.latest("x", [first, second])
    assert latest.news(latest.runs["a"].trajectory)
    assert await store.newest_late(20.0, 9) == ["a"]
    assert await store.newest_late(21.0, 9) == []


@pytest.mark.parametrize(
    ("answer", "no_gradient", "came"),
    [("trained", {}, "learned"), ("trained", {"a": "equal"}, "equal"), ("skipped", {}, "skipped")],
)
async def test_what_an_order_came_to_stands_whatever_is_reported_later(
    store: Store, answer: str, no_gradient: dict[str, str], came: str
) -> None:
    await store.save([attributed("a", outcome=None), Guessed(id="a", outcome=0.7)])
    await store.save(
        [BatchOrder(id="o", path="", sha256="", size=0, trajectories=("a",)), Dropped(id="a", reason=GIVEN_UP)]
    )
    assert ((await story(store)).came, await row(store)) == (GIVEN_UP, (None, 0)), "a guess stands in no row"
    made: Candidate = candidate(1, batch_ids=("o",), answer=answer, no_gradient=no_gradient)
    await store.save([made])
    assert await say(store, 0.0) == [0]
    await store.save([made, Dropped(id="a", reason="held out")])
    found = await story(store)
    assert (found.came, found.guessed, found.outcome, found.told) == (came, 0.7, 0.0, CLOSED)
