"""What an update's ratio is taken to, how much each token weighs, and which rows are not worth it.

Shared by all trainers, before the first step: recorded log-probs are there; where recomputed ones are wanted, the
trainer is asked for them once. The result stands in `Columns`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learner.batch import TrajectoryBatch
from learner.errors import BatchRefused
from learner.loss import (
    LOG_RATIO_LIMIT,
    accepted_rows,
    effective_shares,
    icepop_weights,
    log_ratio_kl,
    truncated_weights,
)
from learner.settings import LearnerSettings
from learner.trainers.micro import Ints, Layout

FREE = 0.05
"""Nats that a grammar may have added to a token's log-prob for it to count as sampled from the weights: at most a
twentieth of the probability was masked. More than half precision's rounding, less than what a ratio is clipped at."""


class Columns:
    """A batch's trained tokens as tensors on the device, `(R,)` each."""

    def __init__(self, batch: TrajectoryBatch, layout: Layout, device: torch.device) -> None:
        on = batch.mask.astype(bool)

        def column(values: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        self._layout, self._device = layout, device
        self.behaviour = column(batch.behaviour[on])
        """Of the policy that sampled."""
        self.old = self.behaviour.clone()
        """Of the policy that the ratio is taken to."""
        self.sampled = self.behaviour
        """Of the policy that sampled; of guided tokens that are recomputed, in the context that they are trained in."""
        self.advantages = column(batch.advantages[on])
        self.clip_low = column(batch.clip_low[on])
        self.clip_high = column(batch.clip_high[on])
        self.guided = column(batch.guided[layout.row] > 0)
        self.weights: Tensor | None = None
        """Importance weights; None for 1."""
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
    """Whether the model can compute the batch at all.

    Raises:
        BatchRefused: `vocabulary`, `too_long` or `nonfinite_log_probs`.
    """
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


def prepare(
    columns: Columns, layout: Layout, settings: LearnerSettings, score: Callable[[Ints], Tensor]
) -> tuple[Ints, dict[str, float]]:
    """Put old log-probs and importance weights in place.

    Args:
        columns: of the whole batch; changed.
        layout: of the same batch.
        settings: which old policy, which weights, which limits.
        score: log-probs under the present weights of the trained tokens of the given rows, row by row. Called once at
            most, so on several ranks it may be a collective.

    Returns:
        Rows to train on, ascending, and what is to be told.

    Raises:
        BatchRefused: `rejected`, no row is within the sequence limits; `nonfinite_log_probs`, the present weights make
            some; or as `judge` does.
    """
    every, metrics = layout.trained, dict[str, float]()
    guided = columns.guided if settings.guided == "recomputed" else torch.zeros_like(columns.guided)
    limited = settings.sequence_low > 0 or settings.sequence_high > 0
    proximal = settings.old_policy == "proximal"
    wanted = _grammar(layout.batch)
    if settings.guided == "recomputed":
        wanted |= layout.batch.guided > 0
    scored = every if proximal or limited else every[wanted[every]]
    if not len(scored):
        return every, metrics
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
    columns.sampled = torch.where(guided, now, columns.behaviour)
    columns.old = now if proximal else columns.sampled

    rows = every
    if limited:
        row = torch.from_numpy(layout.row).to(now.device)
        judged = torch.where(guided, columns.behaviour, now)
        high = settings.sequence_high or float("inf")
        within = accepted_rows(judged, columns.behaviour, row, layout.batch.rows, settings.sequence_low, high)
        rows = every[within.cpu().numpy()[every]]
        metrics["rows_rejected"] = float(len(every) - len(rows))
        metrics["tokens_rejected"] = float(layout.tokens(every) - layout.tokens(rows))
        if not len(rows):
            raise BatchRefused(f"all {len(every)} rows are outside of the sequence limits", reason="rejected")
    if proximal:
        if settings.importance != "none":
            found = (
                truncated_weights(now, columns.behaviour, settings.truncate)
                if settings.importance == "truncated"
                else icepop_weights(now, columns.behaviour, settings.icepop_low, settings.icepop_high)
            )
            columns.weights = torch.where(guided, torch.ones_like(found), found)
        metrics |= judge(columns, columns.of(rows), now, settings)
    return rows, metrics


def judge(columns: Columns, at: Tensor, now: Tensor, settings: LearnerSettings) -> dict[str, float]:
    """Refuse tokens that would mostly be noise, before the first step.

    A token counts with its importance weight; without weights, with its ratio to the policy that sampled, cut at
    `truncate`, so that a single token cannot condemn a batch; with 1 if it is guided and recomputed.

    Args:
        columns: of the batch, with old log-probs and weights in place.
        at: `(r,)` the tokens to look at.
        now: `(R,)` log-probs before the update; only those `at` are read.
        settings: `min_effective_share`, `truncate`.

    Returns:
        `effective_share`, effective sample size per token, both kinds' sizes together; and apart
        `effective_share_plain` and `effective_share_guided`, which is always that of the ratio to the recorded policy,
        so that it tells what such a ratio would leave of the lessons. 0 to 1. And
        `kl_behaviour` and `kl_behaviour_guided`: k3 of the policy that sampled to this one before the update, nats a
        token.

    Raises:
        BatchRefused: `mostly_noise`.
    """
    at = at[torch.isfinite(now[at])]
    if not len(at):
        return {}
    guided = columns.guided[at]
    recorded = truncated_weights(now[at], columns.behaviour[at], settings.truncate)
    if columns.weights is not None:
        weights = columns.weights[at]
    elif settings.guided == "recomputed":
        weights = torch.where(guided, torch.ones_like(recorded), recorded)
    else:
        weights = recorded
    sizes = {"plain": int((~guided).sum()), "guided": int(guided.sum())}
    whole = sum(share * sizes[kind] for kind, share in effective_shares(weights, guided).items()) / len(at)
    if whole < settings.min_effective_share:
        raise BatchRefused(
            f"mostly noise: {len(at)} tokens have an effective sample size of {whole * len(at):.1f}, "
            f"{settings.min_effective_share:g} of them is the least",
            reason="mostly_noise",
        )
    told = {
        f"effective_share_{kind}": share
        for kind, share in effective_shares(torch.where(guided, recorded, weights), guided).items()
    }
    apart = log_ratio_kl((now - columns.behaviour)[at].clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    kl = {
        name: float(apart[own].mean())
        for name, own in (("kl_behaviour", ~guided), ("kl_behaviour_guided", guided))
        if bool(own.any())
    }
    return {"effective_share": whole} | told | kl
