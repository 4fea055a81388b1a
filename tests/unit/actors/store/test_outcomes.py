"""What each report did to its run's outcome, and what each revision came to; over many runs the simulator watches."""

from collections.abc import Sequence

import pytest
from sqlalchemy import select

from actors.messages import BatchOrder, Candidate, Feedback
from actors.store import Dropped, Effect, Guessed, HeardUntil, Joined, Store
from actors.store import tables as t
from actors.store.outcomes import CORRECTIONS, GIVEN_UP
from tests.support.credited import attributed, candidate

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
CLOSED = 10.0


async def say(store: Store, *outcomes: float | None, start: float = CLOSED, **fields: object) -> None:
    """Reports of the run "a", one a second."""
    for number, outcome in enumerate(outcomes):
        said = Feedback(id=f"f{start}-{number}", received=start + number, trajectory_id="a", outcome=outcome, **fields)
        await store.save([said, Joined(id=said.id, trajectory_id="a", outcome=outcome)])


async def row(store: Store) -> tuple[float | None, int]:
    (found,) = await store.recent_outcomes()
    return found.outcome, found.revision


async def effects(store: Store, channel: str = "training") -> list[tuple[int, str, str]]:
    """(revision, effect, why not) of the run "a"."""
    one = t.EffectRow
    wanted = select(one.revision, one.effect, one.detail).where(one.channel == channel).order_by(one.revision)
    return [tuple(found) for found in await store.ask(lambda connection: connection.execute(wanted).all())]


CHANGES = [number / 10 for number in range(CORRECTIONS + 3)]


@pytest.mark.parametrize(
    ("closed_with", "reports", "fields", "words", "becomes"),
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
    store: Store, closed_with: float | None, reports: Sequence[float | None], fields: dict, words: dict, becomes: tuple
) -> None:
    await store.save([attributed("a", outcome=closed_with)])
    await say(store, *reports, **fields)
    assert store.reports.words == words
    assert await row(store) == becomes
    item = await store.trajectory("a")
    assert item is not None
    assert (item.trajectory.outcome, item.trajectory.outcome_revision) == becomes, "the body too"


async def test_a_report_that_is_older_than_the_last_word_changes_nothing(store: Store) -> None:
    await store.save([attributed("a", outcome=None)])
    await say(store, 1.0, 1.0, start=100.0)
    await say(store, 0.0, start=100.5)
    assert store.reports.words == {"told": 1, "equal": 1, "outdated": 1}
    assert await row(store) == (1.0, 0)


async def test_what_was_measured_in_the_sandbox_is_corrected_by_nobody(store: Store) -> None:
    await store.save([attributed("a", source="sandbox", group="g", outcome=1.0)])
    await say(store, 0.0)
    assert (await row(store), dict(store.reports.words)) == ((1.0, 0), {})


@pytest.mark.parametrize(
    ("answer", "no_gradient", "becomes"),
    [
        ("trained", {}, (1, "trained", "")),
        ("trained", {"a": "equal"}, (1, "none", "no gradient: equal")),
        ("skipped", {}, (1, "none", "skipped")),
    ],
)
async def test_each_revision_has_one_effect_in_training(
    store: Store, answer: str, no_gradient: dict[str, str], becomes: tuple[int, str, str]
) -> None:
    await store.save([attributed("a", outcome=None)])
    await say(store, 1.0, 0.0)
    await store.save([BatchOrder(id="o", path="", sha256="", size=0, trajectories=("a",), revisions=(1,))])
    assert await effects(store) == [(0, "none", "superseded"), (1, "ordered", "")]
    made: Candidate = candidate(1, batch_ids=("o",), answer=answer, no_gradient=no_gradient)
    for _ in range(2):
        await store.save([made])
        assert await effects(store) == [(0, "none", "superseded"), becomes], "once"
    await store.save([Effect(id="a", revision=1, channel="kinds", effect="weighs")] * 2)
    await store.save([Effect(id="nobody", revision=0, channel="kinds", effect="weighs")])
    assert await effects(store, "kinds") == [(1, "weighs", "")]


async def test_an_order_that_is_given_up_is_answered_all_the_same(store: Store) -> None:
    await store.save([attributed("a"), BatchOrder(id="o", path="", sha256="", size=0, trajectories=("a",))])
    await store.save([Dropped(id="a", reason=GIVEN_UP)])
    assert await effects(store) == [(0, "none", GIVEN_UP)]
    await store.save([candidate(1, batch_ids=("o",))])
    assert await effects(store) == [(0, "trained", "")]


async def test_the_exam_has_the_newest_word_on_a_run_that_is_held_out(store: Store) -> None:
    await store.save([attributed("a", outcome=None), Dropped(id="a", reason="held out")])
    await say(store, 1.0, 0.0)
    assert await effects(store, "gate") == [(0, "none", "superseded"), (1, "exam", "")]
    assert {why for _, effect, why in await effects(store) if effect == "none"} == {"held out"}


async def test_what_was_trained_on_a_guess_is_corrected_by_the_first_report(store: Store) -> None:
    await store.save([attributed("a", outcome=None), Guessed(id="a", outcome=0.7)])
    await store.save([BatchOrder(id="o", path="", sha256="", size=0, trajectories=("a",))])
    assert await row(store) == (None, 0), "a guess stands in no row"
    await say(store, 0.0)
    assert await row(store) == (0.0, 1)
    assert await effects(store) == [(0, "ordered", "")]


async def test_readers_hear_late_words_once_and_a_correction_waits_for_the_answer_of_its_order(store: Store) -> None:
    await store.save([attributed("a", outcome=None), attributed("b"), attributed("c", outcome=0.0)])
    await say(store, 1.0)
    await store.save([BatchOrder(id="o", path="", sha256="", size=0, trajectories=("a", "b"))])
    (first,) = await store.late_outcomes("reader", "kinds", 9)
    assert (first.trajectory_id, first.revision, first.outcome) == ("a", 0, 1.0)
    await store.save([HeardUntil(id="reader", sequence=first.sequence)])
    await say(store, 0.0, start=20.0)
    (second,) = await store.late_outcomes("reader", "kinds", 9)
    assert (second.revision, second.outcome) == (1, 0.0)
    await store.save([Effect(id="a", revision=1, channel="kinds", effect="weighs")])
    assert await store.late_outcomes("reader", "kinds", 9) == [], "it has an effect there"
    assert len(await store.late_outcomes("other", "lessons", 9)) == 2
    assert await store.newest_late(0.0, 9) == ["a"]
    assert await store.newest_late(21.0, 9) == []
    (current,) = await store.current([attributed("a", outcome=None)])
    assert (current.trajectory.outcome, current.trajectory.outcome_revision) == (0.0, 1)
    assert await store.corrections(9) == [], "what there is to correct is not known yet"
    await store.save([candidate(1, batch_ids=("o",), no_gradient={"b": "equal"})])
    (found,) = await store.corrections(9)
    assert (found.item.id, found.before, found.item.trajectory.outcome) == ("a", 1.0, 0.0)
    figures = await store.outcome_figures()
    assert {key: figures[key] for key in ("reported", "runs_reported", "had_effect", "none", "under_way", "share")} == {
        "reported": 4, "runs_reported": 3, "had_effect": 2, "none": 1, "under_way": 1, "share": 2 / 3,
    }  # fmt: skip
    assert figures["none_because"] == {"no gradient: equal": 1}
    assert figures["effects"] == {"training": {"trained": 1, "no gradient: equal": 1}, "kinds": {"weighs": 1}}
