"""Logistic regression with a ridge, and Platt's calibration, in numpy. Pure; arrays in, arrays out.

Newton's method, as in Hastie, Tibshirani and Friedman (2009), "The Elements of Statistical Learning", section 4.4.1;
the ridge makes the Hessian positive definite, so each step has a solution.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from actors.provisional.features import DENSE, SIZE, Vector

Floats = npt.NDArray[np.float64]
RIDGE_DENSE, RIDGE_HASHED = 0.5, 2.0
"""Half the squared weight costs so much: signals are few and have a meaning, hashed names are many."""
_STEPS = 12
_MOST = 30.0
"""Logits are cut there: beyond, the probability is 0 or 1 to thirteen digits."""


def matrix(vectors: Sequence[Vector]) -> Floats:
    """`(n, SIZE)`."""
    rows = np.zeros((len(vectors), SIZE))
    for number, one in enumerate(vectors):
        places = np.asarray(one.places, dtype=np.int64)
        good = (places >= 0) & (places < SIZE)
        rows[number, places[good]] = np.asarray(one.values, dtype=np.float64)[good]
    return rows


def probability(logits: Floats) -> Floats:
    """The logistic function."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -_MOST, _MOST))), dtype=np.float64)


def fit(rows: Floats, outcomes: Floats, start: Floats | None = None, *, steps: int = _STEPS) -> Floats:
    """Weights `(SIZE,)` that make `outcomes` likeliest, less the ridge. `rows` are `(n, SIZE)`, `outcomes` `(n,)`."""
    ridge = np.where(np.arange(rows.shape[1]) < DENSE, RIDGE_DENSE, RIDGE_HASHED)
    weights = np.zeros(rows.shape[1]) if start is None else start.copy()
    for _ in range(steps):
        chance = probability(rows @ weights)
        gradient = rows.T @ (chance - outcomes) + ridge * weights
        curve = (rows * np.maximum(chance * (1.0 - chance), 1e-6)[:, None]).T @ rows
        curve[np.diag_indices_from(curve)] += ridge
        change = np.linalg.solve(curve, gradient)
        weights -= change
        if float(np.abs(change).max()) < 1e-3:
            break
    return weights


def platt(logits: Floats, outcomes: Floats) -> tuple[float, float]:
    """Slope and offset that calibrate `logits` (Platt 1999); the slope is never negative.

    A ridge of one pulls towards slope 1 and offset 0, so that few outcomes change little.
    """
    slope, offset = 1.0, 0.0
    for _ in range(_STEPS):
        chance = probability(slope * logits + offset)
        error, curve = chance - outcomes, np.maximum(chance * (1.0 - chance), 1e-6)
        gradient = np.array([float((error * logits).sum()) + slope - 1.0, float(error.sum()) + offset])
        mixed = float((curve * logits).sum())
        hessian = np.array([[float((curve * logits * logits).sum()) + 1.0, mixed], [mixed, float(curve.sum()) + 1.0]])
        change = np.linalg.solve(hessian, gradient)
        slope, offset = slope - float(change[0]), offset - float(change[1])
        if float(np.abs(change).max()) < 1e-4:
            break
    return (slope, offset) if slope > 0.0 else (0.0, offset)
