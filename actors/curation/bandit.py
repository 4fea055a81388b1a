"""Which kind of task teaches most now: a non-stationary bandit whose arms are clusters of tasks.

Gain is variance `4 p (1 - p)` of a cluster's outcomes times progress, the absolute change of its mean in units of its
noise (arXiv 1707.00183): forgetting is progress too. The index adds the bonus of discounted UCB (arXiv 0805.3415).
Slots go in proportion to the index (D'Hondt). No random numbers.
"""

from math import isfinite, log, sqrt

import msgspec

from actors.messages.bounded import Bounded

CLUSTERS = 1024
"""Remembered."""
FAST = 32
"""Outcomes that the mean of today reaches back."""
SLOW = 256
"""Outcomes that the mean of the past reaches back."""
KNOWN = 64
"""Outcomes of a cluster before its progress is believed."""
HORIZON = 1024
"""Outcomes of all clusters over which plays are discounted: the bandit's memory."""


class _Arm(msgspec.Struct):
    """One cluster; sums and numbers are discounted."""

    fast_sum: float = 0.0
    fast: float = 0.0
    slow_sum: float = 0.0
    slow: float = 0.0
    plays: float = 0.0
    at: int = 0
    """Outcome number of the last play: `plays` is discounted from there."""


class Gains:
    """What is known of each cluster's outcomes, and how much another look at it is worth."""

    def __init__(self) -> None:
        self._arms: Bounded[str, _Arm] = Bounded(CLUSTERS)
        self._now = 0
        self._total = 0.0

    def __len__(self) -> int:
        return len(self._arms)

    def observe(self, cluster: str, outcome: float) -> bool:
        """Take in an outcome, cut to [0, 1]. False, and nothing changed, if it is no number."""
        if not isfinite(outcome):
            return False
        value = min(1.0, max(0.0, outcome))
        self._now += 1
        self._total = self._total * _kept(HORIZON) + 1.0
        arm = self._arms[cluster] = self._arms.get(cluster) or _Arm()
        arm.fast_sum, arm.fast = arm.fast_sum * _kept(FAST) + value, arm.fast * _kept(FAST) + 1.0
        arm.slow_sum, arm.slow = arm.slow_sum * _kept(SLOW) + value, arm.slow * _kept(SLOW) + 1.0
        arm.plays, arm.at = self._plays(arm) + 1.0, self._now
        return True

    def gain(self, cluster: str) -> float:
        """What training on `cluster` is worth now, 0 to 1; 1 for one that nobody has heard of."""
        arm = self._arms.get(cluster)
        if arm is None:
            return 1.0
        # One success and one failure before the first outcome: three equal outcomes do not make it solved or hopeless.
        smooth = (arm.fast_sum + 1.0) / (arm.fast + 2.0)
        return 4.0 * smooth * (1.0 - smooth) * (1.0 + self._progress(arm)) / 2.0

    def index(self, cluster: str, *, weight: float = 1.0) -> float:
        """Where `cluster` stands in the order of what to play next, highest first, its gain times `weight`; one that
        nobody has heard of counts as played once."""
        arm = self._arms.get(cluster)
        plays = max(1.0, 0.0 if arm is None else self._plays(arm))
        return weight * self.gain(cluster) + sqrt(log(self._total + 2.0) / plays)

    def _plays(self, arm: _Arm) -> float:
        return arm.plays * _kept(HORIZON) ** (self._now - arm.at)

    def _progress(self, arm: _Arm) -> float:
        """Absolute change of the mean: 0 up to one standard error, 1 from two on, and 1 where the past is too short."""
        if arm.slow < min(KNOWN, SLOW):
            return 1.0
        now, past = arm.fast_sum / arm.fast, arm.slow_sum / arm.slow
        smooth = (arm.slow_sum + 1.0) / (arm.slow + 2.0)
        error = sqrt(smooth * (1.0 - smooth) * (1.0 / arm.fast + 1.0 / arm.slow))
        return min(1.0, max(0.0, abs(now - past) / error - 1.0))


def _kept(reach: int) -> float:
    """What is left of an old value when a new one comes."""
    return 1.0 - 1.0 / reach
