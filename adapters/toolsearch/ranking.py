"""Rankings and their fusion, over arrays of scores by slot. Pure."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_BEST = 5
"""Operations by which an API is ranked: one that fits may be chance, of a large API some always fit a little."""


def order(scores: Floats, places: Ints) -> Ints:
    """Slots, the best first; equal ones in the order of `places`.

    Args:
        scores: `(n,)`.
        places: `(n,)`, each slot's place among its equals.
    """
    return np.lexsort((places, -scores))


def reciprocal_ranks(scores: Floats, constant: int) -> Floats:
    """1 / (constant + rank), `(n,)`; equal scores have the same rank, 0 is not ranked and gives 0.

    Source: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion, SIGIR 2009.
    """
    # Noise in the last bits of a float32 product must not decide between equals.
    rounded = np.round(scores, 6)
    ascending = np.sort(rounded)
    ranks = len(rounded) - np.searchsorted(ascending, rounded, side="right") + 1
    return np.where(rounded > 0.0, 1.0 / (constant + ranks), 0.0)


def api_scores(scores: Floats, apis: Ints) -> Floats:
    """The score of each slot's API, `(n,)`: the mean over its best operations.

    Args:
        scores: `(n,)`, not below 0.
        apis: `(n,)`, the number of each slot's API.
    """
    if not len(scores):
        return scores
    by_api = np.lexsort((-scores, apis))
    grouped = apis[by_api]
    starts = np.searchsorted(grouped, grouped, side="left")
    best = np.arange(len(grouped)) - starts < _BEST
    sums = np.bincount(grouped[best], scores[by_api][best], minlength=int(grouped.max()) + 1)
    return sums[apis] / _BEST
