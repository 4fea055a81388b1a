"""Log-probs of given tokens out of hidden states, with the vocabulary's logits in memory once at most.

Plain cross-entropy holds logits, their log-softmax and its gradient, `(r, V)` floats each: 18 GB for 10k tokens of a
vocabulary of 152k. Here the logits become probabilities in place and these the gradient; above `KEPT_LOGITS` elements
not even they are kept, but computed again, chunk by chunk, when the gradient is wanted.
"""

from typing import Any

import torch
from torch import Tensor

from learner.sizing import KEPT_LOGITS, LOGIT_CHUNK


def token_log_probs(
    hidden: Tensor,
    head: Any,
    target: Tensor,
    temperature: Tensor | None,
    *,
    kept: int = KEPT_LOGITS,
    chunk: int = LOGIT_CHUNK,
) -> Tensor:
    """`log softmax(head(hidden) / temperature)[target]`, `(r,)` nats, in fp32, or in fp64 if `hidden` `(r, d)` is; half
    precision is projected in it."""
    r, v = len(hidden), int(head.weight.shape[0])
    keep = r * v <= kept
    size = max(1, r if keep else chunk // v)
    bias = getattr(head, "bias", None)
    parts: list[Any] = []
    for start in range(0, max(r, 1), size):
        part = slice(start, start + size)
        heat = None if temperature is None else temperature[part, None]
        parts.append(_TokenLogProbs.apply(hidden[part], head.weight, bias, target[part], heat, keep))
    return torch.cat(parts)


class _TokenLogProbs(torch.autograd.Function):
    """One chunk; see `token_log_probs`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        temperature: Tensor | None,
        keep: bool,
    ) -> Tensor:
        probabilities, log_probs = _softmax_(_logits(hidden, weight, bias), target, temperature)
        ctx.save_for_backward(hidden, weight, bias, target, temperature, *([probabilities] if keep else []))
        return log_probs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target, temperature, *kept = ctx.saved_tensors
        with torch.no_grad():
            p = kept[0] if kept else _softmax_(_logits(hidden, weight, bias), target, temperature)[0]
            scale = gradients[0][:, None] if temperature is None else gradients[0][:, None] / temperature
            # d log p[t] / d z = onehot(t) - p, over the temperature.
            p.mul_(-scale).scatter_add_(1, target[:, None], scale)
            low = p.to(hidden.dtype)
            return (
                low @ weight.to(hidden.dtype),
                (low.t() @ hidden).to(weight.dtype),
                None if bias is None else p.sum(0).to(bias.dtype),
                None,
                None,
                None,
            )


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    low = hidden.dtype
    logits = torch.nn.functional.linear(hidden, weight.to(low), None if bias is None else bias.to(low))
    return logits.float() if low in (torch.float16, torch.bfloat16) else logits


def _softmax_(logits: Tensor, target: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor]:
    """Probabilities, in the memory of `logits`, and the log-probs of `target`."""
    if temperature is not None:
        logits.div_(temperature)
    logits.sub_(logits.amax(1, keepdim=True))
    chosen = logits.gather(1, target[:, None])[:, 0]
    total = logits.exp_().sum(1, keepdim=True)
    logits.div_(total)
    return logits, chosen - total[:, 0].log()
