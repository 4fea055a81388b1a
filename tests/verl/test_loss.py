"""Our loss against verl's own as oracle: loss and gradient to 1e-6."""

import pytest

from tests.verl.oracle import SCALES, SEEDS, case, difference, ours, verls

EXACT = 1e-6


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", SEEDS)
def test_loss_and_gradient_are_verl_s(seed, scale):
    given = case(seed, scale)
    (loss, gradient), (expected, slope) = ours(given), verls(given)
    assert difference(loss, expected) < EXACT
    assert difference(gradient, slope) < EXACT
    assert float(slope.abs().max()) > 1e-4


def test_the_cases_reach_every_branch():
    cases = [case(seed, scale) for scale in SCALES for seed in SEEDS]
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
