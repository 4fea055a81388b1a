"""The policy loss: one pure function of tensors, the same for every trainer.

Dual-clip PPO with clip bounds per token, and a k3 penalty towards a reference. Each token of a mini-batch has the same
share of the loss, which is `sum(per_token * share)`, so micro-batches and ranks, however cut, add up to one big batch.

Sources: PPO (arXiv 1707.06347), dual clip (arXiv 1912.09729), asymmetric clip and token-mean (DAPO, arXiv 2503.14476),
k3 (Schulman, "Approximating KL divergence").
"""

from typing import NamedTuple

import torch
from torch import Tensor

DUAL_CLIP = 3.0
"""With a negative advantage the ratio counts no higher than this: the paper's."""
LOG_RATIO_LIMIT = 20.0
"""exp of more than this overflows in half precision; verl clamps at the same value."""
KL_LIMIT = 10.0
"""A token's k3 penalty is cut here, as in verl's `low_var_kl`."""


class LossResult(NamedTuple):
    """Loss and statistics of one micro-batch; all sums are detached scalars that add up over micro-batches."""

    loss: Tensor
    """Scalar: the micro-batch's part of the mini-batch's loss, to call `backward` on."""
    sums: dict[str, Tensor]
    """`policy`, `kl_reference`, `kl_old` (k3 of the old policy to this one), `ratio`, `surprise` (-log-prob), and apart
    for plain and guided tokens `clipped_*` and `tokens_*`."""
    ratio_max: Tensor
    """Scalar, detached; 0 without tokens."""


def log_ratio_kl(log_ratio: Tensor) -> Tensor:
    """k3 estimate of KL(sampler || other) per token, with `log_ratio` = other - sampler on the sampler's tokens."""
    return log_ratio.exp() - log_ratio - 1


def effective_size(weights: Tensor) -> float:
    """Effective sample size of importance weights, `(sum w)^2 / sum w^2`, in tokens: `len(weights)` if all are equal.

    0 without tokens or if all weights are 0.

    Source: Kong (1992), as in verl's rollout correction, there as a share.
    """
    squares = float((weights.double() ** 2).sum())
    return float(weights.double().sum()) ** 2 / squares if squares > 0 else 0.0


def effective_shares(weights: Tensor, guided: Tensor) -> dict[str, float]:
    """Effective sample size per token, 0 to 1, of `plain` and `guided` tokens apart, as far as there are any: in all a
    batch's plain tokens can hide that its guided ones are noise."""
    led = guided.bool()
    kinds = {"plain": weights[~led], "guided": weights[led]}
    return {name: effective_size(own) / own.numel() for name, own in kinds.items() if own.numel()}


def policy_loss(
    log_probs: Tensor,
    old: Tensor,
    advantages: Tensor,
    clip_low: Tensor,
    clip_high: Tensor,
    *,
    share: Tensor,
    kl_coef: float,
    guided: Tensor,
    reference: Tensor | None = None,
) -> LossResult:
    """Loss of one micro-batch's r trained tokens. All tensors are `(r,)`; `log_probs` carries the gradient, `old` is of
    the policy that the ratio is taken to, `share` is each token's in the loss of the whole mini-batch, and `kl_coef`
    weighs the k3 penalty towards `reference`. `guided` only tells statistics apart."""
    log_ratio = (log_probs - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    plain = -advantages * ratio
    clipped = -advantages * torch.minimum(torch.maximum(ratio, 1 - clip_low), 1 + clip_high)
    worse = torch.maximum(plain, clipped)
    bounded = torch.minimum(-advantages * DUAL_CLIP, worse)
    per_token = torch.where(advantages < 0, bounded, worse)
    share = share.to(per_token.dtype)
    policy = per_token.sum()
    loss = (per_token * share).sum()
    penalty = torch.zeros_like(log_probs).sum()
    if reference is not None and kl_coef > 0:
        towards = (reference - log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        each = log_ratio_kl(towards).clamp(max=KL_LIMIT)
        penalty = each.sum()
        loss = loss + kl_coef * (each * share).sum()

    with torch.no_grad():
        cut = clipped > plain
        sums = {
            "policy": policy.detach(),
            "kl_reference": penalty.detach(),
            "kl_old": log_ratio_kl(log_ratio).sum(),
            "ratio": ratio.sum(),
            "surprise": -log_probs.sum(),
            "clipped_plain": (cut & ~guided).sum(),
            "clipped_guided": (cut & guided).sum(),
            "tokens_plain": (~guided).sum(),
            "tokens_guided": guided.sum(),
        }
        largest = ratio.max() if ratio.numel() else ratio.sum()
    return LossResult(loss, sums, largest.detach())
