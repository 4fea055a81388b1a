"""`Rewarming`: the learning rate of an optimizer whose moments were lost, small at first.

A fresh Adam divides the first gradients by their own size: each weight moves by a full learning rate, whatever the
gradient says. A few short steps let the moments form first.
"""

import torch
from torch import Tensor

STEPS = 8
"""Optimizer steps until the full learning rate, which rises linearly: two updates of the default four mini-batches."""
LEFT = "rewarming_left"
"""Name of the steps that are left, beside the moments in their file."""


class Rewarming:
    """How far it is."""

    def __init__(self) -> None:
        self._left = 0

    def start(self, left: int) -> None:
        """So many steps are short: `STEPS` of an optimizer that lost its moments, 0 of any other."""
        self._left = left

    def prepare(self, optimizer: torch.optim.Optimizer, lr: float) -> None:
        """Give `optimizer` the learning rate of its next step, where `lr` is the full one."""
        share = (STEPS - self._left + 1) / STEPS if self._left else 1.0
        for group in optimizer.param_groups:
            group["lr"] = lr * share

    def stepped(self) -> None:
        """The optimizer took it."""
        self._left = max(0, self._left - 1)

    def state(self) -> dict[str, Tensor]:
        """What a restart needs, by name; nothing once it is over."""
        return {LEFT: torch.tensor(float(self._left))} if self._left else {}
