"""A paired test that may be looked at after every batch of tasks: the gate's promote, reject, or go on.

Candidate and rival attempt the same tasks; each gives a difference of scores in [-1, 1]. A bettor who stakes the share
`u` on "the mean is above m" has, after the differences x, the capital

    K(m) = average over u of  prod_i (1 + u (x_i - m) / (1 + m))

If the mean is at most m, K ever reaches 1/alpha with probability at most alpha (Ville 1939), however often one looks.
Nothing is assumed but that tasks are drawn alike. Only whole batches may be looked at: a failed attempt takes longer.
Waudby-Smith & Ramdas (2024), JRSS-B 86(1), sections 4 and B.3.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from actors.statistics.intervals import Interval

_BETS: npt.NDArray[np.float64] = np.geomspace(0.12, 0.8, 4)
"""Shares of the capital that are staked; the best one is about difference / variance, which is not known."""
_HALVINGS = 24
"""Limits of intervals are exact to 2 ** -23."""


def p_value(differences: Sequence[float], mean: float) -> float:
    """Of "the mean of `differences` is `mean` at most", 1 at most; valid at any time."""
    return float(np.exp(min(0.0, -_log_capital(*_counted(differences), mean))))


def confidence_sequence(differences: Sequence[float], alpha: float, beta: float) -> Interval:
    """Mean of `differences`, ever below `low` with probability at most `alpha`, ever above `high` at most `beta`."""
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
    """Natural log of K(`mean`): the evidence that the mean of the values, each in [-1, 1], is above `mean`."""
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
