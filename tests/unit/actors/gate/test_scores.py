"""avg@n and best@n."""

import random

import pytest

from actors.gate.scores import summarize


def test_avg_is_the_mean_share_and_best_the_share_of_tasks_that_any_attempt_solved():
    found = summarize([[True, False, False, False], [False] * 4, [True] * 4, [True, True, False, False]])
    assert found.average.estimate == pytest.approx((0.25 + 0 + 1 + 0.5) / 4)
    assert found.best.estimate == 0.75
    assert (found.tasks, found.attempts, found.solved) == (4, 16, 7)


def test_attempts_that_all_agree_are_no_more_evidence_than_one_a_task():
    alike = summarize([[bool(task % 2)] * 8 for task in range(40)])
    single = summarize([[bool(task % 2)] for task in range(40)])
    assert alike.average.high - alike.average.low == pytest.approx(single.average.high - single.average.low, rel=0.05)


def test_independent_attempts_narrow_the_interval():
    rng = random.Random(1)
    many = summarize([[rng.random() < 0.5 for _ in range(8)] for _ in range(40)])
    assert many.average.high - many.average.low < 0.15


def test_the_interval_covers_the_truth():
    hits = 0
    for seed in range(200):
        rng = random.Random(seed)
        rates = [rng.choice([0.2, 0.9]) for _ in range(60)]
        found = summarize([[rng.random() < rate for _ in range(4)] for rate in rates], 0.9)
        hits += found.average.low <= 0.55 <= found.average.high
    assert hits >= 170


def test_nothing_measured_is_the_widest_interval():
    found = summarize([])
    assert (found.average.low, found.average.high, found.best.low, found.best.high) == (0, 1, 0, 1)
