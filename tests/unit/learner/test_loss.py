"""The loss against a slow reference that a person can check line by line, and its properties."""

import math
import random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from learner.loss import (  # noqa: E402
    LossSettings,
    accepted_rows,
    effective_shares,
    effective_size,
    icepop_weights,
    policy_loss,
    token_shares,
    truncated_weights,
)
from learner.settings import Aggregation  # noqa: E402

pytestmark = pytest.mark.torch
NO_KL = LossSettings(kl_coef=0.0)
MODES = get_args(Aggregation)


def slow(rows, *, total, dual=3.0, kl=0.0):
    """Sum over tokens in plain Python; a row is (log_prob, old, advantage, low, high, weight, reference)."""
    loss = 0.0
    for log_prob, old, advantage, low, high, weight, reference in rows:
        ratio = math.exp(log_prob - old)
        clipped = min(max(ratio, 1 - low), 1 + high)
        objective = min(ratio * advantage, clipped * advantage)
        if advantage < 0:
            objective = max(objective, dual * advantage)
        loss -= weight * objective
        d = reference - log_prob
        loss += kl * min(math.exp(d) - d - 1, 10.0)
    return loss / total


def random_rows(seed, n=40):
    rng = random.Random(seed)
    return [
        (
            -3 * rng.random(), -3 * rng.random(), rng.gauss(0, 1.5), 0.2, rng.choice([0.28, 0.6]),
            2 * rng.random(), -3 * rng.random(),
        )
        for _ in range(n)
    ]  # fmt: skip


def fast(rows, *, total, settings, mask=None):
    columns = torch.tensor(rows, dtype=torch.float64).T
    log_probs = columns[0].clone().requires_grad_()
    result = policy_loss(
        log_probs,
        *columns[1:5],
        share=torch.full_like(log_probs, 1 / total),
        settings=settings,
        mask=mask,
        weights=columns[5],
        reference=columns[6],
    )
    result.loss.backward()
    return result._replace(loss=result.loss.detach()), log_probs.grad


@pytest.mark.parametrize("seed", range(20))
def test_loss_and_gradient_are_those_of_the_slow_reference(seed):
    rows, settings = random_rows(seed), LossSettings(dual_clip=3.0, kl_coef=0.05)
    result, gradient = fast(rows, total=37.0, settings=settings)
    assert float(result.loss) == pytest.approx(slow(rows, total=37.0, kl=0.05), abs=1e-9)
    for i, row in enumerate(rows):
        h = 1e-6
        up, down = [*rows], [*rows]
        up[i], down[i] = (row[0] + h, *row[1:]), (row[0] - h, *row[1:])
        expected = (slow(up, total=37.0, kl=0.05) - slow(down, total=37.0, kl=0.05)) / (2 * h)
        assert float(gradient[i]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("ratio", "high", "gradient"), [(1.2, 0.28, -1.2), (1.4, 0.28, 0.0), (1.4, 0.6, -1.4), (1.7, 0.6, 0.0)]
)
def test_a_boosted_token_is_pushed_further(ratio, high, gradient):
    _, found = fast([(math.log(ratio), 0.0, 1.0, 0.2, high, 1.0, 0.0)], total=1.0, settings=NO_KL)
    assert float(found[0]) == pytest.approx(gradient)


def test_dual_clip_stops_a_runaway_negative():
    result, gradient = fast([(math.log(5.0), 0.0, -1.0, 0.2, 0.28, 1.0, 0.0)], total=1.0, settings=NO_KL)
    assert float(result.loss) == pytest.approx(3.0)
    assert float(gradient[0]) == 0.0


def test_micro_batches_add_up_to_one_batch():
    rows = random_rows(3)
    settings = LossSettings(kl_coef=0.01)
    whole, gradient = fast(rows, total=40.0, settings=settings)
    parts = [fast(rows[i : i + 7], total=40.0, settings=settings) for i in range(0, 40, 7)]
    assert sum(float(part.loss) for part, _ in parts) == pytest.approx(float(whole.loss), abs=1e-12)
    assert torch.cat([g for _, g in parts]).tolist() == pytest.approx(gradient.tolist(), abs=1e-12)
    for name, value in whole.sums.items():
        assert sum(float(part.sums[name]) for part, _ in parts) == pytest.approx(float(value))


def test_masked_tokens_have_no_part_even_if_they_are_nonsense():
    rows = random_rows(4, 6)
    clean, _ = fast(rows[:4], total=4.0, settings=NO_KL)
    spoiled = [*rows[:4], (float("nan"), 0.0, 1.0, 0.2, 0.28, 1.0, 0.0), (0.0, -500.0, 1.0, 0.2, 0.28, 1.0, 0.0)]
    mask = torch.tensor([1, 1, 1, 1, 0, 0])
    result, gradient = fast(spoiled, total=4.0, settings=NO_KL, mask=mask)
    assert float(result.loss) == pytest.approx(float(clean.loss))
    assert gradient[4:].tolist() == [0, 0]


def test_a_far_off_ratio_stays_finite():
    result, gradient = fast([(0.0, -400.0, 1.0, 0.2, 0.28, 1.0, 0.0)], total=1.0, settings=NO_KL)
    assert math.isfinite(float(result.loss))
    assert torch.isfinite(gradient).all()


def test_on_policy_the_gradient_is_the_policy_gradient():
    rows = [(-1.0, -1.0, a, 0.2, 0.28, 1.0, -1.0) for a in (0.5, -2.0)]
    _, gradient = fast(rows, total=2.0, settings=LossSettings())
    assert gradient.tolist() == pytest.approx([-0.25, 1.0])


LIMIT = LossSettings(kl_coef=0.0, token_limit=0.3)


def limited(now, then, advantages, **more):
    """The gradient of the loss by each token, with a limit of 0.3 in the place of the clip."""
    log_probs = torch.tensor(now, dtype=torch.float64).log().requires_grad_()
    clip = torch.full_like(log_probs, 0.2)
    result = policy_loss(
        log_probs, torch.tensor(then, dtype=torch.float64).log(), torch.tensor(advantages, dtype=torch.float64),
        clip, clip, share=torch.ones_like(log_probs), settings=LIMIT, **more,
    )  # fmt: skip
    result.loss.backward()
    return log_probs.grad, result.sums


def test_a_token_whose_probability_moved_too_far_the_way_it_is_pulled_gives_no_gradient():
    # Up by 0.4 and pulled up; up by 0.4 and pulled down; down by 0.4 and pulled down; up by 0.2 and pulled up, a ratio
    # of 5 that a clip would have stopped; down by 0.29 and pulled down.
    gradient, sums = limited([0.6, 0.6, 0.2, 0.25, 0.61], [0.2, 0.2, 0.6, 0.05, 0.9], [1.0, -1.0, -1.0, 1.0, -1.0])
    assert [float(g) != 0.0 for g in gradient] == [False, True, False, True, True]
    assert (float(sums["masked_plain"]), float(sums["masked_guided"]), float(sums["clipped_plain"])) == (2.0, 0.0, 0.0)


def test_how_far_a_token_moved_is_counted_from_who_sampled_it():
    then = torch.tensor([0.2, 0.55], dtype=torch.float64).log()
    gradient, sums = limited([0.6, 0.6], [0.6, 0.6], [1.0, 1.0], sampled=then, guided=torch.tensor([True, False]))
    assert [float(g) for g in gradient] == [0.0, -1.0]
    assert float(sums["masked_guided"]) == 1.0


def test_clip_fractions_are_told_apart():
    columns = torch.tensor([[0.5, 0.5, 0.0], [0.0] * 3, [1.0] * 3, [0.2] * 3, [0.28] * 3])
    guided = torch.tensor([True, False, False])
    sums = policy_loss(*columns, share=torch.ones(3) / 3, settings=NO_KL, guided=guided).sums
    assert (int(sums["clipped_guided"]), int(sums["tokens_guided"])) == (1, 1)
    assert (int(sums["clipped_plain"]), int(sums["tokens_plain"])) == (1, 2)


def test_no_tokens_are_no_error():
    empty = torch.zeros(0)
    assert float(policy_loss(*[empty] * 5, share=empty, settings=NO_KL).loss) == 0.0


def test_weights_are_truncated():
    weights = truncated_weights(torch.tensor([0.0, 3.0, -1.0]), torch.zeros(3), 2.0)
    assert weights.tolist() == pytest.approx([1.0, 2.0, math.exp(-1)])


def test_weights_outside_the_band_are_masked():
    weights = icepop_weights(torch.tensor([0.0, 3.0, -1.0, float("nan")]), torch.zeros(4), 0.5, 5.0)
    assert weights.tolist() == [1.0, 0.0, 0.0, 0.0]  # exp(3) = 20.1 and exp(-1) = 0.37 are outside
    inside = icepop_weights(torch.tensor([0.5, 1.5]), torch.zeros(2), 0.5, 5.0)
    assert inside.tolist() == pytest.approx([math.exp(0.5), math.exp(1.5)])


def test_a_row_is_rejected_for_its_geometric_mean_ratio():
    # Row 0: mean log ratio (0.3 - 0.1) / 2 = 0.1, ratio 1.105. Row 1: -0.5, ratio 0.61. Row 2 is empty. Row 3: NaN.
    proximal = torch.tensor([0.3, -0.5, -0.1, float("nan")])
    kept = accepted_rows(proximal, torch.zeros(4), torch.tensor([0, 1, 0, 3]), 4, 0.9, 1.2)
    assert kept.tolist() == [True, False, True, False]
    assert kept[torch.tensor([0, 1, 0, 3])].tolist() == [True, False, True, False]


def test_a_long_row_is_not_rejected_for_its_length():
    near = torch.full((5000,), 0.05)  # the product of the ratios is exp(250)
    assert accepted_rows(near, torch.zeros(5000), torch.zeros(5000, dtype=torch.long), 1, 0.9, 1.2).tolist() == [True]


def test_effective_size_by_hand():
    # (1 + 1 + 2)^2 / (1 + 1 + 4) = 16 / 6
    assert effective_size(torch.tensor([1.0, 1.0, 2.0])) == pytest.approx(16 / 6)
    assert effective_size(torch.full((7,), 0.3)) == pytest.approx(7.0)
    assert (effective_size(torch.zeros(3)), effective_size(torch.zeros(0))) == (0.0, 0.0)


def test_guided_tokens_have_an_effective_size_of_their_own():
    weights = torch.tensor([1.0, 1.0, 2.0, 0.0])
    shares = effective_shares(weights, torch.tensor([False, False, True, True]))
    assert shares == pytest.approx({"plain": 1.0, "guided": 0.5})
    assert effective_shares(weights, torch.zeros(4)) == pytest.approx({"plain": 16 / 6 / 4})
    assert effective_shares(torch.zeros(0), torch.zeros(0)) == {}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", [1 / 4] * 4),
        ("token-sum", [1.0] * 4),
        ("seq-mean-token-sum", [1 / 2] * 4),
        ("seq-mean-token-mean", [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        ("seq-mean-token-sum-norm", [1 / 20] * 4),
    ],
)
def test_shares_by_hand(mode, expected):
    # Rows of 1 and 3 tokens, and one without, which is no sequence.
    assert token_shares(np.array([1, 0, 3]), mode, norm=10.0).tolist() == pytest.approx(expected)


def test_rows_of_one_trajectory_are_one_sequence():
    # The second trajectory's 4 tokens lie in rows of 1 and 3, so they weigh 1/4 and 3/4.
    weights = [1.0, 0.25, 0.75]
    parts = token_shares([2, 1, 3], "seq-mean-token-mean", row_weights=weights)
    assert parts.tolist() == pytest.approx(token_shares([2, 4], "seq-mean-token-mean").tolist())
    sums = token_shares([2, 1, 3], "seq-mean-token-sum", row_weights=weights)
    assert sums.tolist() == pytest.approx([1 / 2] * 6)


@pytest.mark.parametrize("mode", MODES)
def test_no_tokens_have_no_shares(mode):
    assert token_shares([], mode).shape == (0,)
    assert token_shares([0, 0], mode).shape == (0,)


def whole_loss(per_token, counts, mode, norm):
    """The aggregations as verl's documentation words them, row by row in plain Python."""
    rows, at = [], 0
    for n in counts:
        if n:
            rows.append(per_token[at : at + n])
        at += n
    if mode == "token-mean":
        return sum(map(sum, rows)) / sum(counts)
    if mode == "token-sum":
        return sum(map(sum, rows))
    of_rows = [sum(row) / (len(row) if mode == "seq-mean-token-mean" else 1) for row in rows]
    return sum(of_rows) / len(of_rows) / (norm if mode == "seq-mean-token-sum-norm" else 1)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25)
@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any),
    cut=st.lists(st.booleans(), min_size=8, max_size=8),
    seed=st.integers(0, 999),
)
def test_micro_batches_of_any_split_are_one_big_batch_in_every_aggregation(mode, counts, cut, seed):
    rows, penalised = random_rows(seed, sum(counts)), LossSettings(kl_coef=0.05)
    columns = torch.tensor(rows, dtype=torch.float64).T
    share = token_shares(counts, mode, norm=13.0)
    log_probs = columns[0].clone().requires_grad_()

    def loss(at):
        result = policy_loss(
            log_probs[at], *columns[1:5, at], share=share[at], settings=penalised, weights=columns[5, at],
            reference=columns[6, at],
        )  # fmt: skip
        return result.loss

    every = torch.arange(sum(counts))
    whole = loss(every)
    (gradient,) = torch.autograd.grad(whole, log_probs)
    each = [slow([row], total=1.0, kl=0.05) for row in rows]
    assert float(whole.detach()) == pytest.approx(whole_loss(each, counts, mode, 13.0), abs=1e-9)

    micro = [[]]
    for row, own in enumerate(every.split(counts)):
        if cut[row]:
            micro.append([])
        micro[-1] += own.tolist()
    for part in micro:
        loss(torch.tensor(part, dtype=torch.long)).backward()
    assert log_probs.grad.tolist() == pytest.approx(gradient.tolist(), abs=1e-12)
