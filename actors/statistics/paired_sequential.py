"""A paired test that may be looked at after every batch of tasks: the gate's promote, reject, or go on.

Candidate and rival attempt the same tasks; each task gives one difference of their scores, in [-1, 1]. The test bets
on these differences. A bettor who starts with 1 and stakes the share `u` of its capital on "the mean is above m" has,
after the differences x,

    K(m) = average over u of  prod_i (1 + u (x_i - m) / (1 + m))

If the mean is in truth at most m, K is a non-negative supermartingale, and by Ville's inequality it *ever* reaches
1/alpha with probability at most alpha: however often one looks, and whatever makes one stop. So

* promote once K says that the difference is above -margin: an inferior candidate (worse by the margin or more) is ever
  promoted with probability at most alpha;
* reject once the bet the other way says that it is below 0: a candidate that is not worse is ever rejected with
  probability at most beta.

Nothing is assumed of the differences but that tasks are drawn alike: no normal approximation, no variance known in
advance, ties and scores between 0 and 1 included. The price is some more tasks than a test of fixed size needs where
the two are close, against far fewer where they are not; docs/measured.md has both in numbers.

K does not depend on the order of the differences, so attempts may run side by side. Which tasks count must not depend
on their outcomes, though: only look at whole batches (a failed attempt takes longer than a solved one).

Waudby-Smith & Ramdas (2024), "Estimating means of bounded random variables by betting", JRSS-B 86(1), sections 4 and
B.3 (a mixture over a grid of bets); Ville (1939). Group-sequential designs with alpha spending (Lan & DeMets 1983)
were the alternative: a little more power at a fixed budget, but a budget that is known in advance, and normal
approximations where a family has a dozen tasks.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from actors.statistics.intervals import Interval

_BETS: npt.NDArray[np.float64] = np.geomspace(0.12, 0.8, 4)
"""Shares of the capital that are staked; the best one is about difference / variance, which is not known."""
_HALVINGS = 24
"""Limits of intervals are exact to 2 ** -23."""


def log_capital(differences: Sequence[float], mean: float) -> float:
    """Natural log of K(`mean`): the evidence that the mean of `differences` is above `mean`.

    Args:
        differences: `(n,)`, each in [-1, 1]; none give 0.
        mean: in (-1, 1).

    Raises:
        ValueError: a difference or a mean outside.
    """
    return _log_capital(*_counted(differences), mean)


def surely_above(differences: Sequence[float], mean: float, error: float) -> bool:
    """Whether the test at level `error` says that the mean of `differences` is above `mean`."""
    return log_capital(differences, mean) >= -np.log(error)


def surely_below(differences: Sequence[float], mean: float, error: float) -> bool:
    """Whether the test at level `error` says that the mean of `differences` is below `mean`."""
    return surely_above([-value for value in differences], -mean, error)


def e_value(differences: Sequence[float], mean: float) -> float:
    """Evidence against "the mean is `mean` or more": its inverse is a p-value that is valid at any time, 1 at most."""
    return float(np.exp(min(log_capital([-value for value in differences], -mean), 700.0)))


def confidence_sequence(differences: Sequence[float], alpha: float, beta: float) -> Interval:
    """Mean of `differences` with limits that hold at all times at once.

    The true mean is ever below `low` with probability at most `alpha`, and ever above `high` with probability at most
    `beta`. The limits invert the two tests: `low` is the largest m with K(m) >= 1/alpha.
    """
    values, counts = _counted(differences)
    total = int(counts.sum())
    estimate = float(values @ counts / total) if total else 0.0
    low = _limit(values, counts, alpha)
    high = -_limit(-values, counts, beta)
    return Interval(estimate, min(low, estimate), max(high, estimate))


def _counted(differences: Sequence[float]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    values, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    if values.size and not (values[0] >= -1 and values[-1] <= 1):
        raise ValueError("differences of scores lie in [-1, 1]")
    return values, counts.astype(np.float64)


def _log_capital(values: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], mean: float) -> float:
    if not -1 < mean < 1:
        raise ValueError("a mean that can be tested lies in (-1, 1)")
    each = np.log1p(np.outer(_BETS, (values - mean) / (1 + mean))) @ counts
    return float(np.logaddexp.reduce(each) - np.log(len(_BETS)))


def _limit(values: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], error: float) -> float:
    """Largest m that the mean is surely above, -1 if there is none; K falls as m rises."""
    low, high, wanted = -1.0, 1.0, -np.log(error)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _log_capital(values, counts, middle) >= wanted:
            low = middle
        else:
            high = middle
    return low
