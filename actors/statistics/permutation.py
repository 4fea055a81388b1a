"""Many yes-or-no features against one yes-or-no response, all at once, at a stated rate of false findings. Pure.

z of each column is Cochran's and Mantel and Haenszel's statistic within strata; the family-wise rate comes from the
largest z when responses are shuffled within strata (max T, Westfall and Young 1993, section 2.6).
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

SHUFFLES = 999
"""A threshold of 5 % has a standard error of 0.7 % then."""
_CHUNK = 1 << 24
"""Numbers of a product that are held at a time."""

Bools = npt.NDArray[np.bool_]


class Table(msgspec.Struct, frozen=True):
    """Observations of one kind. Shapes: rows `(n,)`, columns `(n, m)`."""

    worked: Bools
    """`(n,)`: the response."""
    strata: npt.NDArray[np.int64]
    """`(n,)`: rows that may be compared with each other have the same number."""
    has: Bools
    """`(n, m)`: whether a row has a feature."""
    counts: Bools
    """`(n, m)`: whether the row counts for that column."""


def scores(tables: Sequence[Table], *, rate: float, seed: int = 0) -> tuple[list[npt.NDArray[np.float64]], float]:
    """z of each column by table, each `(m,)`, and the threshold that chance passes with probability `rate` at most."""
    rng = np.random.default_rng(seed)
    found: list[npt.NDArray[np.float64]] = []
    largest = np.zeros(SHUFFLES)
    for table in tables:
        weights = _weights(table)
        found.append(table.worked.astype(np.float64) @ weights)
        shuffled = _shuffled(table, rng)
        step = _CHUNK // SHUFFLES
        for start in range(0, weights.shape[1], step):
            reached = shuffled @ weights[:, start : start + step].astype(np.float32)
            np.maximum(largest, reached.max(axis=1, initial=0.0), out=largest)
    place = int(np.floor(rate * (SHUFFLES + 1)))
    return found, float(np.sort(largest)[-max(1, place)])


def _weights(table: Table) -> npt.NDArray[np.float64]:
    """`(n, m)`: what each row's response adds to z; 0 where all rows of a stratum answered alike."""
    has, counts = (table.has & table.counts).astype(np.float64), table.counts.astype(np.float64)
    weights, variance = np.zeros_like(has), np.zeros(has.shape[1])
    for stratum in np.unique(table.strata):
        rows = table.strata == stratum
        share = table.worked[rows].mean()
        spread = share * (1.0 - share)
        number = int(rows.sum())
        if number < 2 or not spread:
            continue
        there = counts[rows]
        mean = has[rows].sum(axis=0) / np.maximum(1.0, there.sum(axis=0))
        centred = (has[rows] - mean) * there
        weights[rows] = centred
        variance += spread * number / (number - 1) * (centred**2).sum(axis=0)
    return np.where(variance > 0, weights / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)


def _shuffled(table: Table, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """`(SHUFFLES, n)`: the responses, shuffled within their strata."""
    shuffled = np.tile(table.worked.astype(np.float32), (SHUFFLES, 1))
    for stratum in np.unique(table.strata):
        rows = np.flatnonzero(table.strata == stratum)
        if 0 < table.worked[rows].sum() < len(rows):
            shuffled[:, rows] = rng.permuted(shuffled[:, rows], axis=1)
    return shuffled
