"""Outcome baselines: from outcomes to standardised outcomes, one number a trajectory.

All are pure. `EPSILON` separates "no spread" from spread: below it there is nothing to learn from a comparison, and
dividing would blow rounding errors up to full-size advantages.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Estimate
from learner.credit.kin import pooled

Floats = npt.NDArray[np.float64]
EPSILON = 1e-6
RUNNING_FLOOR = 0.1
"""Least deviation under a running one: a cluster that nearly always succeeds must not turn one failure into a shock."""
POOLED_SHARE = 0.25
"""Of the names remembered, at most, for agents and tenants: many goals share one of them, so few are needed, and
whoever invents agents without end pushes out no cluster."""


class Running(msgspec.Struct, frozen=True):
    """What is remembered of the outcomes of one cluster, agent or tenant."""

    mean: float
    square: float
    """Running mean of the squared outcomes."""
    agent: str = ""
    """Whose outcomes they all are, a name of `kin`; empty: several agents', or nobody knows."""

    @property
    def std(self) -> float:
        """Deviation that `mean` and `square` imply."""
        return float(np.sqrt(max(0.0, self.square - self.mean**2)))


def group(outcomes: Floats, *, scaled: bool = True) -> Floats:
    """GRPO: `(R - mean) / std` over the group, population deviation; zeros if all are equal.

    Over a whole batch it is REINFORCE++'s global whitening (arXiv 2501.03262), in verl over tokens, here with one
    number a trajectory; on outcomes less their group's mean, that of its variant with a baseline.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1; AgentEvolver uses the population deviation for this channel.

    Args:
        outcomes: `(n,)`.
        scaled: without, only centred.
    """
    return _scaled(outcomes, outcomes - outcomes.mean(), scaled) if len(outcomes) else outcomes


def leave_one_out(outcomes: Floats, *, scaled: bool = True) -> Floats:
    """RLOO: each outcome minus the mean of the *others*; zeros if all are equal, or if it is alone.

    Source: Ahmadian et al. (arXiv 2402.14740), which does not divide. The division by the set's population deviation is
    GRPO's and ours: it keeps the step size independent of the outcomes' scale, as the other baselines here do.

    Args:
        outcomes: `(n,)`.
        scaled: without, only centred, as in the paper.
    """
    n = len(outcomes)
    if n < 2:
        return np.zeros_like(outcomes)
    return _scaled(outcomes, outcomes - (outcomes.sum() - outcomes) / (n - 1), scaled)


def neighbours(
    outcomes: Floats, cluster: Sequence[str], minimum: int, *, scaled: bool = True
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Leave-one-out among trajectories of the same cluster; those with too few neighbours are not decided.

    Source: GRPO's group, made of similar requests instead of repeated ones.

    Args:
        outcomes: `(n,)`.
        cluster: `(n,)` names; an empty name has no neighbours.
        minimum: other members that a cluster needs.
        scaled: as in `leave_one_out`.

    Returns:
        `(n,)` standardised outcomes, and `(n,)` whether each was decided; undecided ones are 0.
    """
    advantages = np.zeros(len(outcomes), dtype=np.float64)
    decided = np.zeros(len(outcomes), dtype=np.bool_)
    names = np.asarray(cluster, dtype=np.str_)
    for name in dict.fromkeys(cluster):
        members = np.flatnonzero(names == name)
        if name and len(members) > minimum:
            advantages[members] = leave_one_out(outcomes[members], scaled=scaled)
            decided[members] = True
    return advantages, decided


def sandbox(outcome: float, attempts: Floats, fixed_std: float, *, scaled: bool = True) -> float:
    """One production outcome against sandbox attempts at the same task: minus their mean, over a deviation.

    The trajectory is not in the mean, so the baseline does not depend on the action it judges.

    Source: GRPO's group baseline (arXiv 2402.03300), the group played again in the sandbox.

    Args:
        outcome: of the trajectory.
        attempts: `(n,)` outcomes of the attempts, n >= 1.
        fixed_std: divisor, 0 for the attempts' own deviation (at least `RUNNING_FLOOR`).
        scaled: without, only centred.
    """
    spread = fixed_std if fixed_std > 0 else max(float(attempts.std()), RUNNING_FLOOR)
    return (outcome - float(attempts.mean())) / (spread if scaled else 1.0)


def expected(outcome: float, estimate: Estimate, fixed_std: float, *, scaled: bool = True) -> float:
    """One outcome minus what was to be expected of the run, over a fixed deviation or the one that goes with it.

    The run's own outcome has no part in the estimate, so the baseline does not depend on the action it judges.

    Source: SPO's tracker as a baseline (arXiv 2509.13232); the estimate is `actors.kinds.estimates`.

    Args:
        outcome: of the trajectory.
        estimate: that came with it.
        fixed_std: divisor, 0 for `sqrt(m (1 - m))` (at least `RUNNING_FLOOR`).
        scaled: without, only centred.
    """
    inside = min(1.0, max(0.0, estimate.mean))
    spread = fixed_std if fixed_std > 0 else max(float(np.sqrt(inside * (1.0 - inside))), RUNNING_FLOOR)
    return (outcome - estimate.mean) / (spread if scaled else 1.0)


def running(
    outcomes: Floats,
    names: Sequence[Sequence[str]],
    state: Mapping[str, Running],
    fixed_std: float,
    *,
    scaled: bool = True,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Outcome minus a running mean, over a fixed or a running deviation.

    The mean is that of the first of a trajectory's names that has a past; where none has, that of the other outcomes
    here; where there are none, the advantage is 0. Never is an outcome in its own baseline: the past excludes this
    batch, and the others exclude the one that is compared, so the baseline does not depend on the action it judges.

    Source: REINFORCE with a moving-average baseline (Williams 1992); decay and fixed deviation were measured on
    the travel desk to reach 84-94 % with one trajectory a request.

    Args:
        outcomes: `(n,)`.
        names: `(n,)` of `kin`, the closest first.
        state: what is known under each name.
        fixed_std: divisor, 0 for the running deviation (at least `RUNNING_FLOOR`).
        scaled: without, only centred.

    Returns:
        `(n,)` advantages, and `(n,)` whether each was compared with a past.
    """
    advantages = np.zeros(len(outcomes), dtype=np.float64)
    remembered = np.zeros(len(outcomes), dtype=np.bool_)
    for i, own in enumerate(names):
        known = next((state[name] for name in own if name in state), None)
        remembered[i] = known is not None
        if known is None:
            if len(outcomes) < 2:
                continue
            known = _moments(np.delete(outcomes, i))
        spread = fixed_std if fixed_std > 0 else max(known.std, RUNNING_FLOOR)
        advantages[i] = (outcomes[i] - known.mean) / (spread if scaled else 1.0)
    return advantages, remembered


def moved(
    outcomes: Floats, names: Sequence[Sequence[str]], state: Mapping[str, Running], decay: float, limit: int
) -> dict[str, Running]:
    """`state` after this batch; names heard of last come last, and only the last are kept.

    Agents and tenants may fill a `POOLED_SHARE` of the limit, clusters the rest: thousands of goals that came once push
    out no agent, and no number of agents pushes out the clusters.

    Args:
        outcomes: `(n,)` of trajectories that count for the first time.
        names: `(n,)` of `kin`; an outcome moves the mean of each.
        state: before; unchanged.
        decay: share of the old value.
        limit: names to keep.
    """
    members: dict[str, list[int]] = {}
    agents: dict[str, set[str]] = {}
    for i, own in enumerate(names):
        for name in own:
            members.setdefault(name, []).append(i)
            agents.setdefault(name, set()).update(own[1:2])
    after = dict(state)
    for name, its in members.items():
        new = _moments(outcomes[its])
        old = after.pop(name, None)
        whose = agents[name] if old is None else agents[name] | {old.agent}
        old = old or new
        after[name] = Running(
            decay * old.mean + (1 - decay) * new.mean,
            decay * old.square + (1 - decay) * new.square,
            next(iter(whose)) if len(whose) == 1 else "",
        )
    if len(after) <= limit:
        return after
    newest = list(reversed(after))
    pools = [name for name in newest if pooled(name)][: int(limit * POOLED_SHARE)]
    kept = {*pools, *[name for name in newest if not pooled(name)][: limit - len(pools)]}
    return {name: known for name, known in after.items() if name in kept}


def _scaled(outcomes: Floats, centred: Floats, scaled: bool) -> Floats:
    spread = float(outcomes.std())
    if spread <= EPSILON:
        return np.zeros_like(outcomes)
    return centred / spread if scaled else centred


def _moments(outcomes: Floats) -> Running:
    return Running(float(outcomes.mean()), float((outcomes**2).mean()))
