"""The tests under the monitors: against values known by other means, and by enumeration."""

import itertools
import math
import random

import pytest

from actors.statistics.change_tests import (
    Looks,
    count_rise,
    mean_rise,
    means,
    medians,
    planned_looks,
    share_fall,
    share_rise,
    size_rise,
)


def test_the_exact_test_is_fishers_for_one_stratum() -> None:
    # Fisher's tea-tasting lady: 3 of 4 right, one-sided p = 17/70.
    assert share_rise([([1, 1, 1, 0], [1, 0, 0, 0])]) == pytest.approx(17 / 70)
    assert count_rise((3, 4), (1, 4)) == pytest.approx(17 / 70)


def test_the_exact_test_over_strata_counts_all_arrangements() -> None:
    strata = [([1, 0], [0, 0, 1]), ([1, 1], [0, 1])]
    observed = sum(sum(after) for after, _ in strata)
    ways = [
        [sum(chosen) for chosen in itertools.combinations([*after, *before], len(after))] for after, before in strata
    ]
    totals = [a + b for a in ways[0] for b in ways[1]]
    assert share_rise(strata) == pytest.approx(sum(total >= observed for total in totals) / len(totals))
    misses = sum(total <= observed for total in totals) / len(totals)
    assert share_fall(strata) == pytest.approx(misses)


def test_a_stratum_on_one_side_alone_says_nothing() -> None:
    lone = [([1.0, 1.0], []), ([], [0.0])]
    assert share_rise(lone) == size_rise(lone) == mean_rise(lone) == 1.0
    assert math.isnan(means(lone)[0])


def test_a_shift_between_strata_is_no_rise() -> None:
    # 30 % and 90 % in both: only the share of the strata differs (Simpson's paradox).
    low, high = [1.0] * 3 + [0.0] * 7, [1.0] * 9 + [0.0]
    strata = [(low, low * 9), (high * 9, high)]
    assert share_rise(strata) > 0.3
    assert means(strata) == (pytest.approx(0.6), pytest.approx(0.6))


def test_the_rank_test_with_ties_has_the_tabled_value() -> None:
    # Mid-ranks of 3,4,4 among 1,2,4: rank sum 4+... by hand: T = 13 - 10.5, var = 3*3/(6*5) * 15.5.
    p = size_rise([([3.0, 4.0, 4.0], [1.0, 2.0, 4.0])])
    z = 2.5 / math.sqrt(9 / 30 * 15.5)
    assert p == pytest.approx(0.5 * math.erfc(z / math.sqrt(2)))


@pytest.mark.parametrize("test", [share_rise, size_rise, mean_rise])
def test_no_test_says_yes_more_often_than_its_level(test) -> None:
    rng, hits, trials = random.Random(0), 0, 1500
    for _ in range(trials):
        values = [float(rng.random() < 0.3) if test is share_rise else rng.lognormvariate(0, 1) for _ in range(70)]
        hits += test([(values[:20], values[20:])]) <= 0.01
    assert hits / trials <= 0.01 + 2.6 * math.sqrt(0.01 * 0.99 / trials)


def test_a_series_of_looks_spends_no_more_than_it_has() -> None:
    looks, spent = Looks(), 0.0
    for runs in range(10_000):
        if looks.due(runs, 12):
            looks.take(runs, 1.4)
            spent += looks.spend(0.01)
    assert 0.009 < spent <= 0.01
    assert looks.taken < 30


def test_the_looks_that_were_planned_are_enough() -> None:
    looks = Looks()
    for runs in range(1, 385):
        if looks.due(runs, 12):
            looks.take(runs, 1.4)
    assert looks.taken == planned_looks(12, 1.4, 384)
    assert looks.spend(0.01, 10) == pytest.approx(0.001)


def test_medians_are_of_strata() -> None:
    assert medians([([1.0, 9.0, 2.0], [4.0])]) == (2.0, 4.0)
