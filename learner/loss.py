"""The policy loss: one pure function of tensors, the same for every trainer.

Dual-clip PPO with clip bounds per token, or a mask of tokens whose probability moved too far, a k3 penalty towards a
reference, and optional importance weights. How tokens become one number is decided before: `token_shares` gives
each token of a mini-batch its share, the loss is `sum(per_token * share)`, so micro-batches and ranks, however cut, add
up to one big batch.

Sources: PPO (arXiv 1707.06347), dual clip (arXiv 1912.09729), asymmetric clip and token-mean (DAPO, arXiv 2503.14476),
k3 (Schulman, "Approximating KL divergence"), aggregations as in verl's `agg_loss`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learner.settings import Aggregation

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
    token_limit: float = 0.0
    """How far a token's probability may have moved the way that its advantage pulls, see `within_limit`. It takes the
    place of the clip, which stops nearly all of those tokens anyway. 0: the clip."""


class LossResult(NamedTuple):
    """Loss and statistics of one micro-batch; all sums are detached scalars that add up over micro-batches."""

    loss: Tensor
    """Scalar: the micro-batch's part of the mini-batch's loss, to call `backward` on."""
    sums: dict[str, Tensor]
    """`policy`, `kl_reference`, `kl_old` (k3 of the old policy to this one), `ratio`, `surprise` (-log-prob), and apart
    for plain and guided tokens `clipped_*`, `masked_*` and `tokens_*`."""
    ratio_max: Tensor
    """Scalar, detached; 0 without tokens."""


def log_ratio_kl(log_ratio: Tensor) -> Tensor:
    """k3 estimate of KL(sampler || other) per token, with `log_ratio` = other - sampler on the sampler's tokens."""
    return log_ratio.exp() - log_ratio - 1


def truncated_weights(proximal: Tensor, behaviour: Tensor, limit: float) -> Tensor:
    """Importance weights exp(proximal - behaviour), cut at `limit`; same shape as both."""
    return (proximal - behaviour).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(max=limit)


def icepop_weights(proximal: Tensor, behaviour: Tensor, low: float, high: float) -> Tensor:
    """Importance weights exp(proximal - behaviour) where within `[low, high]`, 0 elsewhere; same shape as both.

    A token outside has no gradient at all, where truncation would give it the largest weight of all.

    Source: IcePop (Ring-1T, arXiv 2510.18855), masking on both sides.
    """
    weights = (proximal - behaviour).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return torch.where((weights >= low) & (weights <= high), weights, torch.zeros_like(weights))


def within_limit(log_probs: Tensor, sampled: Tensor, advantages: Tensor, limit: float) -> Tensor:
    """Whether each token may still be pulled the way that its advantage pulls; same shape as all three.

    With pi the policy under training and b the one that sampled: pi - b <= limit where A > 0, b - pi <= limit where
    A < 0. That is the total variation between the two if all other tokens are taken together as one. A ratio's clip
    stops rare tokens early and frequent ones late; this stops both at the same loss of probability.

    Source: DPPO (arXiv 2602.04879), its mask with the binary total variation; prime-rl's IPO is the same rule.
    """
    moved = (log_probs.detach().exp() - sampled.exp()) * advantages.sign()
    return moved <= limit


def accepted_rows(proximal: Tensor, behaviour: Tensor, row: Tensor, rows: int, low: float, high: float) -> Tensor:
    """Sequence-level rejection: whether the geometric mean of a row's ratios lies within `[low, high]`.

    The mean over tokens, not the product, so that a long row is not rejected for its length. A row without tokens has
    ratio 1, one with a log-prob that is not finite is rejected.

    Source: geometric sequence masking, `seq_mean_k1` of verl's rollout correction.

    Args:
        proximal: `(R,)` log-probs of the policy before the update, nats.
        behaviour: `(R,)` of the policy that sampled.
        row: `(R,)` int64, row of each token.
        rows: number of rows, B.
        low: smallest mean ratio that is kept.
        high: largest.

    Returns:
        `(B,)` bool; `[row]` of it is the tokens' mask. Rows that are masked should not count in `token_shares`.
    """
    sums = torch.zeros(rows, dtype=torch.float64, device=row.device)
    counts = torch.zeros_like(sums)
    sums.index_add_(0, row, (proximal - behaviour).double())
    counts.index_add_(0, row, torch.ones_like(row, dtype=torch.float64))
    mean = (sums / counts.clamp(min=1)).exp()
    return (mean >= low) & (mean <= high)


def effective_size(weights: Tensor) -> float:
    """Effective sample size of importance weights, `(sum w)^2 / sum w^2`, in tokens: `len(weights)` if all are equal.

    0 without tokens or if all weights are 0.

    Source: Kong (1992), as in verl's rollout correction, there as a share.
    """
    squares = float((weights.double() ** 2).sum())
    return float(weights.double().sum()) ** 2 / squares if squares > 0 else 0.0


def effective_shares(weights: Tensor, guided: Tensor) -> dict[str, float]:
    """Effective sample size per token, apart: in all a batch's plain tokens can hide that its guided ones are noise.

    Args:
        weights: `(R,)` importance weights.
        guided: `(R,)` true on tokens of guided rows.

    Returns:
        `plain` and `guided`, each 0 to 1; without an entry for a kind that has no tokens.
    """
    led = guided.bool()
    kinds = {"plain": weights[~led], "guided": weights[led]}
    return {name: effective_size(own) / own.numel() for name, own in kinds.items() if own.numel()}


def token_shares(
    counts: npt.NDArray[np.int64] | Sequence[int] | Tensor,
    aggregation: Aggregation,
    *,
    row_weights: npt.NDArray[np.float64] | Sequence[float] | Tensor | None = None,
    norm: float = 1.0,
) -> Tensor:
    """Share of each trained token in a mini-batch's loss, which is `sum(per_token * share)`.

    With n_b tokens in row b, R in all, sequence weights w_b and S = the sum of w_b over rows that have tokens:

        token-mean              1 / R
        token-sum               1
        seq-mean-token-sum      1 / S
        seq-mean-token-mean     w_b / (S n_b)
        seq-mean-token-sum-norm 1 / (S norm)

    A row is a sequence (w_b = 1) as in verl, unless `row_weights` says what part of a trajectory it is: then rows that
    one trajectory was split into count as one sequence. Rows without tokens do not count.

    Source: `agg_loss` of verl 0.9.1; token-mean is DAPO's (arXiv 2503.14476), seq-mean-token-mean GRPO's (arXiv
    2402.03300), seq-mean-token-sum-norm Dr. GRPO's (arXiv 2503.20783).

    Args:
        counts: `(B,)` trained tokens of each row of the whole mini-batch, every micro-batch and rank.
        aggregation: see the table.
        row_weights: `(B,)`, `TrajectoryBatch.row_weights` of these rows; None for 1.
        norm: tokens, the constant of `seq-mean-token-sum-norm`. verl takes the width of the padded micro-batch if told
            nothing, which changes with the neighbours.

    Returns:
        `(R,)` float64 on the CPU, row by row; empty without tokens.
    """
    n = torch.as_tensor(counts, dtype=torch.float64)
    weight = torch.ones_like(n) if row_weights is None else torch.as_tensor(row_weights, dtype=torch.float64)
    sequences = weight[n > 0].sum()
    if aggregation == "token-mean":
        share = torch.ones_like(n) / n.sum()
    elif aggregation == "token-sum":
        share = torch.ones_like(n)
    elif aggregation == "seq-mean-token-mean":
        share = weight / (sequences * n.clamp(min=1))
    elif aggregation == "seq-mean-token-sum":
        share = torch.ones_like(n) / sequences
    else:
        share = torch.ones_like(n) / (sequences * norm)
    return share.repeat_interleave(n.long())


def policy_loss(
    log_probs: Tensor,
    old: Tensor,
    advantages: Tensor,
    clip_low: Tensor,
    clip_high: Tensor,
    *,
    share: Tensor,
    settings: LossSettings,
    guided: Tensor | None = None,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    reference: Tensor | None = None,
    sampled: Tensor | None = None,
) -> LossResult:
    """Loss of one micro-batch. All tensors share one shape, `(R,)` packed or `(B, T)` padded with a mask.

    Args:
        log_probs: of the policy under training, nats; carries the gradient.
        old: of the policy that the ratio is taken to.
        advantages: per token.
        clip_low: the ratio is clipped at 1 - clip_low.
        clip_high: the ratio is clipped at 1 + clip_high.
        share: of each token in the loss of the whole mini-batch, from `token_shares`; finite on every token.
        settings: see `LossSettings`.
        guided: true on tokens of guided rows; only statistics depend on it.
        mask: true on trained tokens; None for all.
        weights: importance weights, without gradient; None for 1.
        reference: log-probs of the reference policy; None for no penalty.
        sampled: of the policy that `settings.token_limit` counts from; None for `old`.
    """
    on = torch.ones_like(log_probs, dtype=torch.bool) if mask is None else mask.bool()
    zero = torch.zeros_like(log_probs)
    log_ratio = torch.where(on, log_probs - old, zero).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    plain = -advantages * ratio
    clipped = -advantages * torch.minimum(torch.maximum(ratio, 1 - clip_low), 1 + clip_high)
    worse = plain if settings.token_limit > 0 else torch.maximum(plain, clipped)
    bounded = torch.minimum(-advantages * settings.dual_clip, worse)
    per_token = torch.where(advantages < 0, bounded, worse)
    if weights is not None:
        per_token = per_token * weights
    pulled = on
    if settings.token_limit > 0:
        pulled = on & within_limit(log_probs, old if sampled is None else sampled, advantages, settings.token_limit)
    per_token = torch.where(pulled, per_token, zero)
    share = share.to(per_token.dtype)
    policy = per_token.sum()
    loss = (per_token * share).sum()
    penalty = zero.sum()
    if reference is not None and settings.kl_coef > 0:
        towards = torch.where(on, reference - log_probs, zero).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        each = log_ratio_kl(towards).clamp(max=KL_LIMIT)
        penalty = each.sum()
        loss = loss + settings.kl_coef * (each * share).sum()

    with torch.no_grad():
        cut = on & (clipped > plain) & (settings.token_limit == 0)
        out = on & ~pulled
        led = torch.zeros_like(on) if guided is None else guided.bool() & on
        sums = {
            "policy": policy.detach(),
            "kl_reference": penalty.detach(),
            "kl_old": log_ratio_kl(log_ratio).sum(),
            "ratio": torch.where(on, ratio, zero).sum(),
            "surprise": torch.where(on, -log_probs, zero).sum(),
            "clipped_plain": (cut & ~led).sum(),
            "clipped_guided": (cut & led).sum(),
            "masked_plain": (out & ~led).sum(),
            "masked_guided": (out & led).sum(),
            "tokens_plain": (on & ~led).sum(),
            "tokens_guided": led.sum(),
        }
        largest = torch.where(on, ratio, zero).max() if ratio.numel() else zero.sum()
    return LossResult(loss, sums, largest.detach())
