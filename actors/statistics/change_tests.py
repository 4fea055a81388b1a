"""Tests of "has this changed?" that may be asked again and again. Pure; p-values are one-sided.

Runs are compared within strata (tenant, tool list, kind of goal): a shift of who sends what is no change. Shares: the
exact conditional test, convolved over strata (Mantel and Haenszel 1959). Sizes: van Elteren's rank sum (1960). Means:
Mantel-Haenszel weights. `Looks` spends a total error over repeated looks (union bound; Lan and DeMets 1983).
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt

Strata = Sequence[tuple[Sequence[float], Sequence[float]]]
"""(values after, values before) of each stratum."""


class Looks(msgspec.Struct):
    """How often a comparison was looked at, and from how many runs on it is looked at next."""

    taken: int = 0
    next: int = 0

    def due(self, runs: int, first: int) -> bool:
        """Whether there are enough `runs` after the change for another look, `first` for the first one."""
        return runs >= max(self.next, first)

    def take(self, runs: int, growth: float) -> None:
        """Look now; the next time is when there are `growth` times as many runs."""
        self.taken += 1
        self.next = max(runs + 1, math.ceil(runs * growth))

    def spend(self, total: float, planned: int | None = None) -> float:
        """The level of the look that was just taken, of an error of `total` over the `planned` looks, or any number."""
        return total / (planned or self.taken * (self.taken + 1))


def planned_looks(first: int, growth: float, last: int) -> int:
    """How many looks there can be until there are `last` runs, at least 1."""
    looks, runs = 1, max(first, 1)
    while (runs := max(runs + 1, math.ceil(runs * growth))) <= last:
        looks += 1
    return looks


def share_rise(strata: Strata) -> float:
    """Exact p-value of "the share of ones did not rise"; values are 0 or 1. Given how many ones each stratum has."""
    observed, chances = 0, np.ones(1)
    for after, before in _shared(strata):
        ones, least = round(sum(after) + sum(before)), round(sum(after))
        low, distribution = _hypergeometric(ones, len(after), len(after) + len(before))
        observed += least - low
        chances = np.convolve(chances, distribution)
    return min(1.0, float(chances[observed:].sum()))


def count_rise(after: tuple[int, int], before: tuple[int, int]) -> float:
    """`share_rise` of one stratum, from (ones, runs) on each side."""
    low, distribution = _hypergeometric(after[0] + before[0], after[1], after[1] + before[1])
    return min(1.0, float(distribution[after[0] - low :].sum()))


def share_fall(strata: Strata) -> float:
    """Exact p-value of "the share of ones did not fall"."""
    return share_rise([([1 - one for one in after], [1 - one for one in before]) for after, before in strata])


def _hypergeometric(ones: int, drawn: int, total: int) -> tuple[int, npt.NDArray[np.float64]]:
    """(smallest count, probabilities from it on) of ones among `drawn` of `total`."""
    low, high = max(0, drawn - (total - ones)), min(ones, drawn)
    logs = [
        _choose(ones, count) + _choose(total - ones, drawn - count) - _choose(total, drawn)
        for count in range(low, high + 1)
    ]
    return low, np.exp(np.array(logs))


def _choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def size_rise(strata: Strata) -> float:
    """p-value of "sizes did not grow": van Elteren's rank-sum test, ties by mid-ranks."""
    total = variance = 0.0
    for after, before in _shared(strata):
        n, m = len(after), len(before)
        ranks = mid_ranks(np.array([*after, *before], dtype=np.float64))
        weight = 1.0 / (n + m + 1)
        total += weight * float(ranks[:n].sum() - n * ranks.mean())
        spread = float(((ranks - ranks.mean()) ** 2).sum())
        variance += weight * weight * n * m / ((n + m) * (n + m - 1)) * spread
    return _upper(total, variance)


def mean_rise(strata: Strata) -> float:
    """p-value of "the mean did not rise"."""
    total = variance = 0.0
    for after, before in _shared(strata):
        x, y = np.array(after, dtype=np.float64), np.array(before, dtype=np.float64)
        weight = len(x) * len(y) / (len(x) + len(y))
        total += weight * float(x.mean() - y.mean())
        pooled = float(np.concatenate([x, y]).var(ddof=1)) * (1 / len(x) + 1 / len(y))
        welch = float(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y)) if min(len(x), len(y)) > 1 else 0.0
        variance += weight * weight * max(pooled, welch)
    return _upper(total, variance)


def means(strata: Strata) -> tuple[float, float]:
    """(mean after, mean before) of strata with runs on both sides, weighted as Mantel and Haenszel do; NaN if none."""
    return _weighted(strata, lambda values: float(np.mean(values)))


def medians(strata: Strata) -> tuple[float, float]:
    """As `means`, of the strata's medians."""
    return _weighted(strata, lambda values: float(np.median(values)))


def _weighted(strata: Strata, middle: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    shared = _shared(strata)
    if not shared:
        return math.nan, math.nan
    weights = [len(after) * len(before) / (len(after) + len(before)) for after, before in shared]
    sides = zip(*shared, strict=True)
    now, was = (np.average([middle(values) for values in side], weights=weights) for side in sides)
    return float(now), float(was)


def _shared(strata: Strata) -> Strata:
    """Those with runs on both sides."""
    return [(after, before) for after, before in strata if after and before]


def mid_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mid-ranks from 1, `(n,)`."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _upper(total: float, variance: float) -> float:
    return NormalDist().cdf(-total / math.sqrt(variance)) if variance > 0 else 1.0
