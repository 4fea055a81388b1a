"""`assign`: attributed trajectories in, one advantage a step out.

Each trajectory is compared within a set: its group if another member came with it, else the set of all ungrouped ones
under the single-sample baseline. Members with the role `baseline`, and those that cannot be trained on, count in the
sets' means and get no advantages.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import BatchItem
from learner.credit import adca, baselines
from learner.credit.baselines import EPSILON, Floats, Running
from learner.credit.settings import CreditSettings

NEGLIGIBLE = 1e-8
"""An advantage below this in every step has no gradient worth a forward pass."""


class Credits(msgspec.Struct, frozen=True):
    """What `assign` decided, in the order of its items."""

    advantages: tuple[npt.NDArray[np.float32] | None, ...]
    """Per trajectory `(K,)`, None where it is not trained on."""
    reasons: tuple[str, ...]
    """Why not: `baseline`, `no_outcome`, `no_steps`, `labels_mismatch`, `not_trainable`, `equal_outcomes`,
    `zero_advantage`; empty where it is."""
    running: dict[str, Running]
    """Running baselines after this batch."""
    statistics: dict[str, float]

    @property
    def skipped(self) -> dict[str, int]:
        """Number of trajectories by reason, `baseline` members left out."""
        return dict(Counter(reason for reason in self.reasons if reason not in ("", "baseline")))


def assign(items: Sequence[BatchItem], settings: CreditSettings, running: Mapping[str, Running]) -> Credits:
    """Credit for one batch. Pure: the same arguments give the same result, and nothing is changed in place.

    Args:
        items: the batch; `trajectory.group` names groups, `attributed.cluster` the running baselines.
        settings: which credit.
        running: running baselines before this batch.
    """
    reasons = [_unusable(item) for item in items]
    counted = [i for i, reason in enumerate(reasons) if reason in ("", "baseline", "not_trainable")]
    outcomes = np.array([item.attributed.trajectory.outcome or 0.0 for item in items], dtype=np.float64)
    values = [adca.label_values(item.attributed.attribution.labels) for item in items]
    after = dict(running)

    outcome_channel = np.zeros(len(items), dtype=np.float64)
    label_channel = [np.zeros(len(v), dtype=np.float64) for v, _ in values]
    groups, singles = _sets(items, counted)

    def label_set(members: Sequence[int], leave_one_out: bool) -> None:
        scored = adca.standardise(
            [values[i][0] for i in members], [values[i][1] for i in members], leave_one_out=leave_one_out
        )
        for i, score in zip(members, scored, strict=True):
            label_channel[i] = score

    for members in groups:
        if settings.skip_equal and float(outcomes[members].std()) <= EPSILON:
            for i in members:
                reasons[i] = reasons[i] or "equal_outcomes"
            continue
        baseline = baselines.group if settings.grouped == "group" else baselines.leave_one_out
        outcome_channel[members] = baseline(outcomes[members])
        label_set(members, settings.grouped == "leave_one_out")

    if singles:
        names = [items[i].attributed.cluster for i in singles]
        found, equal = _single(outcomes[singles], names, settings, running)
        outcome_channel[singles] = found
        for i, same in zip(singles, equal, strict=True):
            if same and settings.skip_equal:
                reasons[i] = reasons[i] or "equal_outcomes"
        if settings.single == "neighbours":
            for name in dict.fromkeys(names):
                label_set([i for i, own in zip(singles, names, strict=True) if own == name], True)
        else:
            label_set(singles, settings.single == "leave_one_out")
        # A neighbour comes again with later batches; only what is there to be trained on moves the baseline.
        new = [i for i in singles if items[i].role == "train"]
        if new:
            after = baselines.moved(
                outcomes[new],
                [items[i].attributed.cluster for i in new],
                running,
                settings.running_decay,
                settings.running_clusters,
            )

    advantages: list[npt.NDArray[np.float32] | None] = []
    process = np.zeros(len(items), dtype=np.float64)
    for i, (_, judged) in enumerate(values):
        if reasons[i]:
            advantages.append(None)
            continue
        h = adca.horizon(settings.h, int(judged.sum()), settings.horizon)
        process[i] = settings.alpha * h * float(label_channel[i].sum())
        steps = adca.step_advantages(label_channel[i], float(outcome_channel[i]), alpha=settings.alpha, h=h)
        if float(np.abs(steps).max()) < NEGLIGIBLE:
            reasons[i] = "zero_advantage"
            advantages.append(None)
        else:
            advantages.append(steps.astype(np.float32))
    trained = [i for i, reason in enumerate(reasons) if not reason]
    statistics = _statistics(trained, outcomes[counted], outcome_channel, process, [v for v, _ in values])
    return Credits(tuple(advantages), tuple(reasons), after, statistics)


def _unusable(item: BatchItem) -> str:
    trajectory = item.attributed.trajectory
    if trajectory.outcome is None or not np.isfinite(trajectory.outcome):
        return "no_outcome"
    if not trajectory.steps:
        return "no_steps"
    if len(item.attributed.attribution.labels) != len(trajectory.steps):
        return "labels_mismatch"
    if item.role == "baseline":
        return "baseline"
    return "" if trajectory.trainable else "not_trainable"


def _sets(items: Sequence[BatchItem], counted: Sequence[int]) -> tuple[list[list[int]], list[int]]:
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


def _single(
    outcomes: Floats, cluster: Sequence[str], settings: CreditSettings, running: Mapping[str, Running]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Standardised outcomes of ungrouped trajectories, and which of them had only equals to be compared with."""
    no = np.zeros(len(outcomes), dtype=np.bool_)
    from_past = baselines.running(outcomes, cluster, running, settings.running_std)
    if settings.single == "running":
        return from_past, no
    if settings.single == "leave_one_out":
        if len(outcomes) < 2:
            return from_past, no
        found = baselines.leave_one_out(outcomes)
        return found, np.full(len(outcomes), bool(outcomes.std() <= EPSILON))
    found, decided = baselines.neighbours(outcomes, cluster, settings.min_neighbours)
    names = np.asarray(cluster, dtype=np.str_)
    equal = np.array(
        [bool(d) and float(outcomes[names == name].std()) <= EPSILON for name, d in zip(cluster, decided, strict=True)],
        dtype=np.bool_,
    )
    return np.where(decided, found, from_past), equal


def _statistics(
    trained: Sequence[int], outcomes: Floats, outcome_channel: Floats, process: Floats, labels: Sequence[Floats]
) -> dict[str, float]:
    """Figures for logs and metrics; `alpha_effective` is the process channel's size relative to the outcome's."""
    steps = np.concatenate([labels[i] for i in trained]) if trained else np.zeros(0)
    figures = {
        "trained": float(len(trained)),
        "outcome_mean": float(outcomes.mean()) if len(outcomes) else 0.0,
        "steps_good": float((steps > 0).mean()) if len(steps) else 0.0,
        "steps_bad": float((steps < 0).mean()) if len(steps) else 0.0,
        "steps_abstained": float((steps == 0).mean()) if len(steps) else 0.0,
    }
    if trained:
        own, share = outcome_channel[list(trained)], process[list(trained)]
        size = float(np.abs(own).mean())
        figures["outcome_std"] = float(own.std())
        figures["process_std"] = float(share.std())
        figures["alpha_effective"] = float(np.abs(share).mean()) / size if size > EPSILON else 0.0
        figures["signs_agree"] = float((np.sign(own) == np.sign(share)).mean())
    return figures
