"""What is remembered of runs and of runs with an outcome, for how long, and what comes late."""

import msgspec
import pytest

from actors.messages import Attribution, StepLabel
from actors.monitoring.history import History, Remembered, Swap
from actors.tool_results.runs import RunSummary

LABELS = (StepLabel("GOOD", 1.0, "feedback: fine"), StepLabel("BAD", 1.0, "error"), StepLabel("ABSTAIN"))
SAID = Attribution(labels=LABELS, judge="rules", rubric="1")


def run(number: int, *, version: int = 0, outcome: float | None = None) -> RunSummary:
    return RunSummary(
        id=f"r{number}", tenant="t", started=float(number), ended=number + 0.5, low=version, high=version,
        tools="", steps=3, errors=0, outcome=outcome,
    )  # fmt: skip


@pytest.fixture
def history() -> History:
    history = History(window=8, sample=4, versions=3)
    history.swapped(Swap("serving", 0, -1, 0.0))
    return history


def sides(history: History, *, reported: bool = True) -> tuple[list[str], list[str]]:
    watched = history.watched(1, reported=reported)
    assert watched is not None
    return [run.id for run in watched.after], [run.id for run in watched.previous]


def test_outcomes_are_kept_however_many_runs_without_one_lie_between(history: History) -> None:
    for number in range(40):
        history.add(run(number, outcome=1.0 if number % 10 == 0 else None))
    tens = ["r0", "r10", "r20", "r30"]
    assert (sides(history)[0], sides(history, reported=False)[0]) == (tens, ["r36", "r37", "r38", "r39"])
    history.swapped(Swap("serving", 1, 0, 40.0))
    assert sides(history) == ([], tens), "also of those from before the swap"


def test_a_correction_is_no_second_outcome(history: History) -> None:
    history.add(run(0))
    assert not history.outcome("never seen", 0.0)
    assert not history.reported
    assert history.outcome("r0", 1.0)
    assert history.outcome("r0", 0.0)
    (kept,) = history.reported
    assert (kept.outcome, sides(history)[0]) == (0.0, ["r0"])


def test_a_run_that_was_found_again_is_an_outcome_of_its_version_and_nothing_else(history: History) -> None:
    first = run(0, outcome=0.0)
    assert history.found(first)
    assert not history.found(run(0, outcome=0.0))
    assert not history.found(run(1, version=7, outcome=0.0)), "a version that nobody remembers"
    assert (sides(history)[0], sides(history, reported=False)[0]) == (["r0"], [])
    assert not history.window
    assert (history.add(run(0)), history.add(run(0))) == (True, False), "heard of later it is a run like others"
    assert (history.window[0] is first, sides(history, reported=False)[0]) == (True, ["r0"])
    for _ in range(2):
        history.judgement("r0", SAID, "kind")
    assert (history.fresh.heard, history.fresh.judged, history.fresh.concluded) == ([first], [first], [first])
    assert (first.good, first.bad, first.judged) == (0, 1, 0.0), "people's labels are not a judge's"


def test_a_run_that_is_heard_of_twice_takes_over_the_outcome_that_it_lacked(history: History) -> None:
    history.add(run(0))
    for outcome in (1.0, 0.0):
        assert not history.add(run(0, outcome=outcome))
        assert [kept.outcome for kept in history.reported] == [1.0]


def test_unversioned_runs_belong_to_what_served_at_their_time_as_far_as_that_is_known() -> None:
    history = History(window=8, sample=4, versions=3)
    history.add(run(100, version=-1))
    for version, previous, since in ((4, 3, 200.0), (5, 4, 300.0), (4, 5, 400.0)):
        history.swapped(Swap("serving", version, previous, since))
    times = {50: None, 150: 3, 250: 4, 350: 5, 450: 4}
    assert {at: history.version(run(at, version=-1)) for at in times} == times
    assert history.version(msgspec.structs.replace(run(299, version=-1), ended=301.0)) is None


def test_everything_survives_a_restart_and_a_run_stays_one_object(history: History) -> None:
    for number in range(12):
        history.add(run(number, outcome=1.0 if number % 3 == 0 else None))
    history.swapped(Swap("serving", 1, 0, 12.0))
    history.found(run(-5, outcome=0.0))
    data = msgspec.msgpack.encode(history.snapshot())
    again = History(8, 4, 3, msgspec.msgpack.decode(data, type=Remembered))
    assert msgspec.msgpack.encode(again.snapshot()) == data
    assert again.outcome("r11", 1.0)
    assert "r11" in sides(again)[1]
    assert [kept.outcome for kept in again.window if kept.id == "r11"] == [1.0]
    assert not again.add(run(-5)), "older than the window"


def test_what_is_remembered_stays_within_its_bounds() -> None:
    history = History(window=8, sample=4, versions=3)
    for number in range(4000):
        if number % 200 == 0:
            history.swapped(Swap("serving", number // 200 + 1, number // 200, float(number)))
        history.add(run(number, version=number // 200 + 1))
        history.outcome(f"r{number - 3}", 1.0)
        history.found(run(-number - 1, version=max(1, number // 200), outcome=0.0))
    state = history.snapshot()
    assert (len(history.window), {run.low for run in state.runs}) == (8, {18, 19, 20})
    assert len(state.heard) <= 8 + 3 * 4
    assert len(state.told) <= 4 + 3 * 4 + 2 * 4
    assert (len(state.runs) <= 8 + 4 + 3 * (4 + 4) + 2 * 4, len(state.spans) <= 6) == (True, True)
