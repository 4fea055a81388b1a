"""The native trainer's files: Hugging Face checkpoints in and out under the same names, and plain tensor files."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from learner.errors import CheckpointInvalid, CheckpointUnsupported, NonFiniteWeights
from learner.versions import tensor_shapes, weight_files

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def load_model(directory: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The causal model in `directory`, ready for `forward`; never looks anywhere else for files.

    Raises:
        CheckpointInvalid: no such model, or files that transformers cannot read.
    """
    # Seconds of import that only a process that trains should pay.
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, attn_implementation="sdpa", local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointInvalid(f"{directory}: {error}") from error
    return model.to(device).eval()  # eval: dropout would make log-probs incomparable with the engine's


def stored_dtypes(directory: Path, model: Any) -> dict[str, torch.dtype]:
    """In which precision each parameter of `model` is kept on disk; tied copies that the file lacks are left out.

    Raises:
        CheckpointUnsupported: the file has other names than the model, or another kind of number.
    """
    stored = {name: dtype for path in weight_files(directory) for name, (dtype, _) in tensor_shapes(path).items()}
    parameters = {name for name, _ in model.named_parameters()}
    if stored.keys() != parameters:
        odd = sorted(stored.keys() ^ parameters)
        raise CheckpointUnsupported(f"{directory}: file and model differ in {len(odd)} names, first {odd[0]!r}")
    strange = sorted(name for name, dtype in stored.items() if dtype not in _DTYPES)
    if strange:
        raise CheckpointUnsupported(f"{directory}: {strange[0]} is {stored[strange[0]]}")
    return {name: _DTYPES[dtype] for name, dtype in stored.items()}


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write `tensors` as one safetensors file.

    Raises:
        NonFiniteWeights: names the tensor; nothing was written.
    """
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise NonFiniteWeights(name)
    # metadata: transformers refuses a file that does not say which framework wrote it.
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def load_tensors(*paths: Path) -> dict[str, Tensor]:
    """All tensors of some files, in memory.

    Raises:
        CheckpointInvalid: missing or damaged.
    """
    try:
        return {name: tensor for path in paths for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointInvalid(f"{paths[0].parent}: {error}") from error
