"""The test by betting: its error rates by simulation, and what must hold for any numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.statistics.paired_sequential import confidence_sequence, p_value

differences = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), max_size=120)


def surely_below(differences, mean, error):
    return p_value([-value for value in differences], -mean) <= error


def looks(
    rng: np.random.Generator, shares: tuple[float, float], batch: int = 16, tasks: int = 256
) -> list[list[float]]:
    """What is there at each look: differences that are 1 and -1 with `shares`."""
    up, down = shares
    drawn = rng.choice([1.0, -1.0, 0.0], size=tasks, p=[up, down, 1 - up - down]).tolist()
    return [drawn[:end] for end in range(batch, tasks + 1, batch)]


def test_equal_versions_are_rejected_no_more_often_than_stated_however_often_one_looks():
    rng, beta = np.random.default_rng(1), 0.1
    rejected = sum(any(surely_below(seen, 0.0, beta) for seen in looks(rng, (0.15, 0.15))) for _ in range(200))
    assert rejected <= beta * 200


def test_versions_that_are_worse_by_the_margin_are_promoted_no_more_often_than_stated():
    rng, alpha = np.random.default_rng(2), 0.1
    promoted = sum(any(p_value(seen, -0.1) <= alpha for seen in looks(rng, (0.1, 0.2))) for _ in range(200))
    assert promoted <= alpha * 200


def test_a_much_worse_version_is_found_out_nearly_always_and_soon():
    rng = np.random.default_rng(3)
    ends = []
    for _ in range(100):
        ends.append(next((len(seen) for seen in looks(rng, (0.05, 0.35)) if surely_below(seen, 0.0, 0.05)), 999))
    assert sorted(ends)[94] <= 128


@given(differences)
def test_the_limits_enclose_the_estimate_and_agree_with_the_tests(values):
    interval = confidence_sequence(values, 0.05, 0.05)
    assert -1 <= interval.low <= interval.estimate <= interval.high <= 1
    if abs(interval.low + 0.05) > 1e-6:
        assert (p_value(values, -0.05) <= 0.05) == (interval.low > -0.05)
    if abs(interval.high) > 1e-6:
        assert surely_below(values, 0.0, 0.05) == (interval.high < 0)


def test_nothing_seen_says_nothing():
    assert confidence_sequence([], 0.05, 0.05).low == -1
    assert p_value([], 0.0) == pytest.approx(1.0)


def test_what_is_no_difference_of_scores_is_refused():
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        p_value([2.0], 0.0)
    with pytest.raises(ValueError, match="mean"):
        p_value([0.0], 1.0)
