"""The outcome channel: who is compared with whom, and what each trajectory's outcome is worth by that.

Every trajectory is compared within a set: its group if another member came with it, else what the baseline for single
trajectories finds. `reinforce++` has one set, the batch. What has neither a past nor company is left out.

Step labels are compared within a group; those of single trajectories with the same agent's in the batch, and there with
their own neighbourhood's first. Another agent's labels say nothing of them.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import BatchItem, agent_of
from learner.credit import baselines
from learner.credit.baselines import EPSILON, Floats
from learner.credit.settings import CreditSettings

Ints = npt.NDArray[np.int64]
EXPECTED = 0.1
"""An outcome that is nearer than this to what was expected is what was expected: of a kind that succeeds nine times in
ten no success says which steps were good. It is `baselines.LEAST_STD`, the least deviation that counts."""


class OutcomeChannel(msgspec.Struct, frozen=True):
    """What outcomes alone say of a batch of n trajectories."""

    advantages: Floats
    """`(n,)`, 0 where not compared."""
    skipped: dict[int, str]
    """Trajectories that are left out, and why: the skip rule's name, or `nothing_to_compare`."""
    peers: list["Peers"]
    """Sets among which step labels are standardised and states are met."""
    singles: list[int]
    """Trajectories that were compared as ones without a group."""
    expected: frozenset[int]
    """Those of them whose kind's runs here all came to what was expected: nothing holds their labels to the truth."""


class Peers(msgspec.Struct, frozen=True):
    """Trajectories whose steps are compared with each other."""

    members: list[int]
    leave_one_out: bool = False
    """Whether a trajectory's labels are compared with the others' mean, not with that of all."""
    baseline: Callable[[Floats], Floats] | None = None
    """What made the outcomes' advantages of these outcomes alone, if it was that."""
    kinds: list[str] | None = None
    """Names of the members' kinds, if the set has several."""


class _Set(msgspec.Struct, frozen=True):
    """Outcomes that were compared."""

    members: Sequence[int]
    """Who is skipped if the set is."""
    others: Sequence[int] = ()
    """Who is in the comparison besides."""


def outcome_channel(
    items: Sequence[BatchItem],
    counted: Sequence[int],
    outcomes: Floats,
    settings: CreditSettings,
) -> OutcomeChannel:
    """Advantages of the outcomes of the `counted` items.

    Args:
        items: the batch, n.
        counted: indices of those whose outcome can be used.
        outcomes: `(n,)`, finite on `counted`.
        settings: estimator, baselines, skip rule.
    """
    advantages = np.zeros(len(items), dtype=np.float64)
    groups, singles = _by_group(items, counted)
    sets: list[_Set]
    alone: list[int] = []
    usual = frozenset[int]()
    if settings.estimator == "reinforce++":
        advantages[list(counted)] = baselines.group(outcomes[list(counted)])
        sets, peers = [_Set(counted)], [Peers(list(counted))]
    else:
        scaled = settings.estimator == "grpo"
        others = settings.estimator == "rloo"
        baseline = baselines.leave_one_out if others else baselines.group
        compare = partial(baseline, scaled=scaled)
        for members in groups:
            advantages[members] = compare(outcomes[members])
        sets, peers = [_Set(members) for members in groups], [Peers(members, others, compare) for members in groups]
        if singles:
            advantages[singles], found, alone = _singles(items, singles, groups, outcomes, settings, scaled)
            sets += found
            usual = _expected(items, singles, outcomes) if settings.single == "estimate" else usual
            if settings.single == "neighbours":
                peers += [Peers(members, True) for members in _clusters(items, singles)]
            else:
                peers += _agents(items, singles, settings.single == "leave_one_out")
    skipped = {i: reason for each in sets if (reason := _skip(each, outcomes, settings)) for i in each.members}
    skipped |= dict.fromkeys(alone, "nothing_to_compare")
    if settings.estimator == "reinforce++_baseline":
        # What the skip rule leaves out has no part in the deviation either: it would only make it smaller.
        kept = [i for i in counted if i not in skipped]
        advantages[kept] = baselines.group(advantages[kept])
    if settings.skip == "small":
        skipped |= {i: "small_advantage" for i in counted if abs(float(advantages[i])) < settings.skip_below}
    return OutcomeChannel(advantages, skipped, peers, [] if settings.estimator == "reinforce++" else singles, usual)


def _skip(compared: _Set, outcomes: Floats, settings: CreditSettings) -> str:
    """Why a set is left out, or nothing. One outcome alone was compared with none."""
    own = outcomes[[*compared.members, *compared.others]]
    if len(own) < 2:
        return ""
    if settings.skip == "equal" and float(own.std()) <= EPSILON:
        return "equal_outcomes"
    if settings.skip == "negative" and float(own.max()) <= settings.success_above:
        return "all_negative"
    return ""


def _by_group(items: Sequence[BatchItem], counted: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Groups of two or more, and everything else."""
    by_group: dict[str, list[int]] = {}
    singles: list[int] = []
    for i in counted:
        name = items[i].attributed.trajectory.group
        if name:
            by_group.setdefault(name, []).append(i)
        else:
            singles.append(i)
    groups: list[list[int]] = []
    for members in by_group.values():
        if len(members) > 1:
            groups.append(members)
        else:
            singles += members
    return groups, sorted(singles)


def _clusters(items: Sequence[BatchItem], members: Sequence[int]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for i in members:
        found.setdefault(items[i].attributed.cluster, []).append(i)
    return list(found.values())


def _agents(items: Sequence[BatchItem], singles: Sequence[int], leave_one_out: bool) -> list[Peers]:
    """Single trajectories by agent, with the names of their neighbourhoods."""
    found: dict[str, list[int]] = {}
    for i in singles:
        found.setdefault(kind_of(items[i])[0], []).append(i)
    return [
        Peers(members, leave_one_out, kinds=None if leave_one_out else [kind_of(items[i])[1] for i in members])
        for members in found.values()
    ]


def _expected(items: Sequence[BatchItem], singles: Sequence[int], outcomes: Floats) -> frozenset[int]:
    """Single trajectories of kinds that came to what was expected of each: like a group of equals, they say nothing."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for i in singles:
        kinds.setdefault(kind_of(items[i]), []).append(i)

    def came(i: int) -> bool:
        estimate = items[i].estimate
        return estimate is not None and abs(float(outcomes[i]) - estimate.mean) < EXPECTED

    return frozenset(i for kind in kinds.values() if all(map(came, kind)) for i in kind)


def kind_of(item: BatchItem) -> tuple[str, str]:
    """Agent and neighbourhood of a single trajectory; where it does not say, as far as the run itself tells."""
    agent, neighbourhood = item.kind
    return agent or agent_of(item.attributed.trajectory), neighbourhood or item.attributed.cluster


def _singles(
    items: Sequence[BatchItem],
    singles: Sequence[int],
    groups: Sequence[Sequence[int]],
    outcomes: Floats,
    settings: CreditSettings,
    scaled: bool,
) -> tuple[Floats, list[_Set], list[int]]:
    """Advantages of ungrouped trajectories, the sets of those that were compared within the batch, and who had nothing
    to be compared with."""
    own = outcomes[list(singles)]
    if settings.single == "leave_one_out" and len(singles) > 1:
        return baselines.leave_one_out(own, scaled=scaled), [_Set(singles)], []
    estimates = [items[i].estimate for i in singles]
    advantages, decided = baselines.expected(own, estimates, settings.single_std, scaled=scaled)
    sets: list[_Set] = []
    if settings.single == "neighbours":
        cluster = [items[i].attributed.cluster for i in singles]
        found, close = baselines.neighbours(own, cluster, settings.min_neighbours, scaled=scaled)
        advantages, decided = np.where(close, found, advantages), decided | close
        sets = [_Set(each) for each in _clusters(items, [i for i, yes in zip(singles, close, strict=True) if yes])]
    if settings.single == "sandbox":
        attempts = [i for members in groups for i in members if items[i].attributed.trajectory.source == "sandbox"]
        for place, i in enumerate(singles):
            same = _attempts(items, i, attempts)
            if len(same) >= settings.min_neighbours:
                advantages[place] = baselines.sandbox(
                    float(outcomes[i]), outcomes[same], settings.single_std, scaled=scaled
                )
                decided[place] = True
                sets.append(_Set([i], same))
    undecided = [i for i, yes in zip(singles, decided, strict=True) if not yes]
    if len(singles) < 2:
        return advantages, sets, undecided
    # Compared with the batch's other singles, so labels are held to the truth by a difference among those.
    sets.append(_Set(undecided, [i for i, yes in zip(singles, decided, strict=True) if yes]))
    return advantages, sets, []


def _attempts(items: Sequence[BatchItem], single: int, attempts: Sequence[int]) -> list[int]:
    """Sandbox attempts at the same task, if any; else those of the same cluster of goals."""
    own = items[single].attributed
    task = own.trajectory.task_id
    same = [i for i in attempts if task and items[i].attributed.trajectory.task_id == task]
    return same or [i for i in attempts if own.cluster and items[i].attributed.cluster == own.cluster]
