"""From curves to figures: updates to a success, censored at the budget, and paired bootstrap intervals."""

from collections.abc import Sequence

import msgspec
import numpy as np

RESAMPLES = 10_000
BOOTSTRAP_SEED = 4
Curve = Sequence[tuple[int, float]]
"""(update, success), updates ascending."""


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def smoothed(curve: Curve) -> list[tuple[int, float]]:
    """Each success with the mean of it and its neighbours; the first stays as it is.

    One measurement has a standard error of 3 to 5 points, and a first crossing in raw ones would be a lucky draw's.
    """
    values = [success for _, success in curve]
    return [
        (update, value if i == 0 else float(np.mean(values[i - 1 : i + 2]))) for i, (update, value) in enumerate(curve)
    ]


def updates_to(curve: Curve, success: float) -> tuple[float, bool]:
    """Updates until the smoothed curve reaches `success`, between measurements on a straight line.

    Returns:
        Updates, and whether they are censored: it was never reached, and the last update stands for it.
    """
    before: tuple[int, float] | None = None
    for update, value in smoothed(curve):
        if value >= success:
            if before is None:
                return float(update), False
            share = (success - before[1]) / (value - before[1])
            return before[0] + share * (update - before[0]), False
        before = update, value
    return float(curve[-1][0]), True


def at(curve: Curve, update: int) -> float | None:
    """Success measured right after `update`, None if it was not measured there."""
    return dict(curve).get(update)


def saving(base: Sequence[float], other: Sequence[float]) -> Interval:
    """Which share of the updates of `base` the paired runs `other` did without: 1 - mean(other) / mean(base).

    Args:
        base: updates a run, one a pair; not all 0.
        other: in the same order.

    Raises:
        ValueError: not pairs, or fewer than two.
    """
    pairs = _pairs(base, other)
    return _bootstrap(pairs, lambda means: 1 - means[..., 1] / np.maximum(means[..., 0], 1e-9))


def gain(base: Sequence[float], other: Sequence[float]) -> Interval:
    """By how much `other` is above `base`, pair by pair.

    Raises:
        ValueError: not pairs, or fewer than two.
    """
    return _bootstrap(_pairs(base, other), lambda means: means[..., 1] - means[..., 0])


def _pairs(base: Sequence[float], other: Sequence[float]) -> np.ndarray:
    if len(base) != len(other) or len(base) < 2:
        raise ValueError(f"{len(base)} and {len(other)} runs are no two pairs or more")
    return np.array([base, other], dtype=np.float64).T  # (n, 2)


def _bootstrap(pairs: np.ndarray, figure) -> Interval:
    """Pairs drawn again with replacement; percentiles of the figure of their means."""
    drawn = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    low, high = np.percentile(figure(pairs[drawn].mean(1)), (2.5, 97.5))
    return Interval(float(figure(pairs.mean(0))), float(low), float(high))
