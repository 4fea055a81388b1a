"""Counts of values by size, for collectors that read them at a scrape; loops and threads of one process share none."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """How many values fell into which bucket, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper ends of the buckets, ascending, inclusive; what is above the last has one more."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0
        """Of all values."""

    def note(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper end, values up to it), the last one "+Inf": as Prometheus wants them."""
        ends = (*(str(float(bound)) for bound in self._bounds), "+Inf")
        return list(zip(ends, map(float, accumulate(self._counts)), strict=True))
