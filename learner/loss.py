"""The policy loss: one pure function of tensors, the same for every trainer.

Dual-clip PPO with clip bounds per token, a k3 penalty towards a reference, optional truncated importance weights,
summed over tokens and divided by the tokens of the whole update (token-mean): micro-batches add up to one big batch.

Sources: PPO (arXiv 1707.06347), dual clip (arXiv 1912.09729), asymmetric clip and token-mean (DAPO, arXiv 2503.14476),
k3 (Schulman, "Approximating KL divergence"), truncated weights (TIS, as in verl's rollout correction).
"""

from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""exp of more than this overflows in half precision; verl clamps at the same value."""
KL_LIMIT = 10.0
"""A token's k3 penalty is cut here, as in verl's `low_var_kl`."""


class LossSettings(NamedTuple):
    """Hyper-parameters of the loss."""

    dual_clip: float = 3.0
    """With a negative advantage the ratio counts no higher than this."""
    kl_coef: float = 0.001
    """Weight of the k3 penalty; without reference log-probs it is 0."""


class LossResult(NamedTuple):
    """Loss and statistics of one micro-batch; all sums are detached scalars that add up over micro-batches."""

    loss: Tensor
    """Scalar: the micro-batch's share of the token-mean, to call `backward` on."""
    sums: dict[str, Tensor]
    """`policy`, `kl_reference`, `kl_old` (k3 of the old policy to this one), `ratio`, `surprise` (-log-prob), and apart
    for plain and guided tokens `clipped_*` and `tokens_*`."""
    ratio_max: Tensor
    """Scalar, detached; 0 without tokens."""


def log_ratio_kl(log_ratio: Tensor) -> Tensor:
    """k3 estimate of KL(sampler || other) per token, with `log_ratio` = other - sampler on the sampler's tokens."""
    return log_ratio.exp() - log_ratio - 1


def truncated_weights(proximal: Tensor, behaviour: Tensor, limit: float) -> Tensor:
    """Importance weights exp(proximal - behaviour), cut at `limit`; same shape as both."""
    return (proximal - behaviour).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(max=limit)


def policy_loss(
    log_probs: Tensor,
    old: Tensor,
    advantages: Tensor,
    clip_low: Tensor,
    clip_high: Tensor,
    *,
    total_tokens: float,
    settings: LossSettings,
    guided: Tensor | None = None,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    reference: Tensor | None = None,
) -> LossResult:
    """Loss of one micro-batch. All tensors share one shape, `(R,)` packed or `(B, T)` padded with a mask.

    Args:
        log_probs: of the policy under training, nats; carries the gradient.
        old: of the policy that the ratio is taken to.
        advantages: per token.
        clip_low: the ratio is clipped at 1 - clip_low.
        clip_high: the ratio is clipped at 1 + clip_high.
        total_tokens: trained tokens of the whole update, all micro-batches.
        settings: see `LossSettings`.
        guided: true on tokens of guided rows; only statistics depend on it.
        mask: true on trained tokens; None for all.
        weights: importance weights, without gradient; None for 1.
        reference: log-probs of the reference policy; None for no penalty.
    """
    on = torch.ones_like(log_probs, dtype=torch.bool) if mask is None else mask.bool()
    zero = torch.zeros_like(log_probs)
    log_ratio = torch.where(on, log_probs - old, zero).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    plain = -advantages * ratio
    clipped = -advantages * torch.minimum(torch.maximum(ratio, 1 - clip_low), 1 + clip_high)
    worse = torch.maximum(plain, clipped)
    bounded = torch.minimum(-advantages * settings.dual_clip, worse)
    per_token = torch.where(advantages < 0, bounded, worse)
    if weights is not None:
        per_token = per_token * weights
    policy = torch.where(on, per_token, zero).sum()
    loss = policy / total_tokens
    penalty = zero.sum()
    if reference is not None and settings.kl_coef > 0:
        towards = torch.where(on, reference - log_probs, zero).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        penalty = log_ratio_kl(towards).clamp(max=KL_LIMIT).sum()
        loss = loss + settings.kl_coef * penalty / total_tokens

    with torch.no_grad():
        cut = on & (clipped > plain)
        led = torch.zeros_like(on) if guided is None else guided.bool() & on
        sums = {
            "policy": policy.detach(),
            "kl_reference": penalty.detach(),
            "kl_old": log_ratio_kl(log_ratio).sum(),
            "ratio": torch.where(on, ratio, zero).sum(),
            "surprise": torch.where(on, -log_probs, zero).sum(),
            "clipped_plain": (cut & ~led).sum(),
            "clipped_guided": (cut & led).sum(),
            "tokens_plain": (on & ~led).sum(),
            "tokens_guided": led.sum(),
        }
        largest = torch.where(on, ratio, zero).max() if ratio.numel() else zero.sum()
    return LossResult(loss, sums, largest.detach())
