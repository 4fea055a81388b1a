"""Intervals for success rates, and the decision that follows from them. Pure; confidences are two-sided.

The gate asks for non-inferiority: how bad the difference could still be. Wilson's and Newcombe's intervals (1998, both
papers, method 10) keep their coverage for a few dozen trials near 0 or 1.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Literal

import msgspec

Decision = Literal["promote", "reject", "hold"]

CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """A difference of two rates with its confidence limits, `low <= estimate <= high`."""

    estimate: float
    low: float
    high: float


class Pairs(msgspec.Struct, frozen=True):
    """Outcomes of two policies on the same tasks: how often both, only one, or neither solved a task."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def total(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def first(self) -> int:
        return self.both + self.only_first

    @property
    def second(self) -> int:
        return self.both + self.only_second

    @classmethod
    def count(cls, first: Sequence[bool], second: Sequence[bool]) -> "Pairs":
        """Cross-tabulate; both sequences speak of the same tasks in the same order."""
        table = Counter(zip(first, second, strict=True))
        return cls(table[True, True], table[True, False], table[False, True], table[False, False])


def quantile(confidence: float) -> float:
    """The normal quantile of a two-sided interval, 1.96 for 0.95."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(successes: float, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's score interval of a success rate; (0, 1) without trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials")
    if trials == 0:
        return 0.0, 1.0
    z = quantile(confidence)
    rate = successes / trials
    scale = 1 + z * z / trials
    center = (rate + z * z / (2 * trials)) / scale
    half = z / scale * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return max(0.0, min(rate, center - half)), min(1.0, max(rate, center + half))


def newcombe(
    first: tuple[float, int], second: tuple[float, int], confidence: float = CONFIDENCE, correlation: float = 0.0
) -> Interval:
    """Interval of rate(first) - rate(second), each (successes, trials); independent without `correlation`."""
    (low1, high1), (low2, high2) = wilson(*first, confidence), wilson(*second, confidence)
    rate1 = first[0] / first[1] if first[1] else 0.5
    rate2 = second[0] / second[1] if second[1] else 0.5
    down1, up1, down2, up2 = rate1 - low1, high1 - rate1, rate2 - low2, high2 - rate2
    below = down1 * down1 - 2 * correlation * down1 * up2 + up2 * up2
    above = up1 * up1 - 2 * correlation * up1 * down2 + down2 * down2
    difference = rate1 - rate2
    low, high = difference - sqrt(max(0.0, below)), difference + sqrt(max(0.0, above))
    return Interval(difference, max(-1.0, low), min(1.0, high))


def newcombe_paired(pairs: Pairs, confidence: float = CONFIDENCE) -> Interval:
    """Interval of rate(first) - rate(second) on the same tasks: narrower, the more the two agree."""
    a, b, c, d = pairs.both, pairs.only_first, pairs.only_second, pairs.neither
    product = (a + b) * (c + d) * (a + c) * (b + d)
    correlation = 0.0
    if product:
        cross = a * d - b * c
        if cross > 0:  # continuity correction: chance agreement of few tasks must not narrow the interval
            cross = max(cross - pairs.total / 2, 0.0)
        correlation = cross / sqrt(product)
    return newcombe((pairs.first, pairs.total), (pairs.second, pairs.total), confidence, correlation)


def decide(difference: Interval, margin: float) -> Decision:
    """Promote what is at its lower limit not worse by `margin`; reject what is worse even at its upper limit."""
    if difference.low > -margin:
        return "promote"
    return "reject" if difference.high < 0 else "hold"


def both(first: Decision, second: Decision) -> Decision:
    """One decision from two comparisons that must both be passed."""
    if "reject" in (first, second):
        return "reject"
    return "hold" if "hold" in (first, second) else "promote"
