"""Our loss against verl's own as oracle: loss and gradient to 1e-6."""

import pytest
import torch

from learner.loss import icepop_weights, truncated_weights
from tests.verl.oracle import MODES, SCALES, SEEDS, case, difference, ours, verls

EXACT = 1e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", SEEDS)
def test_loss_and_gradient_are_verl_s(seed, scale, mode):
    given = case(seed, scale)
    (loss, gradient), (expected, slope) = ours(given, mode), verls(given, mode)
    assert difference(loss, expected) < EXACT
    assert difference(gradient, slope) < EXACT
    assert float(slope.abs().max()) > 1e-4


def test_the_cases_reach_every_branch():
    cases = [case(seed, scale) for scale in SCALES for seed in SEEDS]
    assert any(given.weights is None for given in cases)
    assert any(given.reference is None for given in cases)
    seen = {"plain": 0, "clipped above": 0, "clipped below": 0, "dual clip": 0}
    for given in cases:
        ratio, a = (given.new - given.old).exp(), given.advantages
        dual = given.mask & (a < 0) & (ratio > 3)
        above = given.mask & (a > 0) & (ratio > 1 + given.clip_high)
        below = given.mask & (a < 0) & (ratio < 1 - given.clip_low)
        seen["dual clip"] += int(dual.sum())
        seen["clipped above"] += int(above.sum())
        seen["clipped below"] += int(below.sum())
        seen["plain"] += int((given.mask & ~dual & ~above & ~below).sum())
    assert min(seen.values()) > 50, seen


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("limit", [1.5, 2.0, 5.0])
def test_truncated_weights_are_verl_s(scale, limit):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    given = case(0, scale)
    expected, _ = compute_rollout_correction_weights(given.new - given.old, given.mask.float(), "token", limit)
    found = torch.where(given.mask, truncated_weights(given.new, given.old, limit), 0.0)
    assert torch.equal(found, expected * given.mask)


@pytest.mark.parametrize("scale", SCALES)
def test_icepop_weights_are_verl_s(scale):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    given = case(0, scale)
    expected, _ = compute_rollout_correction_weights(given.new - given.old, given.mask.float(), "token", "0.5_2.0")
    found = torch.where(given.mask, icepop_weights(given.new, given.old, 0.5, 2.0), 0.0)
    assert torch.equal(found, expected * given.mask)
