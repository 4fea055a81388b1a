"""Drift of traffic and of the judge, block by block."""

import random

import msgspec

from actors.monitoring.blocks import JudgeDrift, TrafficDrift
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding
from actors.monitoring.settings import JudgeSettings, TrafficSettings
from tests.support.behaviour import Behaviour, runs

USUAL = Behaviour()


def changed(**fields: object) -> Behaviour:
    return msgspec.structs.replace(USUAL, **fields)


def feed(
    monitor: TrafficDrift | JudgeDrift, chain: list[tuple[Behaviour, int]], seed: int = 0, swap: int | None = 1
) -> list[tuple[int, Finding]]:
    """(runs so far, finding) over runs of one version."""
    rng, history, first, found = random.Random(seed), History(512, 64, 2), 0, list[tuple[int, Finding]]()
    if swap is not None:
        history.swapped(Swap("serving", swap, swap - 1, 0.0))
    for how, count in chain:
        for run in runs(rng, 1, how, first, count):
            monitor.judged(run)
            first += 1
            found += [(first, finding) for finding in monitor.look(history, run.ended)]
    return found


def test_steady_traffic_and_a_steady_judge_are_quiet() -> None:
    for seed in range(30):
        assert feed(TrafficDrift(TrafficSettings()), [(USUAL, 1280)], seed) == []
        assert feed(JudgeDrift(JudgeSettings()), [(USUAL, 640)], seed) == []


def test_other_kinds_of_goal_are_told_once_as_the_new_normal() -> None:
    found = feed(TrafficDrift(TrafficSettings()), [(USUAL, 256), (changed(kinds=(1, 1, 1, 4, 4)), 640)])
    ((at, finding),) = found
    assert at == 384
    assert (finding.cause, finding.action) == ("traffic", "tell")
    assert "other kinds of goal" in finding.reason


def test_longer_and_shorter_prompts_are_told() -> None:
    for length, text in ((800.0, "400"), (200.0, "400")):
        ((_, finding),) = feed(TrafficDrift(TrafficSettings()), [(USUAL, 256), (changed(prompt=length), 256)])
        assert "prompts of other length" in finding.reason


def test_a_judge_that_grows_lenient_freezes_learning() -> None:
    lenient = changed(good=(0.85, 0.98))
    ((at, finding),) = feed(JudgeDrift(JudgeSettings()), [(USUAL, 128), (lenient, 256)])
    assert (at, finding.cause, finding.action) == (192, "judge-score", "freeze")


def test_a_judge_that_abstains_more_is_told() -> None:
    (*_, (_, finding)) = feed(JudgeDrift(JudgeSettings()), [(USUAL, 128), (changed(abstain=0.7), 128)])
    assert (finding.cause, finding.action) == ("judge-abstains", "tell")


def test_a_harder_world_is_no_drift_of_the_judge() -> None:
    assert feed(JudgeDrift(JudgeSettings()), [(USUAL, 256), (changed(success=0.3), 512)]) == []


def test_another_version_begins_a_new_reference() -> None:
    monitor = JudgeDrift(JudgeSettings())
    assert feed(monitor, [(USUAL, 128)], swap=None) == []
    assert feed(monitor, [(changed(good=(0.85, 0.98)), 256)]) == []


def test_what_a_block_holds_survives_a_restart() -> None:
    first = TrafficDrift(TrafficSettings())
    feed(first, [(USUAL, 200)])
    again = TrafficDrift(TrafficSettings())
    again.restore(first.save())
    ((at, _),) = feed(again, [(changed(kinds=(1, 1, 1, 4, 4)), 56 + 128)], seed=1)
    assert at <= 56 + 128
