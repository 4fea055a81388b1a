"""What learning waits for: each wait has a sentence, a count, a forecast, and an end of patience."""

from typing import Any

import msgspec
import pytest

from actors.curation.pace import ALL, EXAM
from actors.curation.progress import Evidence, Facts, Learning, progress

NOW = 1_800_000_000.0
"""2027-01-15 08:00 UTC, a Friday."""


def every(seconds: float, number: int = 9, until: float = NOW) -> list[float]:
    """Arrivals, the last one at `until`."""
    return [until - seconds * place for place in reversed(range(number))]


def facts(**fields: Any) -> Facts:
    """Production alone, an outcome a minute, an update half an hour ago."""
    values: dict[str, Any] = {
        "now": NOW, "since": NOW - 86_400, "updated": NOW - 1800, "answered": NOW - 1800, "version": 12, "head": 12,
        "fresh_needed": 8, "fresh": 5, "unreported": 230, "runs": every(10), "reported": every(60), "first_report": 1.0,
        "update_seconds": 40.0, "serving": [10], "lead": 2,
    }  # fmt: skip
    return Facts(**{**values, **fields})


def told(**fields: Any) -> Learning:
    return progress(facts(**fields))


def test_too_few_outcomes_are_counted_with_when_they_will_be_there() -> None:
    learning = told()
    assert (learning.state, learning.waits_for, learning.have, learning.need) == ("waiting", "outcomes", 5, 8)
    assert learning.sentence == (
        "5 of 8 outcomes for the next update since 07:30 UTC; 230 runs have none yet; at this rate at 08:03 UTC."
    )
    assert (learning.eta, learning.since) == (NOW + 180, NOW - 1800)


def test_it_moves_while_an_update_or_a_swap_is_no_older_than_three_of_them_take() -> None:
    assert told(updated=NOW - 3 * 520).state == "moving", "eight outcomes and the update itself: 520 s"
    assert told(updated=NOW - 3 * 520 - 1).state == "waiting"
    assert told(swapped=NOW - 3 * 520).state == "moving"
    assert told(updated=NOW - 300, reported=every(1)).state == "moving", "two minutes at least"
    assert told(updated=NOW - 361, reported=every(1), update_seconds=None).state == "waiting"


def test_outcomes_that_take_three_times_as_long_as_usual_and_an_hour_are_stuck() -> None:
    """Eight at one a minute are eight minutes; but an hour is the least."""
    assert told(answered=NOW - 3599).state == "waiting"
    learning = told(answered=NOW - 3600)
    assert (learning.state, learning.remedy) == ("stuck", "report how runs went: POST /v1/feedback (docs/attach.md)")
    slow = {"reported": every(900), "updated": NOW - 80_000}
    assert told(**slow, answered=NOW - 3 * 8 * 900 + 1).state == "waiting"
    assert told(**slow, answered=NOW - 3 * 8 * 900 - 1).state == "stuck"


def test_a_forecast_slows_down_with_the_outcomes() -> None:
    learning = told(reported=every(60, until=NOW - 2400))
    assert learning.eta == NOW + 3 * (2400 + 8 * 60) / 8


def test_where_nobody_ever_reported_it_says_so_and_is_stuck_after_an_hour() -> None:
    nobody = {"reported": [], "first_report": 0.0, "fresh": 0, "updated": 0.0, "answered": 0.0, "version": -1}
    learning = told(**nobody, since=NOW - 3599)
    assert (learning.state, learning.waits_for, learning.eta) == ("waiting", "outcomes", None)
    assert "no outcome was ever reported" in learning.sentence
    assert learning.remedy.startswith("report how runs went: POST /v1/feedback")
    assert told(**nobody, since=NOW - 3600).state == "stuck"


def test_by_night_it_waits_for_runs_and_is_not_stuck() -> None:
    quiet = NOW - 8 * 3600
    learning = told(runs=every(10, until=quiet), reported=every(60, until=quiet), answered=quiet)
    assert (learning.state, learning.waits_for) == ("waiting", "runs")
    assert learning.sentence.endswith("no run and no outcome has come since 00:00 UTC.")


def test_runs_of_which_none_may_be_trained_on_are_named_with_what_to_change() -> None:
    learning = told(
        reported=[], unreported=0, fresh=0, dropped={"temperature 0": 200, "held out": 30}, answered=NOW - 7200
    )
    assert (learning.state, learning.waits_for) == ("stuck", "runs")
    assert learning.sentence == "Runs come, and none may be trained on: 200 were sampled at temperature 0."
    assert learning.remedy.startswith("let the agent sample at temperature 1")


def test_a_freeze_is_said_with_its_reason_and_counts_before_everything() -> None:
    learning = told(frozen=True, frozen_since=NOW - 90_000, frozen_reason="incident 4711", ordered=NOW - 9999)
    assert (learning.state, learning.waits_for, learning.since) == ("frozen", "thaw", NOW - 90_000)
    assert learning.sentence == "Frozen since Thursday 07:00 UTC: incident 4711."
    assert learning.remedy == "evolved thaw, once its cause is gone"


def test_a_learner_that_does_not_answer_is_named_after_three_times_its_usual_time() -> None:
    assert "has not answered" not in told(ordered=NOW - 120).sentence
    learning = told(ordered=NOW - 300)
    assert (learning.state, learning.waits_for, learning.eta) == ("waiting", "learner", None)
    assert learning.sentence == (
        "The learner has not answered for 5 min: orders wait since 07:55 UTC; it usually takes 40 s."
    )
    assert "systemctl status evolved-learner" in learning.remedy


def test_a_learner_that_is_down_is_stuck_after_an_hour_though_nobody_calls() -> None:
    assert told(ordered=NOW - 3600, runs=[], reported=[]).state == "stuck"
    assert told(ordered=NOW - 3700, update_seconds=1300.0, updated=NOW - 9000).state == "waiting", (
        "it is slow, and known to be"
    )


def at_the_limit(**fields: Any) -> Learning:
    return told(**{"fresh": 0, "behind": 20, "lead": 4, "head": 14, **fields})


def test_a_learner_at_its_limit_waits_for_the_verdict_with_its_evidence() -> None:
    verdict = Evidence(version=14, since=NOW - 600, have=12, need=32, share=EXAM, reason="12 of 32 outcomes")
    learning = at_the_limit(verdict=verdict)
    assert (learning.state, learning.waits_for, learning.have, learning.need) == ("waiting", "verdict", 12, 32)
    assert learning.eta == pytest.approx(NOW + 20 * 60 * 3), "one run in four is the gate's"
    assert learning.sentence == (
        "20 reported runs wait: the learner (v14) is 4 updates ahead of v10. The verdict on v14 waits since 07:50 UTC: "
        "12 of 32 outcomes; at this rate at 09:00 UTC."
    )
    assert learning.remedy == "", "an hour is no wait"
    few = msgspec.structs.replace(verdict, have=2)
    assert at_the_limit(verdict=few).remedy.endswith('decide yourself: evolved promote 14 --force --reason "..."')


def test_a_trial_is_counted_against_the_runs_that_it_needs_and_its_deadline() -> None:
    trial = Evidence(version=14, since=NOW - 600, have=10, need=32, share=ALL, until=NOW + 3000)
    learning = at_the_limit(trial=trial, verdict=Evidence(version=15, since=NOW))
    assert (learning.waits_for, learning.have, learning.need) == ("trial", 10, 32)
    assert learning.eta == pytest.approx(NOW + 22 * 60 * 3 / 4)
    assert "v14 is on trial since 07:50 UTC: 10 of 32 outcomes; at this rate at 08:16 UTC." in learning.sentence
    slow = msgspec.structs.replace(trial, share=0.1 * ALL)
    assert at_the_limit(trial=slow).eta == NOW + 3000


def test_a_learner_on_a_branch_that_does_not_serve_is_to_go_back() -> None:
    learning = at_the_limit(lead=None)
    assert learning.waits_for == "learner"
    assert "v14, which does not come of what serves (v10), and is to go back" in learning.sentence


def test_orders_that_teach_nothing_are_no_progress_whatever_comes() -> None:
    skipped = {"skipped_orders": 5, "skipped": {"zero_advantage": 33, "equal_outcomes": 7}}
    learning = told(**skipped, skipped_since=NOW - 3600)
    assert (learning.state, learning.waits_for) == ("stuck", "outcomes")
    assert learning.sentence.startswith(
        "The last 5 orders made no update: of their runs 33 went as was expected of them; 7 went as well as all that "
        "they were compared with. 5 of 8 outcomes"
    )
    assert learning.remedy.startswith("report outcomes that differ")
    assert told(**skipped, skipped_since=NOW - 3599).state == "waiting"
    assert told(**{**skipped, "skipped_orders": 2}).sentence.startswith("5 of 8 outcomes")


def test_with_a_sandbox_it_waits_for_groups() -> None:
    learning = told(groups_needed=8, groups=2, group_size=8, played=every(5), wait_seconds=1800.0)
    assert (learning.waits_for, learning.have, learning.need, learning.eta) == ("groups", 2, 8, NOW + 240)
    assert learning.sentence == (
        "2 of 8 groups of the sandbox since 07:30 UTC, and 5 of 8 outcomes; what there is, is ordered 30 min after it "
        "came, at the latest; at this rate at 08:04 UTC."
    )
