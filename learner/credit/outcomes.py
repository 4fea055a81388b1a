"""The outcome channel: who is compared with whom, and what each trajectory's outcome is worth by that.

A trajectory is compared with its group if another member came with it, else with what was to be expected of it. Groups
of equals are left out, and so is what has neither a past nor company.

Step labels are compared within a group; those of single trajectories with the same agent's in the batch, and there with
their own neighbourhood's first. Another agent's labels say nothing of them.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import BatchItem, agent_of

Floats = npt.NDArray[np.float64]
EPSILON = 1e-6
"""Below it there is no spread: nothing to learn from a comparison, and dividing would blow rounding errors up."""
SPREAD = 0.4
"""What outcomes less their estimate are divided by: the deviation, about, of kinds that succeed in 2 to 8 of 10."""
EXPECTED = 0.1
"""An outcome that is nearer than this to what was expected is what was expected: of a kind that succeeds nine times in
ten no success says which steps were good."""


class Peers(msgspec.Struct, frozen=True):
    """Trajectories whose step labels are compared with each other."""

    members: list[int]
    group: bool
    """Whether they are attempts at one task; else runs of one agent without a group."""
    kinds: list[str] | None = None
    """Names of the members' kinds, if the set has several."""


class OutcomeChannel(msgspec.Struct, frozen=True):
    """What outcomes alone say of a batch of n trajectories."""

    advantages: Floats
    """`(n,)`, 0 where not compared."""
    skipped: dict[int, str]
    """Trajectories that are left out, and why: `equal_outcomes` or `nothing_to_compare`."""
    peers: list[Peers]
    singles: list[int]
    """Trajectories that were compared as ones without a group."""
    expected: frozenset[int]
    """Those of them whose kind's runs here all came to what was expected: nothing holds their labels to the truth."""


def group(outcomes: Floats) -> Floats:
    """GRPO: `(R - mean) / std` over the group, `(n,)`, population deviation; zeros if all are equal.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1; AgentEvolver uses the population deviation for this channel.
    """
    return np.zeros_like(outcomes) if _equal(outcomes) else (outcomes - outcomes.mean()) / float(outcomes.std())


def expected(outcomes: Floats, estimates: Sequence[float | None]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Outcomes minus what was to be expected of each run, over `SPREAD`, and whether each had an estimate, `(n,)` both.

    Of a run of which nothing was known the mean of the other outcomes here is expected; where there are none, its
    advantage is 0. No outcome is in its own baseline, so none depends on the action it judges (SPO's tracker, arXiv
    2509.13232; the estimate is `actors.kinds.estimates`).
    """
    advantages = np.zeros(len(outcomes), dtype=np.float64)
    known = np.array([one is not None and bool(np.isfinite(one)) for one in estimates], dtype=np.bool_)
    for i, estimate in enumerate(estimates):
        others = np.delete(outcomes, i)
        if estimate is not None and known[i]:
            advantages[i] = (outcomes[i] - estimate) / SPREAD
        elif len(others):
            advantages[i] = (outcomes[i] - float(others.mean())) / SPREAD
    return advantages, known


def outcome_channel(items: Sequence[BatchItem], counted: Sequence[int], outcomes: Floats) -> OutcomeChannel:
    """Advantages of the outcomes `(n,)` of the `counted` items, on which they are finite."""
    advantages = np.zeros(len(items), dtype=np.float64)
    groups, singles = _by_group(items, counted)
    skipped: dict[int, str] = {}
    for members in groups:
        advantages[members] = group(outcomes[members])
        if _equal(outcomes[members]):
            skipped |= dict.fromkeys(members, "equal_outcomes")
    if singles:
        advantages[singles], known = expected(outcomes[singles], [items[i].estimate for i in singles])
        unknown = [i for i, yes in zip(singles, known, strict=True) if not yes]
        if len(singles) < 2:
            skipped |= dict.fromkeys(unknown, "nothing_to_compare")
        elif _equal(outcomes[singles]):
            # Compared with the batch's other singles, of which none went otherwise.
            skipped |= dict.fromkeys(unknown, "equal_outcomes")
    peers = [Peers(members, group=True) for members in groups] + _agents(items, singles)
    return OutcomeChannel(advantages, skipped, peers, singles, _as_expected(items, singles, outcomes))


def _equal(outcomes: Floats) -> bool:
    return float(outcomes.std()) <= EPSILON


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


def _agents(items: Sequence[BatchItem], singles: Sequence[int]) -> list[Peers]:
    """Single trajectories by agent, with the names of their neighbourhoods."""
    found: dict[str, list[int]] = {}
    for i in singles:
        found.setdefault(kind_of(items[i])[0], []).append(i)
    return [Peers(members, group=False, kinds=[kind_of(items[i])[1] for i in members]) for members in found.values()]


def _as_expected(items: Sequence[BatchItem], singles: Sequence[int], outcomes: Floats) -> frozenset[int]:
    """Single trajectories of kinds that came to what was expected of each: like a group of equals, they say nothing."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for i in singles:
        kinds.setdefault(kind_of(items[i]), []).append(i)

    def came(i: int) -> bool:
        estimate = items[i].estimate
        return estimate is not None and abs(float(outcomes[i]) - estimate) < EXPECTED

    return frozenset(i for kind in kinds.values() if all(map(came, kind)) for i in kind)


def kind_of(item: BatchItem) -> tuple[str, str]:
    """Agent and neighbourhood of a single trajectory; where it does not say, as far as the run itself tells."""
    agent, neighbourhood = item.kind
    return agent or agent_of(item.attributed.trajectory), neighbourhood or item.attributed.cluster
