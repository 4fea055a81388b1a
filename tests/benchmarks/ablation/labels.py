"""Step labels for the ablation: the answer key, the rules judge that ships, either made worse on purpose, or none."""

import random
from collections.abc import Sequence
from typing import Literal

from actors.messages import Label, StepLabel, Trajectory
from adapters.judges.rules import judge

Source = Literal["none", "oracle", "rules"]
_OTHER: dict[Label, Label] = {"GOOD": "BAD", "BAD": "GOOD", "ABSTAIN": "ABSTAIN"}


def label(
    source: Source, trajectory: Trajectory, truth: Sequence[Label], rng: random.Random, *, wrong: float, silent: float
) -> tuple[StepLabel, ...]:
    """One label a step.

    Args:
        source: `none` abstains from every step.
        truth: what the answer key says; only `oracle` looks at it.
        rng: decides what is made worse.
        wrong: share of labels that are turned round.
        silent: share of labels that become ABSTAIN.
    """
    if source == "none":
        return tuple(StepLabel("ABSTAIN") for _ in trajectory.steps)
    labels = [StepLabel(one) for one in truth] if source == "oracle" else list(judge(trajectory))
    for i, one in enumerate(labels):
        if rng.random() < wrong:
            labels[i] = StepLabel(_OTHER[one.label])
        if rng.random() < silent:
            labels[i] = StepLabel("ABSTAIN")
    return tuple(labels)
