"""Our policy loss beside verl's own, `verl.trainer.ppo.core_algos`, on random padded batches.

verl's function takes clip ranges per token if both bounds are tensors of the batch's shape; nothing of it is changed.
"""

from types import SimpleNamespace
from typing import NamedTuple

import torch

from learner.loss import DUAL_CLIP, policy_loss

SCALES = (0.05, 0.5, 3.0)
"""Standard deviation of the log-ratio: hardly a token clipped, many, and nearly all, up to the dual clip."""
SEEDS = range(6)
KL_COEF = 0.01


class Case(NamedTuple):
    """Tensors `(B, T)`; a row may be masked throughout."""

    old: torch.Tensor
    new: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    clip_low: torch.Tensor
    clip_high: torch.Tensor
    reference: torch.Tensor | None


def case(seed: int, scale: float) -> Case:
    """Advantages of both signs, holes in the mask, two clip ranges; a penalty in two of three cases."""
    g = torch.Generator().manual_seed(1000 * seed + int(100 * scale))
    b, t = 5, 17
    old = -3 * torch.rand(b, t, generator=g)
    mask = torch.rand(b, t, generator=g) > 0.3
    mask[4] = False
    return Case(
        old=old,
        new=old + scale * torch.randn(b, t, generator=g),
        advantages=torch.randn(b, t, generator=g),
        mask=mask,
        clip_low=torch.where(torch.rand(b, t, generator=g) > 0.5, 0.2, 0.1),
        clip_high=torch.where(torch.rand(b, t, generator=g) > 0.5, 0.6, 0.28),
        reference=old + scale * torch.randn(b, t, generator=g) if seed % 3 != 1 else None,
    )


class _Config(SimpleNamespace):
    def get(self, name, default=None):
        return getattr(self, name, default)


def verls(given: Case) -> tuple[torch.Tensor, torch.Tensor]:
    from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_vanilla, kl_penalty

    new = given.new.clone().requires_grad_()
    config = _Config(
        clip_ratio=0.2, clip_ratio_low=given.clip_low, clip_ratio_high=given.clip_high, clip_ratio_c=DUAL_CLIP,
        global_batch_info={},
    )  # fmt: skip
    loss, _ = compute_policy_loss_vanilla(given.old, new, given.advantages, given.mask, "token-mean", config)
    if given.reference is not None:
        loss = loss + KL_COEF * agg_loss(kl_penalty(new, given.reference, "low_var_kl"), given.mask, "token-mean")
    loss.backward()
    return loss.detach(), new.grad


def ours(given: Case) -> tuple[torch.Tensor, torch.Tensor]:
    new = given.new.clone().requires_grad_()
    on = given.mask
    share = torch.full((int(on.sum()),), 1 / int(on.sum()))
    result = policy_loss(
        new[on],
        given.old[on],
        given.advantages[on],
        given.clip_low[on],
        given.clip_high[on],
        share=share,
        kl_coef=KL_COEF,
        guided=torch.zeros(len(share), dtype=torch.bool),
        reference=None if given.reference is None else given.reference[on],
    )
    result.loss.backward()
    return result.loss.detach(), new.grad


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference, relative where the values are above 1."""
    return float(((one - other).abs() / other.abs().clamp(min=1)).max())
