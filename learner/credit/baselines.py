"""Outcome baselines: from outcomes to standardised outcomes, one number a trajectory.

All are pure. `EPSILON` separates "no spread" from spread: below it there is nothing to learn from a comparison, and
dividing would blow rounding errors up to full-size advantages.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from actors.messages import Estimate

Floats = npt.NDArray[np.float64]
EPSILON = 1e-6
LEAST_STD = 0.1
"""Least deviation that one outcome is divided by: a kind that nearly always succeeds must not turn one failure into a
shock."""


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
        fixed_std: divisor, 0 for the attempts' own deviation (at least `LEAST_STD`).
        scaled: without, only centred.
    """
    spread = fixed_std if fixed_std > 0 else max(float(attempts.std()), LEAST_STD)
    return (outcome - float(attempts.mean())) / (spread if scaled else 1.0)


def expected(
    outcomes: Floats, estimates: Sequence[Estimate | None], fixed_std: float, *, scaled: bool = True
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Outcomes minus what was to be expected of each run, over a fixed deviation or the one that goes with it.

    Of a run of which nothing was known the mean of the other outcomes here is expected; where there are none, its
    advantage is 0. No outcome is in its own baseline, so none depends on the action it judges.

    Source: SPO's tracker as a baseline (arXiv 2509.13232); the estimate is `actors.kinds.estimates`.

    Args:
        outcomes: `(n,)`.
        estimates: `(n,)` that came with them.
        fixed_std: divisor, 0 for `sqrt(m (1 - m))` or the others' deviation (at least `LEAST_STD`).
        scaled: without, only centred.

    Returns:
        `(n,)` advantages, and `(n,)` whether each had an estimate.
    """
    advantages = np.zeros(len(outcomes), dtype=np.float64)
    known = np.array([one is not None and bool(np.isfinite(one.mean)) for one in estimates], dtype=np.bool_)
    for i, estimate in enumerate(estimates):
        others = np.delete(outcomes, i)
        if estimate is not None and known[i]:
            inside = min(1.0, max(0.0, estimate.mean))
            mean, std = estimate.mean, float(np.sqrt(inside * (1.0 - inside)))
        elif len(others):
            mean, std = float(others.mean()), float(others.std())
        else:
            continue
        spread = fixed_std if fixed_std > 0 else max(std, LEAST_STD)
        advantages[i] = (outcomes[i] - mean) / (spread if scaled else 1.0)
    return advantages, known


def _scaled(outcomes: Floats, centred: Floats, scaled: bool) -> Floats:
    spread = float(outcomes.std())
    if spread <= EPSILON:
        return np.zeros_like(outcomes)
    return centred / spread if scaled else centred
