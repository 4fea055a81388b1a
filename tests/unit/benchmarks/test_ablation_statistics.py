"""Figures of the ablation: crossings, censoring, paired intervals."""

import random

import numpy as np
import pytest

from tests.benchmarks.ablation import statistics
from tests.benchmarks.ablation.statistics import at, gain, saving, smoothed, updates_to


def test_a_success_is_smoothed_with_its_neighbours_and_the_first_is_left_alone() -> None:
    curve = [(0, 0.0), (2, 0.3), (4, 0.9), (6, 0.6)]
    assert smoothed(curve) == [(0, 0.0), (2, pytest.approx(0.4)), (4, pytest.approx(0.6)), (6, pytest.approx(0.75))]


def test_the_crossing_lies_between_measurements_on_a_straight_line() -> None:
    # Smoothed: 0, 0.4, 0.6, 0.75.
    curve = [(0, 0.0), (2, 0.3), (4, 0.9), (6, 0.6)]
    assert updates_to(curve, 0.5) == (pytest.approx(3.0), False)
    assert updates_to(curve, 0.1) == (pytest.approx(0.5), False)


def test_one_lucky_measurement_is_no_crossing() -> None:
    curve = [(0, 0.4), (1, 0.4), (2, 0.85), (3, 0.4), (4, 0.4)]
    assert updates_to(curve, 0.8) == (4.0, True)


def test_what_is_never_reached_is_censored_at_the_last_update() -> None:
    assert updates_to([(0, 0.1), (12, 0.5), (24, 0.7)], 0.8) == (24.0, True)


def test_what_is_there_from_the_beginning_takes_no_updates() -> None:
    assert updates_to([(0, 0.9), (2, 0.9)], 0.8) == (0.0, False)


def test_success_is_read_where_it_was_measured_and_nowhere_else() -> None:
    curve = [(0, 0.1), (16, 0.5)]
    assert at(curve, 16) == 0.5
    assert at(curve, 15) is None


def test_the_saving_is_the_share_of_updates_that_paired_runs_did_without() -> None:
    found = saving([10.0, 20.0, 30.0], [5.0, 10.0, 15.0])
    assert found.value == pytest.approx(0.5)
    assert found.low == pytest.approx(0.5)
    assert found.high == pytest.approx(0.5)


def test_an_interval_of_pairs_is_narrower_than_the_spread_between_runs() -> None:
    """Seeds differ by tens of updates and arms by one: only pairing shows it."""
    rng = random.Random(0)
    base = [rng.uniform(10, 50) for _ in range(10)]
    better = [value + 1 + rng.uniform(-0.5, 0.5) for value in base]
    found = gain(base, better)
    assert 0.5 < found.low < found.value < found.high < 1.5


def test_an_effect_that_is_not_there_has_an_interval_around_nothing() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(40):
        base, other = rng.normal(20, 4, 10), rng.normal(20, 4, 10)
        found = gain(base.tolist(), other.tolist())
        hits += found.low <= 0 <= found.high
    assert hits >= 32  # 95 % of 40 is 38; the bootstrap of ten pairs is somewhat too sure


def test_an_interval_is_the_same_every_time() -> None:
    base, other = [10.0, 14.0, 9.0, 20.0], [8.0, 15.0, 7.0, 11.0]
    assert saving(base, other) == saving(base, other)
    assert statistics.RESAMPLES == 10_000


@pytest.mark.parametrize(("base", "other"), [([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([], [])])
def test_less_than_two_pairs_give_no_interval(base: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match="two pairs"):
        gain(base, other)
