"""What recorded runs say of a policy that did not act in them: the sum of what each changed token does alone.

    score of a run = sum over tokens of (candidate's - incumbent's probability) / behaviour's
    candidate's success - incumbent's = p (1 - p) pull,  p the share of successes

A product of importance weights has a variance that grows as exp(2 kl tokens); the sum's grows with the tokens (Kakade
and Langford 2002, eq. 4.2; Schulman et al. 2015, eq. 3). A *pull* is the mean score of successes minus that of
failures; reports that are missing not at random bias p and not the pull (Prentice and Pyke 1979).
"""

from collections.abc import Sequence
from math import inf, log, sqrt

import msgspec
import numpy as np
import numpy.typing as npt

from actors.statistics.intervals import Interval, quantile, wilson

Floats = npt.NDArray[np.float64]
_FEWEST = 4
"""Runs without which nothing is said."""
_FREEDOM = 3.0
"""Degrees of freedom below which nothing is said: `student` is too small there, by a quarter at 1."""


def token_terms(candidate: Floats, incumbent: Floats, behaviour: Floats, limit: float) -> Floats:
    """What each sampled token adds to its run's score, `(n,)`, from log-probs in nats (behaviour's as it was sampled,
    the others' at temperature 1); no weight is above `limit`."""
    new, old = (np.exp(np.minimum(one - behaviour, log(limit))) for one in (candidate, incumbent))
    return new - old


class Pull(msgspec.Struct, frozen=True):
    """What outcomes and scores say of candidate against incumbent."""

    success: float
    """Share of successes in the evidence."""
    count: int
    estimate: float = 0.0
    """Mean score of successes minus that of failures."""
    error: float = inf
    """Its standard error; infinite where nothing succeeded or nothing failed."""
    freedom: float = 1.0
    effective: float = 0.0
    """Effective sample size, 0 to `count`: small where a few runs hold all the change."""

    def interval(self, confidence: float) -> Interval:
        """Candidate's rate minus the incumbent's."""
        if self.error == inf:
            if self.success < 1 or not self.count:
                return Interval(0.0, -1.0, 1.0)
            # Nothing failed: the candidate cannot be seen to do better, nor to fail more than so many runs would show.
            return Interval(0.0, wilson(self.count, self.count, confidence)[0] - 1.0, 0.0)
        # Half a run more of each: where one of them is rare the rate is not as far out as it looks.
        good = self.success * self.count + 0.5
        rate = good / (good + (1 - self.success) * self.count + 0.5)
        known = self.freedom >= _FREEDOM or not self.error
        half = student(confidence, self.freedom) * self.error if known else inf
        pull = self.estimate
        estimate, low, high = (
            min(1 - rate, max(-rate, rate * (1 - rate) * value)) for value in (pull, pull - half, pull + half)
        )
        return Interval(estimate, low, high)


def pull(outcomes: Sequence[float] | Floats, scores: Sequence[float] | Floats) -> Pull:
    """What runs with `outcomes` in [0, 1] and `scores` speak of, each `(n,)`.

    The slope of scores on outcomes with the larger of the classical and the heteroskedastic error (HC1; White 1980).
    Degrees of freedom: two for each run of the rarer outcome, whose few scores say how uncertain its mean is.
    """
    told, score = np.asarray(outcomes, np.float64), np.asarray(scores, np.float64)
    if told.shape != score.shape:
        raise ValueError("one score an outcome")
    count = len(told)
    if not count:
        return Pull(0.0, 0)
    rate = float(told.mean())
    weights = np.maximum(0.0, 1.0 + score)
    total = float(weights.sum())
    effective = total * total / float((weights * weights).sum()) if total > 0 else 0.0
    away = told - rate
    spread = float(away @ away)
    if count < _FEWEST or spread <= 1e-9:
        return Pull(rate, count, effective=effective)
    off = score - score.mean()
    slope = float(away @ off) / spread
    left = off - slope * away
    plain = float(left @ left) / (count - 2) / spread
    robust = float((away * left) @ (away * left)) / spread**2 * count / (count - 2)
    scale = spread / count / (rate * (1 - rate))  # 1, but for outcomes between 0 and 1
    freedom = min(count - 2.0, max(1.0, 2 * count * min(rate, 1 - rate)))
    return Pull(rate, count, slope * scale, sqrt(max(plain, robust)) * scale, freedom, effective)


def student(confidence: float, freedom: float) -> float:
    """Student's two-sided quantile, from the normal's (Abramowitz and Stegun 26.7.5), for `_FREEDOM` and more."""
    z, v = quantile(confidence), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
