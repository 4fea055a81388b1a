"""The loss against a slow reference that a person can check line by line, and its properties."""

import math
import random

import pytest

torch = pytest.importorskip("torch")

from learner.loss import LossSettings, policy_loss, truncated_weights  # noqa: E402

pytestmark = pytest.mark.torch
NO_KL = LossSettings(kl_coef=0.0)


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
        total_tokens=total,
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


def test_clip_fractions_are_told_apart():
    columns = torch.tensor([[0.5, 0.5, 0.0], [0.0] * 3, [1.0] * 3, [0.2] * 3, [0.28] * 3])
    guided = torch.tensor([True, False, False])
    sums = policy_loss(*columns, total_tokens=3.0, settings=NO_KL, guided=guided).sums
    assert (int(sums["clipped_guided"]), int(sums["tokens_guided"])) == (1, 1)
    assert (int(sums["clipped_plain"]), int(sums["tokens_plain"])) == (1, 2)


def test_no_tokens_are_no_error():
    empty = torch.zeros(0)
    assert float(policy_loss(empty, empty, empty, empty, empty, total_tokens=1.0, settings=NO_KL).loss) == 0.0


def test_weights_are_truncated():
    weights = truncated_weights(torch.tensor([0.0, 3.0, -1.0]), torch.zeros(3), 2.0)
    assert weights.tolist() == pytest.approx([1.0, 2.0, math.exp(-1)])
