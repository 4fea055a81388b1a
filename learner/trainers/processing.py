"""Log-probs of tokens that were drawn from processed logits: penalties, temperature, min_p, top_k, top_p.

The learner does to its own logits what the engine did to those that it sampled from, so that the ratio is one of like
distributions. With a full softmax over a truncated one the gradient is that of nothing that was played.

The support is that of the present weights, the sampled token always inside. On the policy that is the support that was
sampled from; some updates later some tokens have crossed the border.

Source: vLLM 0.32, `v1/sample/sampler.py`, `v1/sample/ops/penalties.py`, `v1/sample/ops/topk_topp_sampler.py`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from actors.messages import Processing
from learner.trainers.micro import Processed

CHUNK = 1 << 24
"""Elements of `(r, V)` that are in memory at a time, some six times over; their gradient computes them again."""


def processed_log_probs(
    hidden: Tensor, head: Any, target: Tensor, temperature: float, about: Processed, *, chunk: int = CHUNK
) -> Tensor:
    """Log-probs of `target` `(m,)` under the processed distribution, nats, in fp32, or in fp64 if `hidden` `(m, d)` is;
    `about` says what was done to the logits, and what stood before each token."""
    ids = torch.from_numpy(about.ids).to(hidden.device)

    def some(hidden: Tensor, part: slice) -> Tensor:
        weight, bias = head.weight.to(hidden.dtype), getattr(head, "bias", None)
        logits = torch.nn.functional.linear(hidden, weight, None if bias is None else bias.to(hidden.dtype))
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        logits = penalised(logits, about, part, ids) / temperature
        inside = support(logits.detach(), about.processing).scatter_(1, target[part, None], True)
        return logits.masked_fill(~inside, -torch.inf).log_softmax(-1).gather(1, target[part, None])[:, 0]

    size = max(1, chunk // int(head.weight.shape[0]))
    parts = [slice(start, start + size) for start in range(0, len(hidden), size)]
    if len(parts) == 1:
        return some(hidden, parts[0])
    found: list[Any] = [checkpoint(some, hidden[part], part, use_reentrant=False) for part in parts]
    return torch.cat(found)


def penalised(logits: Tensor, about: Processed, part: slice, ids: Tensor) -> Tensor:
    """`logits` `(m, V)` of the tokens `part`, less what is taken off for what prompt and answer have had.

    Args:
        ids: `(n,)`, the row.
    """
    by = about.processing
    if (by.repetition_penalty, by.presence_penalty, by.frequency_penalty) == (1.0, 0.0, 0.0):
        return logits
    rows: list[Tensor] = []
    for row, end, begin in zip(logits, about.within[part].tolist(), about.answer[part].tolist(), strict=True):
        if by.repetition_penalty != 1.0:
            seen = torch.zeros_like(row, dtype=torch.bool)
            seen[ids[:end]] = True
            row = torch.where(seen, torch.where(row > 0, row / by.repetition_penalty, row * by.repetition_penalty), row)
        counts = torch.bincount(ids[begin:end], minlength=len(row)).to(row.dtype)
        rows.append(row - by.frequency_penalty * counts - by.presence_penalty * (counts > 0))
    return torch.stack(rows)


@torch.no_grad()
def support(logits: Tensor, by: Processing) -> Tensor:
    """Which tokens are left to be drawn from, `(m, V)`.

    Args:
        logits: over the temperature already.
    """
    inside = torch.ones_like(logits, dtype=torch.bool)
    if by.min_p > 0:
        probabilities = logits.softmax(-1)
        inside &= probabilities >= by.min_p * probabilities.amax(-1, keepdim=True)
    if 0 < by.top_k < logits.shape[1]:
        # Ties with the last of them stay, as in vLLM.
        left = logits.masked_fill(~inside, -torch.inf)
        inside &= left >= left.topk(by.top_k, -1).values[:, -1:]
    if by.top_p < 1:
        ordered, at = logits.masked_fill(~inside, -torch.inf).sort(-1)
        outside = ordered.softmax(-1).cumsum(-1) <= 1 - by.top_p
        outside[:, -1] = False
        inside &= ~torch.zeros_like(inside).scatter_(1, at, outside)
    return inside
