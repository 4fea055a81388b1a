"""What an update's ratio is taken to, and which batches are not worth it.

Shared by all trainers, before the first step: the ratio is taken to the recorded log-probs, but for guided rows to
log-probs recomputed in the context that the lesson was cut out of: the recorded ones were measured to erase the lesson.
The result stands in `Columns`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learner.batch import TrajectoryBatch
from learner.errors import BatchRefused
from learner.loss import LOG_RATIO_LIMIT, effective_shares, log_ratio_kl
from learner.trainers.micro import Ints, Layout

FREE = 0.05
"""Nats that a grammar may have added to a token's log-prob for it to count as sampled from the weights: at most a
twentieth of the probability was masked. More than half precision's rounding, less than what a ratio is clipped at."""
LEAST_EFFECTIVE = 0.05
"""A batch whose effective sample size, by the ratios that it begins with, is below this part of its tokens is mostly
noise and refused."""
LARGEST_RATIO = 2.0
"""Ratios are cut here before that size is taken, so that a single token cannot condemn a batch."""


class Columns:
    """A batch's trained tokens as tensors on the device, `(R,)` each."""

    def __init__(self, batch: TrajectoryBatch, layout: Layout, device: torch.device) -> None:
        on = batch.mask.astype(bool)

        def column(values: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        self._layout, self._device = layout, device
        self.behaviour = column(batch.behaviour[on])
        """Of the policy that sampled."""
        self.old = self.behaviour
        """What the ratio is taken to; of guided tokens recomputed, in the context that they are trained in."""
        self.advantages = column(batch.advantages[on])
        self.clip_low = column(batch.clip_low[on])
        self.clip_high = column(batch.clip_high[on])
        self.guided = column(batch.guided[layout.row] > 0)
        self.grammar = column(_grammar(batch)[layout.row])
        """Of calls that a grammar masked; where it bound is to be found out."""
        self.bound: Tensor | None = None
        """Tokens that a grammar chose rather than the weights: they have no gradient. None for none."""

    def of(self, rows: Ints) -> Tensor:
        """Indices of the trained tokens of `rows`."""
        return torch.from_numpy(self._layout.columns(rows)).to(self._device)


def _grammar(batch: TrajectoryBatch) -> npt.NDArray[np.bool_]:
    """`(B,)`."""
    if not batch.processing:
        return np.zeros(batch.rows, np.bool_)
    return np.array([one.grammar for one in batch.processing], np.bool_)


def check(batch: TrajectoryBatch, layout: Layout, *, vocabulary: int, max_tokens: int) -> None:
    """Whether the model can compute the batch at all. Raises BatchRefused: `vocabulary`, `too_long` or
    `nonfinite_log_probs`."""
    if len(batch.ids) and int(batch.ids.max()) >= vocabulary:
        raise BatchRefused(
            f"token id {int(batch.ids.max())} is outside of the vocabulary of {vocabulary}", reason="vocabulary"
        )
    longest = int(layout.inputs.max(initial=0)) + 1
    if longest > max_tokens:
        raise BatchRefused(f"a row of {longest} tokens, the model takes {max_tokens}", reason="too_long")
    strange = int((~np.isfinite(batch.behaviour[batch.mask > 0])).sum())
    if strange:
        raise BatchRefused(f"{strange} recorded log-probs are not finite", reason="nonfinite_log_probs")


def prepare(columns: Columns, layout: Layout, score: Callable[[Ints], Tensor]) -> dict[str, float]:
    """Put old log-probs in place; what is to be told. `score` is called once at most, so on several ranks it may be a
    collective.

    BatchRefused: `nonfinite_log_probs`, the present weights make some.
    """
    wanted = _grammar(layout.batch) | (layout.batch.guided > 0)
    scored, metrics = layout.trained[wanted[layout.trained]], dict[str, float]()
    if not len(scored):
        return metrics
    at, now = columns.of(scored), columns.behaviour.clone()
    now[at] = score(scored)
    if not bool(torch.isfinite(now).all()):
        raise BatchRefused("the present weights give log-probs that are not finite", reason="nonfinite_log_probs")
    if bool(columns.grammar.any()):
        # Masked log-probs are above those of the whole softmax by what the mask took away. That is a matter of the
        # context, not of the token: where it took something, what came of it counts as the world's doing.
        bound = columns.grammar & (columns.behaviour - now > FREE)
        columns.bound = bound
        columns.behaviour = torch.where(bound, now, columns.behaviour)
        metrics["grammar_tokens"] = float(columns.grammar.sum())
        metrics["grammar_bound"] = float(bound.sum())
    if bool(columns.guided[at].any()):
        # How far the stripped context is from the one that was sampled in: what a plain ratio would have to bridge.
        metrics["guided_log_ratio"] = float((now - columns.behaviour)[columns.guided].mean())
    columns.old = torch.where(columns.guided, now, columns.behaviour)
    return metrics


def judge(columns: Columns, at: Tensor, now: Tensor) -> dict[str, float]:
    """Refuse tokens that would mostly be noise (`mostly_noise`), before the first step; `now` `(R,)` is read at `at`
    `(r,)`.

    A plain token counts with its ratio to the policy that sampled, cut at `LARGEST_RATIO`, a guided one with 1. Told
    are the effective sample size per token in all and apart, that of guided ones by the ratio to the recorded policy:
    what such a ratio would leave of the lessons; and the k3 of the policy that sampled to this one before the update.
    """
    at = at[torch.isfinite(now[at])]
    if not len(at):
        return {}
    guided = columns.guided[at]
    log_ratio = (now - columns.behaviour)[at].clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    recorded = log_ratio.exp().clamp(max=LARGEST_RATIO)
    shares = effective_shares(recorded, guided)
    counted = {"plain": int((~guided).sum()) * shares.get("plain", 0.0), "guided": float(guided.sum())}
    whole = sum(counted.values()) / len(at)
    if whole < LEAST_EFFECTIVE:
        raise BatchRefused(
            f"mostly noise: {len(at)} tokens have an effective sample size of {whole * len(at):.1f}, "
            f"{LEAST_EFFECTIVE:g} of them is the least",
            reason="mostly_noise",
        )
    apart = log_ratio_kl(log_ratio)
    kl = {
        name: float(apart[own].mean())
        for name, own in (("kl_behaviour", ~guided), ("kl_behaviour_guided", guided))
        if bool(own.any())
    }
    return {"effective_share": whole} | {f"effective_share_{kind}": share for kind, share in shares.items()} | kl
