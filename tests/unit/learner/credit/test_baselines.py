"""Outcome baselines against hand-computed numbers and their invariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from actors.messages import Estimate
from learner.credit.baselines import expected, group, leave_one_out, neighbours, sandbox

outcomes = hnp.arrays(np.float64, st.integers(2, 12), elements=st.integers(0, 20).map(lambda x: x / 20))


def test_group_by_hand():
    # mean 0.25, population deviation sqrt(3)/4
    assert group(np.array([1.0, 0, 0, 0])) == pytest.approx([3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)])


def test_leave_one_out_by_hand():
    # others' means: 0 for the first, 1/3 for the rest; deviation sqrt(3)/4
    deviation = 3**0.5 / 4
    expected = [1 / deviation, *[-1 / 3 / deviation] * 3]
    assert leave_one_out(np.array([1.0, 0, 0, 0])) == pytest.approx(expected)


def test_rloo_by_hand_is_not_divided():
    assert leave_one_out(np.array([1.0, 0, 0, 0]), scaled=False) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_the_mean_alone_by_hand():
    assert group(np.array([1.0, 0, 0, 0]), scaled=False) == pytest.approx([0.75, -0.25, -0.25, -0.25])


@pytest.mark.parametrize("baseline", [group, leave_one_out])
@pytest.mark.parametrize("n", [0, 1])
def test_what_has_no_company_has_no_advantage(baseline, n):
    assert baseline(np.full(n, 0.7)).tolist() == [0.0] * n


@pytest.mark.parametrize("baseline", [group, leave_one_out])
def test_equal_outcomes_have_no_advantage(baseline):
    assert not baseline(np.full(5, 0.7)).any()


@pytest.mark.parametrize("baseline", [group, leave_one_out])
@given(values=outcomes, shift=st.floats(-5, 5), scale=st.floats(0.5, 20))
def test_shift_and_scale_change_nothing(baseline, values, shift, scale):
    assert baseline(values * scale + shift) == pytest.approx(baseline(values), abs=1e-6)


@pytest.mark.parametrize("baseline", [group, leave_one_out])
@given(values=outcomes, seed=st.integers(0, 99))
def test_members_may_come_in_any_order(baseline, values, seed):
    order = np.random.default_rng(seed).permutation(len(values))
    assert baseline(values[order]) == pytest.approx(baseline(values)[order], abs=1e-9)


@given(values=outcomes)
def test_advantages_of_a_group_sum_to_nothing(values):
    assert group(values).sum() == pytest.approx(0, abs=1e-7)
    assert leave_one_out(values).sum() == pytest.approx(0, abs=1e-7)


def test_neighbours_compare_within_a_cluster_and_need_enough():
    values, decided = neighbours(np.array([1.0, 0, 0, 1, 1]), ["a", "a", "a", "b", ""], minimum=2)
    assert decided.tolist() == [True, True, True, False, False]
    assert values[:3] == pytest.approx(leave_one_out(np.array([1.0, 0, 0])))
    assert not values[3:].any()


def test_sandbox_attempts_by_hand():
    attempts = np.array([1.0, 1, 0, 0])  # mean 0.5, deviation 0.5
    assert sandbox(1.0, attempts, 0.4) == pytest.approx(1.25)
    assert sandbox(1.0, attempts, 0.0) == pytest.approx(1.0)
    assert sandbox(1.0, attempts, 0.4, scaled=False) == pytest.approx(0.5)


def test_one_failure_against_attempts_that_all_succeeded_is_no_shock():
    assert sandbox(0.0, np.ones(8), 0.0) == pytest.approx(-10.0)  # the least deviation is 0.1


@given(values=outcomes, shift=st.floats(-5, 5), scale=st.floats(0.5, 20))
def test_differences_scale_with_the_outcomes_where_nothing_divides(values, shift, scale):
    for baseline in (group, leave_one_out):
        moved_by = baseline(values * scale + shift, scaled=False)
        assert moved_by == pytest.approx(scale * baseline(values, scaled=False), abs=1e-6)


def known(mean):
    return Estimate(mean=mean, variance=0.01, evidence=9.0, version=0)


def test_what_was_expected_by_hand():
    # (1 - 0.25) / 0.4; nothing is known of the others, whose others have the means 0.5 and 1
    values, compared = expected(np.array([1.0, 1, 0]), [known(0.25), None, None], 0.4)
    assert values == pytest.approx([1.875, 1.25, -2.5])
    assert compared.tolist() == [True, False, False]


def test_the_deviation_that_goes_with_an_estimate_has_a_floor():
    assert expected(np.array([1.0]), [known(0.5)], 0.0)[0] == pytest.approx([1.0])
    assert expected(np.array([0.0]), [known(1.0)], 0.0)[0] == pytest.approx([-10.0])
    assert expected(np.array([3.0]), [known(2.0)], 0.0)[0] == pytest.approx([10.0])


def test_the_deviation_of_the_others_has_a_floor_as_well():
    # 1 against 0 and 0.5, deviation 0.25; 0 against 1 and 0.5, the same; 0.5 against 1 and 0
    values, _ = expected(np.array([1.0, 0, 0.5]), [None] * 3, 0.0)
    assert values == pytest.approx([3, -3, 0])
    assert expected(np.array([1.0, 0]), [None] * 2, 0.0)[0] == pytest.approx([10, -10])


def test_a_lone_first_trajectory_has_nothing_to_be_compared_with():
    values, compared = expected(np.array([1.0]), [None], 0.4)
    assert (values.tolist(), compared.tolist()) == ([0.0], [False])


@given(values=outcomes, place=st.integers(0, 11), other=st.integers(0, 20).map(lambda x: x / 20))
def test_no_outcome_is_in_its_own_baseline(values, place, other):
    i = place % len(values)
    changed = values.copy()
    changed[i] = other
    nothing = [None] * len(values)
    before, after = expected(values, nothing, 0.4)[0][i], expected(changed, nothing, 0.4)[0][i]
    assert after - before == pytest.approx((other - values[i]) / 0.4, abs=1e-9)
