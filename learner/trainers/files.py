"""The native trainer's files: Hugging Face checkpoints in and out under the same names, and plain tensor files."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from actors.messages import FileDigest
from learner.errors import CheckpointInvalid, CheckpointUnsupported, NonFiniteWeights
from learner.versions import tensor_shapes, weight_files

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PIECE = 1 << 24
"""Bytes that are looked at, hashed and written together: what stays in a cache, and is worth a thread's turn."""


def load_model(directory: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The causal model in `directory`, ready for `forward`; never looks anywhere else for files. Raises
    CheckpointInvalid: no such model, or files that transformers cannot read."""
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
    Raises CheckpointUnsupported: the file has other names than the model, or another kind of number."""
    stored = {name: dtype for path in weight_files(directory) for name, (dtype, _) in tensor_shapes(path).items()}
    parameters = {name for name, _ in model.named_parameters()}
    if stored.keys() != parameters:
        odd = sorted(stored.keys() ^ parameters)
        raise CheckpointUnsupported(f"{directory}: file and model differ in {len(odd)} names, first {odd[0]!r}")
    strange = sorted(name for name, dtype in stored.items() if dtype not in _DTYPES)
    if strange:
        raise CheckpointUnsupported(f"{directory}: {strange[0]} is {stored[strange[0]]}")
    return {name: _DTYPES[dtype] for name, dtype in stored.items()}


def save_tensors(
    tensors: Mapping[str, Tensor], path: Path, *, dtypes: Mapping[str, torch.dtype] | None = None
) -> FileDigest:
    """Write `tensors`, fp32, bf16 or fp16 on any device, as one safetensors file; its name, sha256 and size.

    Each byte is brought here, looked at and hashed once, on its way to the disk: a version of many gigabytes needs
    neither a second copy in memory nor to be read back. NonFiniteWeights names the tensor; after an error no file is
    left.
    """
    # The format's order: the widest type first, so that every tensor is aligned.
    kept = {name: dtypes[name] if dtypes is not None else tensor.dtype for name, tensor in tensors.items()}
    names = sorted(tensors, key=lambda name: (-kept[name].itemsize, _NAMES[kept[name]], name))
    # transformers refuses a file that does not say which framework wrote it.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in names:
        end = at + tensors[name].numel() * kept[name].itemsize
        header[name] = {"dtype": _NAMES[kept[name]], "shape": list(tensors[name].shape), "data_offsets": [at, end]}
        at = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    head = len(head).to_bytes(8, "little") + head
    found = sha256(head)
    # Aside: a file that is written over while its tensors are mapped ends whoever looks at them (SIGBUS).
    aside = path.with_name(f"{path.name}.part")
    with ThreadPoolExecutor(1) as hashing, aside.open("wb", buffering=0) as file:
        try:
            _write(file, memoryview(head))
            for name in names:
                flat = tensors[name].detach().to("cpu", kept[name]).contiguous().reshape(-1)
                step = _PIECE // flat.element_size()
                for start in range(0, len(flat), step):
                    piece = flat[start : start + step]
                    if not bool(torch.isfinite(piece).all()):
                        raise NonFiniteWeights(name)
                    block = piece.view(torch.uint8).numpy().data
                    hashed = hashing.submit(found.update, block)
                    _write(file, block)
                    hashed.result()
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    aside.replace(path)
    return FileDigest(path.name, found.hexdigest(), len(head) + at)


def _write(file: Any, block: memoryview) -> None:
    while block:
        block = block[file.write(block) :]


def load_tensors(*paths: Path) -> dict[str, Tensor]:
    """All tensors of some files, in memory. Raises CheckpointInvalid: missing or damaged."""
    try:
        return {name: tensor for path in paths for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointInvalid(f"{paths[0].parent}: {error}") from error
