"""ADCA's step credit: step labels and outcome standardised apart, joined, and summed to the end.

Source: AgentEvolver (arXiv 2511.10395), section 5.2, in the form of its code ("decouple"): the spread of the labels is
taken over steps, not over the trajectories' means, which can be near 0 while steps differ.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import StepLabel
from learner.credit.outcomes import EPSILON, Floats

Mask = npt.NDArray[np.bool_]
PULL = 4.0
"""Trajectories that the whole set's labels are worth beside a kind's own: that strength is where `actors.kinds`
begins, too."""


def label_values(labels: Sequence[StepLabel]) -> tuple[Floats, Mask]:
    """Labels as numbers: GOOD +1, BAD -1, ABSTAIN 0 and masked.

    Returns:
        `(K,)` values and `(K,)` which steps were judged.
    """
    values = np.array([{"GOOD": 1.0, "BAD": -1.0, "ABSTAIN": 0.0}[label.label] for label in labels], dtype=np.float64)
    return values, values != 0.0


def standardise(
    values: Sequence[Floats],
    judged: Sequence[Mask],
    weights: Sequence[float] | None = None,
    *,
    kinds: Sequence[str] | None = None,
) -> list[Floats]:
    """z-score of the step labels over a set of trajectories, each trajectory of equal weight however long; `(K_i,)`
    each.

    mu = mean over trajectories of (mean over their judged steps); sigma^2 = the same mean of (value - mu)^2. Steps that
    were not judged get 0, and trajectories without a judged step do not count. All equal gives zeros.

    With weights w both means are weighted by w, and a trajectory's scores are multiplied by its own: one at half the
    weight says half as much, of itself and of the average. One at 0 counts as not judged.

    With kinds each has a mu_c and sigma_c of its own, shrunk towards the set's as if by `PULL` = k trajectories: n_c is
    how many are of the kind, by weight, m_c and q_c are the means of their values and squares, m and q the set's; mu_c
    = (n_c m_c + k m) / (n_c + k), sigma_c^2 = (n_c q_c + k q) / (n_c + k) - mu_c^2.
    """
    trust = np.ones(len(judged)) if weights is None else np.array(weights, dtype=np.float64)
    counted = [i for i, mask in enumerate(judged) if mask.any() and trust[i] > 0.0]
    out = [np.zeros(len(v), dtype=np.float64) for v in values]
    if not counted:
        return out
    means = np.array([values[i][judged[i]].mean() for i in counted], dtype=np.float64)
    squares = np.array([(values[i][judged[i]] ** 2).mean() for i in counted], dtype=np.float64)
    own = trust[counted]
    whole = _Moments.of(means, squares, own)
    names = np.array(["" if kinds is None else kinds[i] for i in counted], dtype=np.str_)
    found = {name: whole for name in names.tolist()}
    if kinds is not None:
        found = {name: _Moments.of(means[names == name], squares[names == name], own[names == name]) for name in found}
        found = {name: moments.pulled(whole, len(counted)) for name, moments in found.items()}
    for weight, name, i in zip(own, names.tolist(), counted, strict=True):
        moments = found[name]
        if moments.spread > EPSILON:
            out[i] = np.where(judged[i], weight * ((values[i] - moments.mean) / moments.spread), 0.0)
    return out


class _Moments(msgspec.Struct, frozen=True):
    """Of labels, over trajectories."""

    weight: float
    mean: float
    square: float

    @classmethod
    def of(cls, means: Floats, squares: Floats, weights: Floats) -> "_Moments":
        """Of trajectories' means and mean squares, `(n,)` each, n >= 1, by their weights `(n,)`."""
        total = float(weights.sum())
        return cls(total, float((weights * means).sum()) / total, float((weights * squares).sum()) / total)

    @property
    def spread(self) -> float:
        return float(np.sqrt(max(0.0, self.square - self.mean**2)))

    def pulled(self, whole: "_Moments", n: int) -> "_Moments":
        """Shrunk towards those of the `whole` of n trajectories."""
        size = n * self.weight / whole.weight
        own = size / (size + PULL)
        mean = whole.mean + own * (self.mean - whole.mean)
        return _Moments(self.weight, mean, whole.square + own * (self.square - whole.square))


def step_advantages(
    labels: Floats, outcome: float | Floats, *, alpha: float, discount: float = 1.0, bounded: bool = False
) -> Floats:
    """Step advantages `(K,)`: the outcome's to every step (it is a reward at the end, summed backwards), and discounted
    suffix sums of alpha * label. Discount 1 is the paper's plain sum, with 0 each label is its own step's alone; alpha
    0 is GRPO. The outcome is `(K,)` where it is worth something else to each role.

    `bounded` cuts what labels give to a step at what the outcome gives to it, either side of 0: they take from it or
    double it, and turn no step against it. Where the outcome says nothing they say nothing.
    """
    own = alpha * labels
    if discount == 1.0:
        own = np.cumsum(own[::-1])[::-1]
    elif discount > 0.0:
        own = own.copy()
        for t in range(len(own) - 2, -1, -1):
            own[t] += discount * own[t + 1]
    limit = np.abs(outcome)
    return np.ascontiguousarray((np.clip(own, -limit, limit) if bounded else own) + outcome)
