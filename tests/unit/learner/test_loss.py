"""The loss against a slow reference that a person can check line by line, and its properties."""

import math
import random

import pytest

torch = pytest.importorskip("torch")

from learner.loss import policy_loss  # noqa: E402

pytestmark = pytest.mark.torch


def slow(rows, *, total, kl=0.0):
    """Sum over tokens in plain Python; a row is (log_prob, old, advantage, low, high, reference)."""
    loss = 0.0
    for log_prob, old, advantage, low, high, reference in rows:
        ratio = math.exp(log_prob - old)
        clipped = min(max(ratio, 1 - low), 1 + high)
        objective = min(ratio * advantage, clipped * advantage)
        if advantage < 0:
            objective = max(objective, 3.0 * advantage)
        loss -= objective
        d = reference - log_prob
        loss += kl * min(math.exp(d) - d - 1, 10.0)
    return loss / total


def random_rows(seed, n=40):
    rng = random.Random(seed)
    return [
        (
            -3 * rng.random(), -3 * rng.random(), rng.gauss(0, 1.5), 0.2, rng.choice([0.28, 0.6]),
            -3 * rng.random(),
        )
        for _ in range(n)
    ]  # fmt: skip


def fast(rows, *, total, kl=0.0):
    columns = torch.tensor(rows, dtype=torch.float64).T
    log_probs = columns[0].clone().requires_grad_()
    result = policy_loss(
        log_probs,
        *columns[1:5],
        share=torch.full_like(log_probs, 1 / total),
        kl_coef=kl,
        guided=torch.zeros(len(rows), dtype=torch.bool),
        reference=columns[5],
    )
    result.loss.backward()
    return result._replace(loss=result.loss.detach()), log_probs.grad


@pytest.mark.parametrize("seed", range(6))
def test_loss_and_gradient_are_those_of_the_slow_reference(seed):
    rows = random_rows(seed)
    result, gradient = fast(rows, total=37.0, kl=0.05)
    assert float(result.loss) == pytest.approx(slow(rows, total=37.0, kl=0.05), abs=1e-9)
    for i, row in enumerate(rows):
        h = 1e-6
        up, down = [*rows], [*rows]
        up[i], down[i] = (row[0] + h, *row[1:]), (row[0] - h, *row[1:])
        expected = (slow(up, total=37.0, kl=0.05) - slow(down, total=37.0, kl=0.05)) / (2 * h)
        assert float(gradient[i]) == pytest.approx(expected, abs=1e-5)


def test_clip_fractions_are_told_apart():
    columns = torch.tensor([[0.5, 0.5, 0.0], [0.0] * 3, [1.0] * 3, [0.2] * 3, [0.28] * 3])
    guided = torch.tensor([True, False, False])
    sums = policy_loss(*columns, share=torch.ones(3) / 3, kl_coef=0.0, guided=guided).sums
    assert (int(sums["clipped_guided"]), int(sums["tokens_guided"])) == (1, 1)
    assert (int(sums["clipped_plain"]), int(sums["tokens_plain"])) == (1, 2)
