"""What an update's arithmetic comes to, and what a GPU could do at most: model FLOPs utilisation is their quotient.

Source: PaLM (arXiv 2204.02311, appendix B): only the model's own work counts, forward and backward, nothing recomputed.
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

PEAKS: tuple[tuple[str, float], ...] = (
    ("B200", 2250e12), ("H200", 989e12), ("H100 PCIe", 756e12), ("H100", 989e12), ("A100", 312e12), ("L40S", 362e12),
    ("A10G", 70e12), ("L4", 121e12),
)  # fmt: skip
"""bf16 FLOP/s without sparsity from the vendor's data sheets, by a part of the device's name; the first that fits."""


def peak_flops(device: str) -> float | None:
    """Most bf16 FLOP/s of the GPU that calls itself `device`; None for one that is not in the list."""
    return next((peak for name, peak in PEAKS if name in device), None)


def update_flops(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], lengths: npt.NDArray[np.int64], trained: int
) -> float:
    """FLOPs of one pass over a batch, forward and backward, of a dense decoder.

    Two a multiplication and addition, three passes (forward, and two products backward): 6 a weight and token, the
    output head at trained tokens only, and 6 T^2 a channel and layer for causal attention.

    Args:
        tensors: name -> (type, shape) as in a version's manifest, Hugging Face names.
        lengths: `(B,)` tokens of the rows.
        trained: trained tokens in all.
    """
    head = next((shape for name, (_, shape) in tensors.items() if name.endswith("lm_head.weight")), None)
    embedding = next((shape for name, (_, shape) in tensors.items() if name.endswith("embed_tokens.weight")), ())
    body = sum(
        math.prod(shape)
        for name, (_, shape) in tensors.items()
        if len(shape) == 2 and not name.endswith(("lm_head.weight", "embed_tokens.weight"))
    )
    channels = sum(shape[0] for name, (_, shape) in tensors.items() if name.endswith("q_proj.weight"))
    squares = float((lengths.astype(np.float64) ** 2).sum())
    outputs = math.prod(head or embedding) * trained
    return 6.0 * (body * float(lengths.sum()) + outputs + channels * squares)
