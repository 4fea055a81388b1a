"""`assign`: attributed trajectories in, one advantage a step out.

Outcomes and step labels are compared apart, each trajectory within its set (`outcomes`), and each agent's steps with
those of the same agent where several worked together (`roles`). Members with the role `baseline`, and those that cannot
be trained on, count in the sets' means and get no advantages. Corrections of what was trained on before get the
difference alone (`corrections`).
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import BatchItem
from learner.credit import adca, anchors, roles
from learner.credit.baselines import EPSILON, Floats
from learner.credit.corrections import difference
from learner.credit.outcomes import OutcomeChannel, Peers, outcome_channel
from learner.credit.schedule import alpha_at
from learner.credit.settings import CreditSettings

NEGLIGIBLE = 1e-8
"""An advantage below this in every step has no gradient worth a forward pass."""
UNTRUSTED = 1e-6
"""A judge's weight up to which its labels count as ABSTAIN: leave-one-out divides by what others' weights leave."""
LARGEST = 1e6
"""Outcomes are meant to lie between 0 and 1. What is beyond this, either side of 0, is no outcome: its square would
overflow sums, or swamp every other trajectory's."""
BASELINE = "baseline_only"
"""Reason of the members that came to be compared with: they lack nothing, and are not counted as skipped."""


class Credits(msgspec.Struct, frozen=True):
    """What `assign` decided, in the order of its items."""

    advantages: tuple[npt.NDArray[np.float32] | None, ...]
    """Per trajectory `(K,)`, None where it is not trained on."""
    left: tuple[str, ...]
    """Why not: `baseline_only`, `no_outcome`, `outcome_range`, `cut_off`, `no_steps`, `labels_mismatch`,
    `not_trainable`, `equal_outcomes`, `all_negative`, `small_advantage`, `nothing_to_compare`,
    `zero_advantage`; empty where it is."""
    statistics: dict[str, float]
    reasons: dict[str, str] = {}
    """`left` by trajectory id, without those that are trained on."""

    @property
    def skipped(self) -> dict[str, int]:
        """Number of trajectories by reason. Baseline members are left out: they came to be compared with."""
        return dict(Counter(reason for reason in self.left if reason not in ("", BASELINE)))


def assign(items: Sequence[BatchItem], settings: CreditSettings, update: int = 0) -> Credits:
    """Credit for one batch. Pure: the same arguments give the same result, and nothing is changed in place.

    Args:
        items: the batch; `trajectory.group` names groups; the others come with what was to be expected of them.
        settings: which credit.
        update: updates made before this one, for the schedule of alpha.
    """
    reasons = [_unusable(item) for item in items]
    usable = [i for i, reason in enumerate(reasons) if reason in ("", BASELINE, "not_trainable")]
    corrected = [i for i in usable if items[i].corrects is not None]
    counted = [i for i in usable if items[i].corrects is None]
    outcomes = np.zeros(len(items), dtype=np.float64)
    for i in usable:
        outcomes[i] = items[i].attributed.trajectory.outcome
    channel = outcome_channel(items, counted, outcomes, settings)
    for i, reason in channel.skipped.items():
        reasons[i] = reasons[i] or reason
    for i in corrected:
        channel.advantages[i] = difference(items, counted, i, outcomes, settings)
    live = [peers for peers in channel.peers if any(i not in channel.skipped for i in peers.members)]
    weights = [_weight(item) for item in items]
    values = [_values(item, weight) for item, weight in zip(items, weights, strict=True)]
    labels = _labels(items, values, weights, outcomes, live, settings)
    worth = _worth(items, outcomes, channel, live, settings)
    met = _anchors(items, outcomes, live, settings)

    # Nothing in the batch holds a single trajectory's labels to the truth but its own outcome.
    held = settings.skip == "equal"
    bounded = frozenset(channel.singles) if held else frozenset[int]()
    for i in channel.expected if held else ():
        labels[i] = np.zeros_like(labels[i])
    alpha = alpha_at(settings, update)
    advantages: list[npt.NDArray[np.float32] | None] = []
    process = np.zeros(len(items), dtype=np.float64)
    for i, (_, judged) in enumerate(values):
        if reasons[i]:
            advantages.append(None)
            continue
        h = adca.horizon(settings.h, int(judged.sum()), settings.horizon)
        process[i] = alpha * h * float(labels[i].sum())
        steps = adca.step_advantages(
            labels[i],
            worth.get(i, float(channel.advantages[i])),
            alpha=alpha,
            h=h,
            fusion=settings.fusion,
            discount=settings.discount,
            bounded=i in bounded,
        )
        steps += settings.anchor_weight * met[i]
        if settings.length_weight == "inverse_sqrt":
            steps /= np.sqrt(len(steps))
        steps *= _scale(items[i])
        if float(np.abs(steps).max()) < NEGLIGIBLE:
            reasons[i] = "zero_advantage"
            advantages.append(None)
        else:
            advantages.append(steps.astype(np.float32))
    statistics = _statistics(reasons, outcomes[counted], channel, process, [v for v, _ in values], met)
    trained = [weight for weight, reason in zip(weights, reasons, strict=True) if not reason]
    statistics["weight_mean"] = float(np.mean(trained)) if trained else 0.0
    return Credits(
        tuple(advantages),
        tuple(reasons),
        statistics | {"alpha": alpha},
        {item.attributed.trajectory.id: reason for item, reason in zip(items, reasons, strict=True) if reason},
    )


def _unusable(item: BatchItem) -> str:
    trajectory = item.attributed.trajectory
    if trajectory.outcome is None or not np.isfinite(trajectory.outcome):
        return "no_outcome"
    if abs(trajectory.outcome) > LARGEST:
        return "outcome_range"
    if trajectory.cut_off:
        return "cut_off"
    if not trajectory.steps:
        return "no_steps"
    if len(item.attributed.attribution.labels) != len(trajectory.steps):
        return "labels_mismatch"
    if item.role == "baseline":
        return BASELINE
    return "" if trajectory.trainable else "not_trainable"


def _weight(item: BatchItem) -> float:
    """How far the item's labels can be trusted, 0 to 1; what is no number is no trust."""
    weight = item.attributed.attribution.weight
    return min(1.0, weight) if weight > UNTRUSTED else 0.0


def _scale(item: BatchItem) -> float:
    """Factor of the item's advantages, 0 to 1; what is no number scales nothing up and nothing in."""
    scale = item.attributed.trajectory.scale
    return min(1.0, scale) if scale > 0.0 else 0.0


def _values(item: BatchItem, weight: float) -> tuple[Floats, adca.Mask]:
    values, judged = adca.label_values(item.attributed.attribution.labels)
    # A judge that nobody trusts has said nothing: not even what the average label is.
    return (values, judged) if weight > 0.0 else (np.zeros_like(values), np.zeros_like(judged))


def _labels(
    items: Sequence[BatchItem],
    values: Sequence[tuple[Floats, adca.Mask]],
    weights: Sequence[float],
    outcomes: Floats,
    live: Sequence[Peers],
    settings: CreditSettings,
) -> list[Floats]:
    """Standardised step labels of every trajectory, `(K_i,)` each, times its weight; 0 outside the sets."""
    found = [np.zeros(len(own), dtype=np.float64) for own, _ in values]
    for peers in live:
        members = peers.members
        own = [values[i][0] for i in members]
        judged = [values[i][1] for i in members]
        if settings.scheme == "allocation":
            own = [
                adca.allocation(
                    labels,
                    mask,
                    success=float(outcomes[i]) > settings.success_above,
                    consistent=settings.consistent,
                    contrary=settings.contrary,
                )
                for i, labels, mask in zip(members, own, judged, strict=True)
            ]
        trust = [weights[i] for i in members]
        masks = roles.role_masks([items[i].attributed.trajectory for i in members])
        scores = roles.standardised(own, judged, trust, masks, leave_one_out=peers.leave_one_out, kinds=peers.kinds)
        for i, score in zip(members, scores, strict=True):
            found[i] = score
    return found


def _worth(
    items: Sequence[BatchItem],
    outcomes: Floats,
    channel: OutcomeChannel,
    live: Sequence[Peers],
    settings: CreditSettings,
) -> dict[int, Floats]:
    """What the outcome is worth to each step, `(K_i,)`, where several roles were compared within a group."""
    found: dict[int, Floats] = {}
    if settings.estimator == "reinforce++_baseline":
        return found  # its last step is over the batch, in which groups and roles are mixed anyway
    for peers in live:
        masks = roles.role_masks([items[i].attributed.trajectory for i in peers.members]) if peers.baseline else None
        if masks is None or peers.baseline is None:
            continue
        own = roles.outcomes_by_role(outcomes[peers.members], channel.advantages[peers.members], masks, peers.baseline)
        found |= dict(zip(peers.members, own, strict=True))
    return found


def _anchors(
    items: Sequence[BatchItem], outcomes: Floats, live: Sequence[Peers], settings: CreditSettings
) -> list[Floats]:
    """Advantages among steps from the same state, `(K_i,)` each; 0 outside the sets."""
    found = [np.zeros(len(item.attributed.trajectory.steps), dtype=np.float64) for item in items]
    if settings.anchor_weight == 0:
        return found
    for peers in live:
        members = peers.members
        keys = [anchors.anchor_keys(items[i].attributed.trajectory) for i in members]
        returns = [
            anchors.step_returns(float(outcomes[i]), len(found[i]), settings.anchor_discount) for i in members
        ]  # fmt: skip
        scores = anchors.anchor_advantages(keys, returns, settings.anchor_scale)
        for i, score in zip(members, scores, strict=True):
            found[i] = score
    return found


def _statistics(
    reasons: Sequence[str],
    outcomes: Floats,
    channel: OutcomeChannel,
    process: Floats,
    labels: Sequence[Floats],
    met: Sequence[Floats],
) -> dict[str, float]:
    """Figures for logs and metrics; `alpha_effective` is the process channel's size relative to the outcome's."""
    trained = [i for i, reason in enumerate(reasons) if not reason]
    steps = np.concatenate([labels[i] for i in trained]) if trained else np.zeros(0)
    figures = {
        "trained": float(len(trained)),
        "outcome_mean": float(outcomes.mean()) if len(outcomes) else 0.0,
        "steps_good": float((steps > 0).mean()) if len(steps) else 0.0,
        "steps_bad": float((steps < 0).mean()) if len(steps) else 0.0,
        "steps_abstained": float((steps == 0).mean()) if len(steps) else 0.0,
    }
    if trained:
        own, share = channel.advantages[trained], process[trained]
        size = float(np.abs(own).mean())
        figures["outcome_std"] = float(own.std())
        figures["process_std"] = float(share.std())
        figures["alpha_effective"] = float(np.abs(share).mean()) / size if size > EPSILON else 0.0
        figures["signs_agree"] = float((np.sign(own) == np.sign(share)).mean())
        figures["steps_anchored"] = float(np.concatenate([met[i] != 0 for i in trained]).mean())
    return figures
