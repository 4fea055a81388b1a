"""Figures of an update out of the loss' sums: what an `UpdateReport` tells, the same from every trainer."""

import torch
from torch import Tensor

from learner.loss import LossResult


class Sums:
    """The loss' statistics, added up over micro-batches on the device; nothing waits for it before the end."""

    def __init__(self, device: torch.device) -> None:
        self.sums: dict[str, Tensor] = {}
        self.ratio_max = torch.zeros((), device=device)

    def add(self, result: LossResult) -> None:
        """Take over one micro-batch's."""
        for name, value in result.sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.ratio_max = torch.maximum(self.ratio_max, result.ratio_max)


def figures(totals: Sums, kl_coef: float) -> dict[str, float]:
    """Means per token; empty without any."""
    if not totals.sums:
        return {}
    sums = {name: float(value) for name, value in totals.sums.items()}
    plain, guided = sums["tokens_plain"], sums["tokens_guided"]
    n = max(1.0, plain + guided)
    return {
        "loss": (sums["policy"] + kl_coef * sums["kl_reference"]) / n,
        "kl_reference": sums["kl_reference"] / n,
        "kl_old": sums["kl_old"] / n,
        "ratio_mean": sums["ratio"] / n,
        "ratio_max": float(totals.ratio_max),
        "surprise": sums["surprise"] / n,
        "clipped": sums["clipped_plain"] / max(1.0, plain),
        "clipped_guided": sums["clipped_guided"] / max(1.0, guided),
        "masked": sums["masked_plain"] / max(1.0, plain),
        "masked_guided": sums["masked_guided"] / max(1.0, guided),
        "tokens": plain + guided,
        "tokens_guided": guided,
    }
