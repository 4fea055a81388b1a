"""Anchor groups: steps of several trajectories that were taken from the same state, compared with each other.

A trajectory's outcome says nothing about which of its steps made it. Where several runs stood before the same state and
went on differently, the returns that followed do. It needs no judge, only runs that meet.

What a state is: the goal and the last observation before the step; at the first step the goal alone. It is not the
whole history, so two runs that saw the same text after different pasts count as having met; nor is it the prompt, in
which lessons and the agent's own words would keep apart what stood before the same world. A later step without an
observation before it has no anchor: no text is no evidence of the same state.

Source: GiGPO (arXiv 2505.10978), anchor state groups and step relative advantages.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

import numpy as np

from actors.messages import Trajectory
from learner.credit.baselines import EPSILON, Floats


def anchor_keys(trajectory: Trajectory) -> list[str]:
    """One key a step, equal for equal states; empty for a step that has no anchor."""
    keys: list[str] = []
    before = ""
    for number, step in enumerate(trajectory.steps):
        if before or (number == 0 and trajectory.goal):
            # Length first: no goal that ends in an observation's words is another goal with a shorter one.
            text = f"{len(trajectory.goal)} {trajectory.goal}{before}"
            keys.append(sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
        else:
            keys.append("")
        before = step.observation
    return keys


def step_returns(outcome: float, steps: int, discount: float) -> Floats:
    """Discounted returns of a trajectory that is rewarded at its end: `discount ** (K - 1 - t) * outcome`, `(K,)`."""
    return outcome * discount ** np.arange(steps - 1, -1, -1, dtype=np.float64)


def anchor_advantages(
    keys: Sequence[Sequence[str]], returns: Sequence[Floats], scale: Literal["std", "none"]
) -> list[Floats]:
    """Returns standardised among the steps with the same key; 0 for a step that is alone, or among equals.

    A state that one trajectory comes back to counts as often as it was there, as in the paper.

    Args:
        keys: per trajectory `(K_i,)`, from `anchor_keys`.
        returns: per trajectory `(K_i,)`.
        scale: `std` divides by the population deviation, `none` only centres (the paper's F_norm).

    Returns:
        Per trajectory `(K_i,)`.
    """
    met: dict[str, list[tuple[int, int]]] = {}
    for i, own in enumerate(keys):
        for t, key in enumerate(own):
            if key:
                met.setdefault(key, []).append((i, t))
    out = [np.zeros(len(own), dtype=np.float64) for own in keys]
    for places in met.values():
        values = np.array([returns[i][t] for i, t in places], dtype=np.float64)
        spread = float(values.std())
        if len(places) < 2 or spread <= EPSILON:
            continue
        centred = (values - values.mean()) / (spread if scale == "std" else 1.0)
        for (i, t), value in zip(places, centred, strict=True):
            out[i][t] = value
    return out
