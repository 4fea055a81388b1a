"""`assign`: attributed trajectories in, one advantage a step out.

Outcomes and step labels are compared apart, each trajectory within its set (`outcomes`), and each agent's steps with
those of the same agent where several worked together (`roles`). Members that cannot be trained on count in the
sets' means and get no advantages. Formulas: docs/how-it-learns.md; why these defaults: docs/measured.md.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import BatchItem
from learner.credit import adca, roles
from learner.credit.outcomes import EPSILON, Floats, OutcomeChannel, Peers, outcome_channel

NEGLIGIBLE = 1e-8
"""An advantage below this in every step has no gradient worth a forward pass."""
UNTRUSTED = 1e-6
"""A judge's weight up to which its labels count as ABSTAIN."""
LARGEST = 1e6
"""Outcomes are meant to lie between 0 and 1. What is beyond this, either side of 0, is no outcome: its square would
overflow sums, or swamp every other trajectory's."""


class CreditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How outcomes and step labels become advantages. AgentEvolver's own values are alpha 0.1 and discount 1."""

    alpha: float = 1.0
    """Weight of the step labels against the outcome; 0 is outcome-only GRPO. With `discount = 1` labels add up over the
    steps, and 0.1 is the paper's."""
    discount: float = 0.0
    """Of a label, a step back. 0: each label is its own step's alone. 1: a step answers for all that follows it, the
    paper's sums; alpha then has to be about 0.1."""


class Credits(msgspec.Struct, frozen=True):
    """What `assign` decided, in the order of its items."""

    advantages: tuple[npt.NDArray[np.float32] | None, ...]
    """Per trajectory `(K,)`, None where it is not trained on."""
    left: tuple[str, ...]
    """Why not: `no_outcome`, `outcome_range`, `cut_off`, `no_steps`, `labels_mismatch`, `not_trainable`,
    `equal_outcomes`, `nothing_to_compare`, `zero_advantage`; empty where it is."""
    statistics: dict[str, float]
    reasons: dict[str, str] = {}
    """`left` by trajectory id, without those that are trained on."""

    @property
    def skipped(self) -> dict[str, int]:
        """Number of trajectories by reason."""
        return dict(Counter(reason for reason in self.left if reason))


def assign(items: Sequence[BatchItem], settings: CreditSettings) -> Credits:
    """Credit for one batch. Pure: the same arguments give the same result, and nothing is changed in place.

    Args:
        items: the batch; `trajectory.group` names groups; the others come with what was to be expected of them.
        settings: which credit.
    """
    reasons = [_unusable(item) for item in items]
    usable = [i for i, reason in enumerate(reasons) if reason in ("", "not_trainable")]
    outcomes = np.zeros(len(items), dtype=np.float64)
    for i in usable:
        outcomes[i] = items[i].attributed.trajectory.outcome
    channel = outcome_channel(items, usable, outcomes)
    for i, reason in channel.skipped.items():
        reasons[i] = reasons[i] or reason
    live = [peers for peers in channel.peers if any(i not in channel.skipped for i in peers.members)]
    weights = [_weight(item) for item in items]
    values = [_values(item, weight) for item, weight in zip(items, weights, strict=True)]
    labels, worth = _compared(items, values, weights, outcomes, channel, live)

    # Nothing in the batch holds a single trajectory's labels to the truth but its own outcome.
    bounded = frozenset(channel.singles)
    for i in channel.expected:
        labels[i] = np.zeros_like(labels[i])
    advantages: list[npt.NDArray[np.float32] | None] = []
    process = np.zeros(len(items), dtype=np.float64)
    for i, item in enumerate(items):
        if reasons[i]:
            advantages.append(None)
            continue
        process[i] = settings.alpha * float(labels[i].sum())
        steps = adca.step_advantages(
            labels[i],
            worth.get(i, float(channel.advantages[i])),
            alpha=settings.alpha,
            discount=settings.discount,
            bounded=i in bounded,
        )
        steps *= _scale(item)
        if float(np.abs(steps).max()) < NEGLIGIBLE:
            reasons[i] = "zero_advantage"
            advantages.append(None)
        else:
            advantages.append(steps.astype(np.float32))
    statistics = _statistics(reasons, outcomes[usable], channel, process, [v for v, _ in values])
    trained = [weight for weight, reason in zip(weights, reasons, strict=True) if not reason]
    statistics["weight_mean"] = float(np.mean(trained)) if trained else 0.0
    return Credits(
        tuple(advantages),
        tuple(reasons),
        statistics,
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
    return "" if trajectory.trainable else "not_trainable"


def _weight(item: BatchItem) -> float:
    """How far the item's labels can be trusted, 0 to 1; NaN is no trust."""
    weight = item.attributed.attribution.weight
    return min(1.0, weight) if weight > UNTRUSTED else 0.0


def _scale(item: BatchItem) -> float:
    """Factor of the item's advantages, 0 to 1; NaN counts as 0."""
    scale = item.attributed.trajectory.scale
    return min(1.0, scale) if scale > 0.0 else 0.0


def _values(item: BatchItem, weight: float) -> tuple[Floats, adca.Mask]:
    values, judged = adca.label_values(item.attributed.attribution.labels)
    # A judge that nobody trusts has said nothing: not even what the average label is.
    return (values, judged) if weight > 0.0 else (np.zeros_like(values), np.zeros_like(judged))


def _compared(
    items: Sequence[BatchItem],
    values: Sequence[tuple[Floats, adca.Mask]],
    weights: Sequence[float],
    outcomes: Floats,
    channel: OutcomeChannel,
    live: Sequence[Peers],
) -> tuple[list[Floats], dict[int, Floats]]:
    """
    Returns:
        Standardised step labels of every trajectory, `(K_i,)` each, times its weight, 0 outside the sets; and what the
        outcome is worth to each step, `(K_i,)`, where several roles were compared within a group.
    """
    labels = [np.zeros(len(own), dtype=np.float64) for own, _ in values]
    worth: dict[int, Floats] = {}
    for peers in live:
        members = peers.members
        masks = roles.role_masks([items[i].attributed.trajectory for i in members])
        own, judged = [values[i][0] for i in members], [values[i][1] for i in members]
        scores = roles.standardised(own, judged, [weights[i] for i in members], masks, peers.kinds)
        for i, score in zip(members, scores, strict=True):
            labels[i] = score
        if peers.group and masks is not None:
            by_role = roles.outcomes_by_role(outcomes[members], channel.advantages[members], masks)
            worth |= dict(zip(members, by_role, strict=True))
    return labels, worth


def _statistics(
    reasons: Sequence[str],
    outcomes: Floats,
    channel: OutcomeChannel,
    process: Floats,
    labels: Sequence[Floats],
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
    return figures
