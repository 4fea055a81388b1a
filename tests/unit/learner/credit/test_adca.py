"""ADCA's formulas against hand-computed numbers and their invariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import StepLabel
from learner.credit.adca import allocation, horizon, label_values, standardise, step_advantages

ragged = st.lists(st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=1, max_size=6), min_size=1, max_size=6)


def scored(rows, **kwargs):
    values = [np.array(row) for row in rows]
    return standardise(values, [v != 0 for v in values], **kwargs)


def test_labels_become_numbers_and_abstentions_are_masked():
    values, judged = label_values([StepLabel("GOOD"), StepLabel("ABSTAIN"), StepLabel("BAD")])
    assert values.tolist() == [1, 0, -1]
    assert judged.tolist() == [True, False, True]


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


def test_leave_one_out_centres_on_the_others():
    # means 1, -1, -1; mu -1/3, sigma^2 = 1 - 1/9; others' means -1, 0, 0
    sigma = (8 / 9) ** 0.5
    assert [float(v[0]) for v in scored([[1.0], [-1.0], [-1.0]], leave_one_out=True)] == pytest.approx(
        [2 / sigma, -1 / sigma, -1 / sigma]
    )


@given(rows=ragged)
def test_equal_weighted_mean_is_zero_and_spread_one(rows):
    out = [v[np.array(row) != 0] for row, v in zip(rows, scored(rows), strict=True)]
    out = [v for v in out if len(v)]
    if out and any(np.abs(v).max() > 0 for v in out):
        assert np.mean([v.mean() for v in out]) == pytest.approx(0, abs=1e-9)
        assert np.mean([(v**2).mean() for v in out]) == pytest.approx(1, abs=1e-9)


@given(rows=ragged, seed=st.integers(0, 99))
def test_trajectories_may_come_in_any_order(rows, seed):
    order = np.random.default_rng(seed).permutation(len(rows))
    straight, mixed = scored(rows), scored([rows[i] for i in order])
    for place, i in enumerate(order):
        assert mixed[place] == pytest.approx(straight[i], abs=1e-9)


@given(rows=ragged, scale=st.floats(0.5, 9), shift=st.floats(-3, 3))
def test_shift_and_scale_of_labels_change_nothing(rows, scale, shift):
    values = [np.array(row) for row in rows]
    masks = [v != 0 for v in values]
    moved = standardise([v * scale + shift for v in values], masks)
    for a, b in zip(standardise(values, masks), moved, strict=True):
        assert a == pytest.approx(b, abs=1e-6)


@given(rows=ragged, times=st.integers(1, 4))
def test_a_trajectory_has_the_same_weight_however_long(rows, times):
    longer = [rows[0] * times, *rows[1:]]
    for short, long in zip(scored(rows)[1:], scored(longer)[1:], strict=True):
        assert short == pytest.approx(long, abs=1e-9)


def test_allocation_by_hand():
    labels, judged = np.array([1.0, 1, 0, -1]), np.array([True, True, False, True])
    # A success: 2 GOOD of weight 1 and 1 BAD of weight 0.2 share +1. A failure: the other way round.
    assert allocation(labels, judged, success=True) == pytest.approx([1 / 2.2, 1 / 2.2, 0, 0.2 / 2.2])
    assert allocation(labels, judged, success=False) == pytest.approx([-0.2 / 1.4, -0.2 / 1.4, 0, -1 / 1.4])
    weighed = allocation(labels, judged, success=True, consistent=2.0, contrary=1.0)
    assert weighed == pytest.approx([0.4, 0.4, 0, 0.2])


def test_allocation_of_nothing_is_nothing():
    assert not allocation(np.zeros(2), np.zeros(2, bool), success=True).any()
    assert not allocation(np.array([-1.0]), np.array([True]), success=True, contrary=0.0).any()


@given(row=st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=1, max_size=9), success=st.booleans())
def test_allocation_sums_to_the_sign_of_the_outcome(row, success):
    labels = np.array(row)
    whole = allocation(labels, labels != 0, success=success).sum()
    assert whole == pytest.approx((1.0 if success else -1.0) if labels.any() else 0.0)


def test_step_advantages_by_hand():
    # r = [0.1, -0.2, 0.1 + 2]; suffix sums
    assert step_advantages(np.array([1.0, -2.0, 1.0]), 2.0, alpha=0.1, h=1.0) == pytest.approx([2.0, 1.9, 2.1])


def test_the_outcome_at_every_step_by_hand():
    # r = [2.1, 1.8, 2.1]; suffix sums
    found = step_advantages(np.array([1.0, -2.0, 1.0]), 2.0, alpha=0.1, h=1.0, fusion="all_steps")
    assert found == pytest.approx([6.0, 3.9, 2.1])


def test_the_process_alone_by_hand():
    found = step_advantages(np.array([1.0, -2.0, 1.0]), 2.0, alpha=0.1, h=1.0, fusion="process_only")
    assert found == pytest.approx([0.0, -0.1, 0.1])


@pytest.mark.parametrize(
    ("discount", "expected"),
    # 0.1 x labels = [0.1, -0.2, 0.1], summed backwards, and the outcome to each
    [(1.0, [2.0, 1.9, 2.1]), (0.5, [2.025, 1.85, 2.1]), (0.0, [2.1, 1.8, 2.1])],
)
def test_a_label_goes_back_by_the_discount_and_the_outcome_whole(discount, expected):
    found = step_advantages(np.array([1.0, -2.0, 1.0]), 2.0, alpha=0.1, h=1.0, discount=discount)
    assert found == pytest.approx(expected)


@given(
    labels=st.lists(st.floats(-4, 4), min_size=1, max_size=9), outcome=st.floats(-4, 4), alpha=st.floats(0, 1),
    fusion=st.sampled_from(["last_step", "all_steps", "process_only"]),
)  # fmt: skip
def test_the_first_step_has_the_whole_and_neighbours_differ_by_their_reward(labels, outcome, alpha, fusion):
    found = step_advantages(np.array(labels), outcome, alpha=alpha, h=0.5, fusion=fusion)
    times = {"last_step": 1, "all_steps": len(labels), "process_only": 0}[fusion]
    assert found[0] == pytest.approx(alpha * 0.5 * sum(labels) + times * outcome, abs=1e-9)
    here = outcome if fusion == "all_steps" else 0.0
    rewards = [alpha * 0.5 * label + here for label in labels[:-1]]
    assert found[:-1] - found[1:] == pytest.approx(rewards, abs=1e-9)


def test_alpha_zero_is_grpo():
    assert step_advantages(np.array([1.0, -2.0, 1.0]), 0.7, alpha=0.0, h=1.0) == pytest.approx([0.7] * 3)


def test_h_scales_the_labels_alone():
    assert step_advantages(np.array([1.0, 1.0]), 1.0, alpha=0.2, h=0.5) == pytest.approx([1.2, 1.1])


def test_the_paper_weight_grows_with_the_run_and_the_bound_stops_it():
    labels = np.full(30, 0.92)
    paper = step_advantages(labels, 0.0, alpha=0.1, h=horizon("none", 30, 8))
    bounded = step_advantages(labels, 0.0, alpha=0.1, h=horizon("horizon", 30, 8))
    assert paper[0] == pytest.approx(2.76)
    assert bounded[0] == pytest.approx(0.1 * 8 * 0.92)


@pytest.mark.parametrize("steps", [0, 1, 8])
def test_runs_up_to_the_bound_have_the_paper_weight(steps):
    assert horizon("horizon", steps, 8) == 1.0
