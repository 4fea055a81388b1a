"""What the version monitors find in streams whose behaviour is known, and after how many runs."""

import math
import random

import msgspec
import pytest

from actors.messages import Attribution, StepLabel
from actors.monitoring.settings import MonitorSettings, VersionSettings
from actors.tool_results.runs import RunSummary
from tests.support.behaviour import Behaviour, Watch, runs, stream

USUAL = Behaviour()
PLEASING = Behaviour(good=(0.8, 0.99))


def changed(**fields: object) -> Behaviour:
    return msgspec.structs.replace(USUAL, **fields)


def found(seed: int, *chain: tuple[Behaviour, int], batch: int = 8) -> dict[str, int]:
    """Runs after the last swap at which each cause was first found."""
    first: dict[str, int] = {}
    for version, count, finding in stream(seed, chain, batch=batch):
        if version == len(chain) - 1:
            first.setdefault(finding.cause, count)
    return first


def test_swaps_between_equal_versions_are_accused_no_more_often_than_stated() -> None:
    accused = sum(bool(found(seed, (USUAL, 128), (USUAL, 192), batch=16)) for seed in range(30))
    # 30 swaps at 1 %: more than 2 have a chance below 0.5 %.
    assert accused <= 2


@pytest.mark.parametrize(
    ("cause", "planted", "within"),
    [
        ("hacking", PLEASING, 128),
        ("outcomes", changed(success=0.3), 80),
        ("validity", changed(invalid=0.3), 64),
        ("length", changed(length=80.0), 24),
        ("questions", changed(asks=0.3), 256),
        ("loops", changed(loops=0.3), 96),
        ("steps", changed(steps=12.0), 96),
    ],
)
def test_what_is_planted_is_found_and_nothing_else(cause: str, planted: Behaviour, within: int) -> None:
    delays = []
    for seed in range(8):
        first = found(seed, (USUAL, 200), (planted, 256))
        assert set(first) <= {cause}
        delays.append(first.get(cause, math.inf))
    assert sorted(delays)[6] <= within


def test_a_judge_who_is_pleased_while_success_falls_is_no_excuse() -> None:
    for seed in range(4):
        assert {"hacking", "outcomes"} & set(found(seed, (USUAL, 200), (changed(good=(0.8, 0.99), success=0.4), 256)))


def test_a_better_version_is_not_accused_of_pleasing_the_judge() -> None:
    better = changed(success=0.9, good=(0.5, 0.85))
    assert all("hacking" not in found(seed, (USUAL, 200), (better, 256)) for seed in range(6))


def test_a_trend_that_no_swap_shows_is_found_against_the_reference_and_freezes_at_most() -> None:
    chain = [(changed(length=40.0 * 1.2**step), 150) for step in range(6)]
    causes = [(finding.details["against"], finding.action) for _, _, finding in stream(3, chain, batch=8)]
    assert ("reference", "freeze") in causes
    assert not [action for against, action in causes if against == "previous"]


def test_length_that_pays_is_told_and_not_stopped() -> None:
    pays = changed(length=90.0, success=0.95)
    (action,) = {finding.action for version, _, finding in stream(1, [(USUAL, 200), (pays, 200)]) if version}
    assert action == "tell"


def test_a_change_of_manners_is_told_until_outcomes_say_whether_it_pays() -> None:
    asks = changed(asks=0.9)
    early, late = [(count, one.action) for version, count, one in stream(2, [(USUAL, 200), (asks, 200)]) if version]
    assert (early[1], late[1]) == ("tell", "freeze")
    assert early[0] < 48 <= late[0]


def test_where_no_outcomes_come_nothing_is_waited_for() -> None:
    silent = {"outcomes": 0.0}
    found = list(stream(2, [(changed(**silent), 200), (changed(asks=0.9, **silent), 200)]))
    assert [one.action for version, count, one in found if version and count < 48] == ["freeze"]


def test_a_version_that_is_better_is_not_taken_back_because_the_judge_is_pleased_even_more() -> None:
    half_way = changed(good=(0.85, 0.95), success=0.85)
    told = [
        finding.action
        for seed in range(4)
        for version, _, finding in stream(seed, [(USUAL, 200), (half_way, 256)])
        if version and finding.cause == "hacking"
    ]
    assert told, "the arrangement: the score rises by more than success"
    assert set(told) == {"tell"}


def actions(cause: str, planted: Behaviour, seeds: range) -> set[str]:
    return {
        finding.action
        for seed in seeds
        for version, _, finding in stream(seed, [(changed(success=0.36), 200), (planted, 256)])
        if version and finding.cause == cause
    }


def test_invalid_calls_of_a_version_that_is_shown_to_solve_far_more_are_told() -> None:
    far_better = changed(success=0.76, invalid=0.15)
    assert actions("validity", far_better, range(3)) == {"tell"}


def test_invalid_calls_of_a_version_that_only_seems_better_are_not_excused() -> None:
    hardly = changed(success=0.38, invalid=0.3)
    assert "rollback" in actions("validity", hardly, range(3))


def test_outcomes_that_come_late_count_when_they_come() -> None:
    watch = Watch()
    before, after = changed(success=1.0), changed(success=0.0)

    rng = random.Random(0)
    watch.add(list(runs(rng, 0, before, 0, 60)))
    watch.swap(1, 60.0)
    late = list(runs(rng, 1, after, 60, 40))
    for run in late:
        run.outcome = None
    assert watch.add(late) == []
    assert all(watch.history.outcome(run.id, "default", 0.0) for run in late)
    (finding, *_) = watch.add(list(runs(rng, 1, after, 100, 1)))
    assert (finding.cause, finding.action) == ("outcomes", "rollback")
    assert "100% -> 0%" in finding.reason
    assert not watch.history.outcome("never seen", "default", 0.0)


def test_runs_with_other_tools_say_nothing_of_the_weights() -> None:

    watch, rng = Watch(), random.Random(0)
    watch.add(list(runs(rng, 0, changed(success=1.0), 0, 60)))
    watch.swap(1, 60.0)
    after = list(runs(rng, 1, changed(success=0.0), 60, 60))
    for run in after:
        run.tools = "another desk"
    assert watch.add(after) == []


def test_users_who_ask_for_something_harder_since_a_swap_say_nothing_of_the_weights() -> None:
    watch, rng = Watch(), random.Random(0)
    watch.add(list(runs(rng, 0, changed(success=0.95, kinds=(1,)), 0, 120)))
    watch.swap(1, 120.0)
    harder = changed(success=0.5, kinds=(0, 1), good=(0.8, 0.99))
    found = [finding for at in range(120, 280, 16) for finding in watch.add(list(runs(rng, 1, harder, at, 16)))]
    assert not {"outcomes", "hacking"} & {finding.cause for finding in found}


def test_goals_in_free_words_are_compared_all_the_same() -> None:
    watch, rng = Watch(), random.Random(0)

    def free(version: int, success: float, first: int, count: int) -> list[RunSummary]:
        return [
            msgspec.structs.replace(run, kind=run.id)
            for run in runs(rng, version, changed(success=success), first, count)
        ]

    watch.add(free(0, 0.95, 0, 120))
    watch.swap(1, 120.0)
    found = [finding for at in range(120, 280, 16) for finding in watch.add(free(1, 0.5, at, 16))]
    assert "outcomes" in {finding.cause for finding in found}


def test_users_who_ask_for_something_harder_in_free_words_say_nothing_of_the_weights() -> None:
    watch, rng = Watch(), random.Random(0)

    def free(version: int, easy: int, hard: int, first: int) -> list[RunSummary]:
        both = [
            *(("easy", run) for run in runs(rng, version, changed(success=0.95), first, easy)),
            *(("hard", run) for run in runs(rng, version, changed(success=0.3), first + easy, hard)),
        ]
        return [msgspec.structs.replace(run, kind=run.id, near=near) for near, run in both]

    watch.add(free(0, 90, 30, 0))
    watch.swap(1, 120.0)
    found = [finding for at in range(120, 280, 16) for finding in watch.add(free(1, 4, 12, at))]
    assert not {"outcomes", "hacking"} & {finding.cause for finding in found}
    worse = [finding for at in range(280, 360, 16) for finding in watch.add(free(1, 0, 16, at))]
    assert not worse, "no easy ones are asked for any more"


def test_runs_without_versions_are_sorted_by_time_even_if_the_swap_is_heard_of_later() -> None:

    watch, rng = Watch(), random.Random(0)
    unversioned = [*runs(rng, -1, changed(success=1.0), 0, 60), *runs(rng, -1, changed(success=0.0), 60, 60)]
    watch.add(unversioned)
    watch.swap(1, 60.0)
    (finding, *_) = watch.add(list(runs(rng, -1, changed(success=0.0), 120, 1)))
    assert (finding.cause, finding.details["to"]) == ("outcomes", "0")


def test_a_freeze_for_a_trend_does_not_stand_in_the_way_of_going_back() -> None:
    watch, rng = Watch(), random.Random(0)
    for version, how in enumerate((changed(success=0.9), changed(success=0.75), changed(success=0.1))):
        if version:
            watch.swap(version, 400.0 * version)
        # Few runs of the version before: the reference is sure first.
        found = watch.add(list(runs(rng, version, how, 400 * version, (400, 24, 14)[version])))
    assert [(finding.cause, finding.action) for finding in found] == [("outcomes", "freeze")]
    later = [finding for at in range(814, 900) for finding in watch.add(list(runs(rng, 2, how, at, 1)))]
    assert [(finding.cause, finding.action) for finding in later] == [("outcomes", "rollback")]


def test_going_back_is_not_watched() -> None:

    watch, rng = Watch(), random.Random(0)
    watch.add(list(runs(rng, 0, changed(success=0.2), 0, 60)))
    watch.swap(1, 60.0)
    watch.add(list(runs(rng, 1, changed(success=1.0), 60, 60)))
    watch.history.swapped(msgspec.structs.replace(watch.history.swap, version=0, previous=1, since=120.0))
    assert watch.add(list(runs(rng, 0, changed(success=0.2), 120, 60))) == []


def test_looks_go_on_where_they_were_after_a_restart() -> None:

    watch, rng = Watch(), random.Random(0)
    watch.add(list(runs(rng, 0, USUAL, 0, 60)))
    watch.swap(1, 60.0)
    watch.add(list(runs(rng, 1, USUAL, 60, 30)))
    monitor = watch.monitors[0]
    data = monitor.save()
    again = Watch().monitors[0]
    again.restore(data)
    assert again.save() == data
    assert again.readings() == monitor.readings() != {}


def test_the_memory_is_bounded() -> None:

    settings = MonitorSettings(window=50, versions=VersionSettings(sample=40, versions=3))
    watch, rng = Watch(settings), random.Random(0)
    for version in range(8):
        if version:
            watch.swap(version, 100.0 * version)
        watch.add(list(runs(rng, version, USUAL, 100 * version, 100)))
    state = watch.history.snapshot()
    assert len(state.window) == 50
    assert sorted(state.samples) == [5, 6, 7]
    assert all(len(kept) <= 40 for kept in (*state.samples.values(), *state.outcomes.values()))


def test_a_run_that_was_here_and_gone_does_not_come_again() -> None:
    watch, rng = Watch(MonitorSettings(window=50)), random.Random(0)
    old, *new = runs(rng, 0, USUAL, 0, 300)
    for run in (old, *new):
        watch.history.add(run)
    watch.swap(1, 300.0)
    assert not watch.history.add(old)
    assert old not in watch.history.window


def test_labels_that_somebody_reported_are_not_the_judges() -> None:
    watch = Watch()
    run = RunSummary(id="r", tenant="t", started=0.0, ended=1.0, low=0, high=0, tools="", steps=3, errors=0)
    watch.history.add(run)
    labels = (StepLabel("GOOD", 1.0, "feedback: fine"), StepLabel("BAD", 1.0, "error"), StepLabel("ABSTAIN"))
    judged = watch.history.judgement("r", Attribution(labels=labels, judge="rules", rubric="1"), "g1")
    assert judged is not None
    assert (judged.good, judged.bad, judged.abstained, judged.judged) == (0, 1, 1, 0.0)
