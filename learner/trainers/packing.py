"""Several rows as one sequence without padding: attention that stops at the rows' ends, for Hugging Face models.

The rows' tokens go through every other layer as one sequence; attention alone takes each row by itself with the causal
kernel, so nothing is computed for padding, and no mask is built. Measured on a CPU (27M parameters, 16 rows of 49 to
438 tokens, one thread): 5.7 s forward and backward, 6.5 to 7.0 s for rows padded and sorted by length, and 8.3 s
for one sequence under a block-diagonal mask.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from learner.errors import CheckpointUnsupported

NAME = "evolved_packed"
"""The attention's name among transformers' implementations."""
TOLERANCE = 1e-4
"""Of the largest value, when two ways to compute the same are compared in fp32; rounding is a hundredth of it."""


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    lengths: Sequence[int] | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row: query `(1, heads, n, d)`, key and value `(1, key heads, n, d)`, `(1, n, heads,
    d)` out, no weights. `lengths` are the rows' tokens, n in all; without it any number of rows that are not packed. A
    model that caps its scores is refused with a ValueError."""
    del module, attention_mask
    if softcap is not None:
        raise ValueError("capped attention scores are not supported")
    sizes, shared = list(lengths or [query.shape[2]]), query.shape[1] != key.shape[1]
    rows = [
        F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=shared
        )
        for q, k, v in zip(query.split(sizes, 2), key.split(sizes, 2), value.split(sizes, 2), strict=True)
        for mask in [_band(q, sliding_window)]
    ]
    return torch.cat(rows, 2).transpose(1, 2).contiguous(), None


def prepare(model: Any) -> bool:
    """Make `model` take packed rows, if it can; a few tokens through it tell whether it does.

    Models with a state that runs along the sequence (linear attention, state spaces), or with attention of their own,
    cannot: they are left as they are, and rows have to go one by one. CheckpointUnsupported: the model does more
    between hidden states and logits than its output embeddings.
    """
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    device = model.get_input_embeddings().weight.device
    ids = (torch.arange(9, device=device) * 7 + 1) % vocabulary
    rows = [ids[:4], ids[4:]]
    with torch.no_grad():
        try:
            apart = torch.cat([model.base_model(input_ids=row[None], use_cache=False)[0][0] for row in rows])
            logits = torch.cat([model(input_ids=row[None], use_cache=False).logits[0] for row in rows])
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckpointUnsupported(f"{type(model).__name__} cannot be computed: {error}") from error
        if not _alike(model.get_output_embeddings()(apart), logits):
            raise CheckpointUnsupported(f"{type(model).__name__} changes its logits after the output embeddings")
        positions = torch.cat([torch.arange(len(row), device=device) for row in rows])
        try:
            use(model)
            together = model.base_model(
                input_ids=ids[None], position_ids=positions[None], use_cache=False, lengths=[4, 5]
            )[0][0]
        except (ValueError, TypeError, RuntimeError, KeyError):
            packs = False
        else:
            packs = _alike(together, apart)
    if not packs:
        model.set_attn_implementation("sdpa")
    return packs


def use(model: Any) -> None:
    """Switch `model`, known to be able to, to packed rows. Raises ValueError: it cannot."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)
    model.set_attn_implementation(NAME)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= TOLERANCE * other.abs().max())


def _band(query: Tensor, window: int | None) -> Tensor | None:
    """`(n, n)` true where a token looks; None if that is all before it."""
    n = query.shape[2]
    if window is None or n <= window:
        return None
    at = torch.arange(n, device=query.device)
    back = at[:, None] - at[None, :]
    return (back >= 0) & (back < window)
