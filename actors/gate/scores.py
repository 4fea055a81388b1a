"""Attempts at held-out tasks in figures: avg@n, what one attempt can count on, and best@n, what is within reach. Pure.

Attempts at one task are alike: the interval of avg@n is Wilson's for the effective number of attempts that the spread
between tasks leaves (Korn & Graubard 1998).
"""

from collections.abc import Sequence
from statistics import fmean, pvariance

import msgspec

from actors.statistics.intervals import CONFIDENCE, Interval, wilson

Attempts = Sequence[bool]
"""Outcomes of the attempts at one task, at least one."""


class Summary(msgspec.Struct, frozen=True):
    """How one version did on a set of tasks."""

    tasks: int
    attempts: int
    """Of all tasks together."""
    average: Interval
    """avg@n"""
    best: Interval
    """best@n"""


def summarize(scores: Sequence[Attempts], confidence: float = CONFIDENCE) -> Summary:
    """avg@n and best@n over `scores`, one entry a task; without tasks the widest intervals."""
    tasks, attempts = len(scores), sum(map(len, scores))
    if not tasks:
        return Summary(0, 0, Interval(0.0, 0.0, 1.0), Interval(0.0, 0.0, 1.0))
    shares = [score(task) for task in scores]
    mean = fmean(shares)
    effective = _effective(shares, mean, attempts)
    low, high = wilson(mean * effective, effective, confidence)
    reached = sum(map(any, scores))
    best_low, best_high = wilson(reached, tasks, confidence)
    return Summary(
        tasks,
        attempts,
        Interval(mean, low, high),
        Interval(reached / tasks, best_low, best_high),
    )


def score(attempts: Attempts) -> float:
    """Share of `attempts` that solved the task."""
    return sum(attempts) / len(attempts)


def _effective(shares: Sequence[float], mean: float, attempts: int) -> int:
    """Independent attempts that would leave as much doubt as these: between the number of tasks and of attempts."""
    tasks = len(shares)
    if tasks < 2 or not 0 < mean < 1:
        return tasks
    spread = pvariance(shares, mean) * tasks / (tasks - 1) / tasks
    found = attempts if spread <= 0 else int(mean * (1 - mean) / spread)
    return min(max(found, tasks), attempts)
