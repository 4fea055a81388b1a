"""From logits to tokens, a whole batch at once.

A token costs one uniform number from the sequence's own generator, so a seed gives the same text whatever else is in
the batch. Log-probs are those of the unscaled distribution, as vLLM reports them by default: what importance ratios
need.
"""

import random
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot carry."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How to draw."""

    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    seed: int | None = None


class Drawn(msgspec.Struct, frozen=True):
    """One token a row."""

    tokens: list[int]
    logprobs: list[float]
    """Of `tokens`, at temperature 1, nats."""


def draw(logits: Tensor, samplings: Sequence[Sampling], generators: Sequence[random.Random]) -> Drawn:
    """Draw the next token of each row of `logits` `(n, V)`."""
    logprobs = torch.log_softmax(logits, -1)
    if all(s.temperature == 0.0 for s in samplings):
        tokens = logprobs.argmax(-1)
    else:
        temperatures = torch.tensor([s.temperature or 1.0 for s in samplings])[:, None]
        plain = all(s.temperature in (0.0, 1.0) for s in samplings)
        probs = logprobs.exp() if plain else torch.softmax(logits / temperatures, -1)
        if any(s.top_p < 1.0 for s in samplings):
            probs = _nucleus(probs, torch.tensor([s.top_p for s in samplings])[:, None])
        uniform = torch.tensor([g.random() for g in generators], dtype=torch.float64)[:, None]
        sums = probs.cumsum(-1, dtype=torch.float64)
        tokens = (sums <= uniform * sums[:, -1:]).sum(-1).clamp_(max=logits.shape[-1] - 1)
        greedy = [s.temperature == 0.0 for s in samplings]
        if any(greedy):
            tokens = torch.where(torch.tensor(greedy), logprobs.argmax(-1), tokens)
    own = logprobs.gather(1, tokens[:, None])[:, 0].clamp_(min=LOWEST)
    return Drawn(tokens.tolist(), own.tolist())


def _nucleus(probs: Tensor, top_p: Tensor) -> Tensor:
    """Zero what lies outside the smallest set of tokens whose mass reaches `top_p` `(n, 1)`."""
    ordered, order = probs.sort(-1, descending=True)
    outside = ordered.cumsum(-1) - ordered >= top_p
    outside[:, 0] = False
    return probs.scatter(1, order, ordered.masked_fill(outside, 0.0))
