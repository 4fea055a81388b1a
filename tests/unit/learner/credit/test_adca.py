"""ADCA's formulas against hand-computed numbers and their invariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.credit.adca import standardise, step_advantages

ragged = st.lists(st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=1, max_size=6), min_size=1, max_size=6)


def scored(rows, **kwargs):
    values = [np.array(row) for row in rows]
    return standardise(values, [v != 0 for v in values], **kwargs)


def test_standardise_by_hand_gives_each_trajectory_equal_weight():
    # means 1 and 0 -> mu 0.5; mean squares 1 and 1 -> sigma^2 = 1 - 0.25
    sigma = 0.75**0.5
    first, second = scored([[1.0], [1.0, -1.0, 1.0, -1.0]])
    assert first == pytest.approx([0.5 / sigma])
    assert second == pytest.approx(np.array([0.5, -1.5, 0.5, -1.5]) / sigma)


def test_the_spread_is_over_steps_not_over_means():
    (one, two) = scored([[1.0, -1.0], [-1.0, 1.0]])  # both means are 0
    assert one == pytest.approx([1, -1])
    assert two == pytest.approx([-1, 1])


def test_an_abstained_step_counts_nowhere():
    with_abstention, plain = scored([[1.0, 0.0], [-1.0, -1.0]]), scored([[1.0], [-1.0, -1.0]])
    assert with_abstention[0].tolist() == [plain[0][0], 0.0]
    assert with_abstention[1] == pytest.approx(plain[1])


@given(rows=ragged)
def test_equal_weighted_mean_is_zero_and_spread_one(rows):
    out = [v[np.array(row) != 0] for row, v in zip(rows, scored(rows), strict=True)]
    out = [v for v in out if len(v)]
    if out and any(np.abs(v).max() > 0 for v in out):
        assert np.mean([v.mean() for v in out]) == pytest.approx(0, abs=1e-9)
        assert np.mean([(v**2).mean() for v in out]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("discount", "expected"),
    # 0.1 x labels = [0.1, -0.2, 0.1], summed backwards, and the outcome to each
    [(1.0, [2.0, 1.9, 2.1]), (0.5, [2.025, 1.85, 2.1]), (0.0, [2.1, 1.8, 2.1])],
)
def test_a_label_goes_back_by_the_discount_and_the_outcome_whole(discount, expected):
    found = step_advantages(np.array([1.0, -2.0, 1.0]), 2.0, alpha=0.1, discount=discount)
    assert found == pytest.approx(expected)
