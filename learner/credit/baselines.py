"""Outcome baselines: from outcomes to standardised outcomes, one number a trajectory.

All are pure. `EPSILON` separates "no spread" from spread: below it there is nothing to learn from a comparison, and
dividing would blow rounding errors up to full-size advantages.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
EPSILON = 1e-6
RUNNING_FLOOR = 0.1
"""Least deviation under a running one: a cluster that nearly always succeeds must not turn one failure into a shock."""


class Running(msgspec.Struct, frozen=True):
    """What is remembered of one cluster's outcomes."""

    mean: float
    square: float
    """Running mean of the squared outcomes."""

    @property
    def std(self) -> float:
        """Deviation that `mean` and `square` imply."""
        return float(np.sqrt(max(0.0, self.square - self.mean**2)))


def group(outcomes: Floats) -> Floats:
    """GRPO: `(R - mean) / std` over the group, population deviation; zeros if all are equal.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1; AgentEvolver uses the population deviation for this channel.

    Args:
        outcomes: `(n,)`, n >= 2.
    """
    spread = float(outcomes.std())
    centred = outcomes - outcomes.mean()
    return centred / spread if spread > EPSILON else np.zeros_like(outcomes)


def leave_one_out(outcomes: Floats) -> Floats:
    """RLOO: each outcome minus the mean of the *others*, over the set's population deviation; zeros if all are equal.

    Source: Ahmadian et al. (arXiv 2402.14740). The division by the deviation is GRPO's and ours: it keeps the step size
    independent of the outcomes' scale, as the other baselines here do.

    Args:
        outcomes: `(n,)`, n >= 2.
    """
    n = len(outcomes)
    spread = float(outcomes.std())
    others = (outcomes.sum() - outcomes) / (n - 1)
    return (outcomes - others) / spread if spread > EPSILON else np.zeros_like(outcomes)


def neighbours(outcomes: Floats, cluster: Sequence[str], minimum: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Leave-one-out among trajectories of the same cluster; those with too few neighbours are not decided.

    Source: GRPO's group, made of similar requests instead of repeated ones (design, section 6).

    Args:
        outcomes: `(n,)`.
        cluster: `(n,)` names; an empty name has no neighbours.
        minimum: other members that a cluster needs.

    Returns:
        `(n,)` standardised outcomes, and `(n,)` whether each was decided; undecided ones are 0.
    """
    advantages = np.zeros(len(outcomes), dtype=np.float64)
    decided = np.zeros(len(outcomes), dtype=np.bool_)
    names = np.asarray(cluster, dtype=np.str_)
    for name in dict.fromkeys(cluster):
        members = np.flatnonzero(names == name)
        if name and len(members) > minimum:
            advantages[members] = leave_one_out(outcomes[members])
            decided[members] = True
    return advantages, decided


def running(outcomes: Floats, cluster: Sequence[str], state: Mapping[str, Running], fixed_std: float) -> Floats:
    """Outcome minus the cluster's running mean, over a fixed or a running deviation.

    A cluster without a past takes this batch's own mean, so its first trajectories are compared with each other and a
    lone one gets 0. The past excludes this batch: the baseline does not depend on the action it judges.

    Source: REINFORCE with a moving-average baseline (Williams 1992); decay and fixed deviation as in the prototype,
    which reached 84-94 % with one trajectory a request.

    Args:
        outcomes: `(n,)`.
        cluster: `(n,)` names.
        state: what is known of each cluster.
        fixed_std: divisor, 0 for the running deviation (at least `RUNNING_FLOOR`).
    """
    names = np.asarray(cluster, dtype=np.str_)
    advantages = np.zeros(len(outcomes), dtype=np.float64)
    for name in dict.fromkeys(cluster):
        members = np.flatnonzero(names == name)
        known = state.get(name) or _moments(outcomes[members])
        spread = fixed_std if fixed_std > 0 else max(known.std, RUNNING_FLOOR)
        advantages[members] = (outcomes[members] - known.mean) / spread
    return advantages


def moved(
    outcomes: Floats, cluster: Sequence[str], state: Mapping[str, Running], decay: float, limit: int
) -> dict[str, Running]:
    """`state` after this batch; clusters heard of last come last, and only the last `limit` are kept.

    Args:
        outcomes: `(n,)` of trajectories that count for the first time.
        cluster: `(n,)` names.
        state: before; unchanged.
        decay: share of the old value.
        limit: clusters to keep.
    """
    names = np.asarray(cluster, dtype=np.str_)
    after = dict(state)
    for name in dict.fromkeys(cluster):
        new = _moments(outcomes[np.flatnonzero(names == name)])
        old = after.pop(name, new)
        after[name] = Running(decay * old.mean + (1 - decay) * new.mean, decay * old.square + (1 - decay) * new.square)
    return dict(list(after.items())[-limit:])


def _moments(outcomes: Floats) -> Running:
    return Running(float(outcomes.mean()), float((outcomes**2).mean()))
