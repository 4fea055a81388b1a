"""A version directory, looked at before any engine sees it: names, shapes, types, numbers, digests.

Engines forgive nothing here. vLLM keeps the old weights where a tensor is missing, serves NaN without a word, and
dies of a wrong shape, so what is wrong must be found on disk. Reads safetensors itself, by mapping the file: bfloat16
has no numpy type, and a version of many gigabytes must not be copied to be checked.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from actors.ports.errors import CheckpointRefused

_TYPES: dict[str, npt.DTypeLike] = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "u1",
}  # fmt: skip
_SAME = (
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "hidden_act",
)  # fmt: skip
_MAX_HEADER = 100_000_000
_PIECE = 1 << 24
"""Elements that are looked at together: bounds memory on large tensors."""


class TensorSpec(msgspec.Struct, frozen=True):
    """What a tensor looks like from outside."""

    dtype: str
    """As safetensors says it: F32, BF16, ..."""
    shape: tuple[int, ...]


class Served(msgspec.Struct, frozen=True):
    """What a version must be like to take the place of what is served."""

    config: dict[str, Any]
    tensors: dict[str, TensorSpec]


class Checkpoint:
    """The tensors of a directory, mapped, not read."""

    def __init__(self, directory: Path, tensors: dict[str, TensorSpec], arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.directory, self.tensors, self._arrays = directory, tensors, arrays

    def array(self, name: str) -> npt.NDArray[Any]:
        """The numbers of a tensor, in its shape; the bits of bfloat16 as uint16. A private view of the file."""
        return self._arrays[name]


def open_checkpoint(directory: Path) -> Checkpoint:
    """Map every `*.safetensors` file of `directory`. Raises CheckpointRefused: there is none, or one is truncated or
    malformed, or two hold the same tensor."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise CheckpointRefused(f"{directory} holds no .safetensors file; is the path right, and was it renamed whole?")
    tensors: dict[str, TensorSpec] = {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for path in files:
        for name, (spec, array) in _map_file(path).items():
            if name in tensors:
                raise CheckpointRefused(f"{directory}: tensor {name} is in two files; keep one")
            tensors[name], arrays[name] = spec, array
    return Checkpoint(directory, tensors, arrays)


def _map_file(path: Path) -> dict[str, tuple[TensorSpec, npt.NDArray[Any]]]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_MAX_HEADER, size - 8):
                raise ValueError("the header is longer than the file")
            header = json.loads(file.read(length))
        data = np.memmap(path, mode="c", dtype=np.uint8, offset=8 + length, shape=(size - 8 - length,))
        header.pop("__metadata__", None)
        return {name: _tensor(name, entry, data) for name, entry in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CheckpointRefused(f"{path} is truncated or no safetensors file: {error}; write it again") from error


def _tensor(name: str, entry: dict[str, Any], data: npt.NDArray[np.uint8]) -> tuple[TensorSpec, npt.NDArray[Any]]:
    spec = TensorSpec(entry["dtype"], tuple(int(n) for n in entry["shape"]))
    start, end = entry["data_offsets"]
    dtype = np.dtype(_TYPES[spec.dtype])
    need = int(np.prod(spec.shape, dtype=np.int64)) * dtype.itemsize
    if not 0 <= start <= end <= len(data) or end - start != need:
        raise ValueError(f"tensor {name} needs bytes {start} to {start + need}, {len(data)} are there")
    return spec, data[start:end].view(dtype).reshape(spec.shape)


def describe(directory: Path) -> Served:
    """What a version that replaces `directory` must be like. Raises CheckpointRefused: as `open_checkpoint`, or
    there is no config.json."""
    return Served(_json(directory / "config.json", None), open_checkpoint(directory).tensors)


def validate(
    directory: Path,
    *,
    like: Served | None = None,
    manifest: str = "",
    allow_tied: bool = True,
) -> Checkpoint:
    """Look at a version directory as closely as can be done without an engine, beside what is served (`like`) and
    against its manifest, whose sha256 must be `manifest` if that is given; raises CheckpointRefused with the first
    thing that is wrong.

    `allow_tied=False` refuses a head that is tied to the embeddings, which stock vLLM on CPU reloads wrongly without a
    word.
    """
    listed = _manifest(directory, manifest)
    for entry in listed:
        _check_digest(directory, entry)
    known = {entry.get("name") for entry in listed}
    for path in directory.glob("*.safetensors") if listed else ():
        if path.name not in known:
            raise CheckpointRefused(f"{path} is not in the manifest; somebody put it there, take it out")
    config = _json(directory / "config.json", None)
    if not allow_tied and config.get("tie_word_embeddings", False):
        raise CheckpointRefused(
            f"{directory}: the head is tied to the embeddings, which an engine may reload wrongly without a word; "
            "write lm_head.weight and set tie_word_embeddings to false, or load with the vLLM plug-in"
        )
    checkpoint = open_checkpoint(directory)
    if like is not None:
        check_architecture(directory, config, like.config)
        check_layout(checkpoint, like.tensors)
    check_finite(checkpoint)
    return checkpoint


def check_architecture(directory: Path, config: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    """Compare what of two `config.json` decides the computation. Raises CheckpointRefused: names the first
    difference."""
    for key in _SAME:
        if _setting(config, key) != _setting(served, key):
            raise CheckpointRefused(
                f"{directory}: {key} is {_setting(config, key)}, {_setting(served, key)} is served; "
                "a version must have the architecture of what it replaces"
            )


def _setting(config: Mapping[str, Any], key: str) -> Any:
    if key == "rope_theta" and isinstance(config.get("rope_parameters"), dict):  # where transformers 5 writes it
        return config["rope_parameters"].get(key, config.get(key))
    return config.get(key)


def check_layout(checkpoint: Checkpoint, wanted: Mapping[str, TensorSpec]) -> None:
    """Compare names, types and shapes. Raises CheckpointRefused: names the first tensor that is missing, unknown or
    different."""
    where = checkpoint.directory
    for name, spec in wanted.items():
        found = checkpoint.tensors.get(name)
        if found is None:
            raise CheckpointRefused(f"{where}: tensor {name} is missing; write every tensor of the model")
        if found.shape != spec.shape:
            raise CheckpointRefused(f"{where}: tensor {name} has shape {found.shape}, {spec.shape} is served")
        if found.dtype != spec.dtype:
            raise CheckpointRefused(f"{where}: tensor {name} is {found.dtype}, {spec.dtype} is served; convert it")
    for name in checkpoint.tensors:
        if name not in wanted:
            raise CheckpointRefused(f"{where}: tensor {name} is not part of the model that is served; leave it out")


def check_finite(checkpoint: Checkpoint) -> None:
    """Look for NaN and infinity. Raises CheckpointRefused: names the first tensor that has one."""
    for name, spec in checkpoint.tensors.items():
        flat = checkpoint.array(name).reshape(-1)
        for start in range(0, len(flat), _PIECE):
            piece = flat[start : start + _PIECE]
            if spec.dtype == "BF16":
                bad = bool(np.any((piece & 0x7F80) == 0x7F80))  # an exponent of all ones
            elif spec.dtype in ("F64", "F32", "F16"):
                bad = not bool(np.isfinite(piece).all())
            else:
                bad = False
            if bad:
                raise CheckpointRefused(
                    f"{checkpoint.directory}: tensor {name} holds NaN or infinity; the update that made it diverged, "
                    "go on from its parent"
                )


def _manifest(directory: Path, wanted: str) -> list[dict[str, Any]]:
    """The files that manifest.json names, and digests of them."""
    path = directory / "manifest.json"
    if not wanted and not path.exists():
        return []
    try:
        content = path.read_bytes()
        # What is compared is what is used: the file may be changed between two looks at it.
        if wanted and hashlib.sha256(content).hexdigest() != wanted:
            raise CheckpointRefused(f"{path} is not the manifest that was judged; copy the version again")
        files = json.loads(content)["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointRefused(f"{path} cannot be read: {error}; copy the version again") from error
    if not isinstance(files, list) or not all(isinstance(entry, dict) for entry in files):
        raise CheckpointRefused(f"{path}: files is no list of files; write the version again")
    return files


def _check_digest(directory: Path, entry: dict[str, Any]) -> None:
    name = str(entry.get("name", ""))
    path = directory / name
    if Path(name).name != name or not path.is_file():
        raise CheckpointRefused(f"{directory}: {name or 'a file'} is in the manifest and not in the directory")
    if path.stat().st_size != entry.get("size"):
        raise CheckpointRefused(
            f"{path} has {path.stat().st_size} bytes, its manifest says {entry.get('size')}: it is truncated or was "
            "changed; copy the version again"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.get("sha256"):
        raise CheckpointRefused(
            f"{path} does not have the sha256 of its manifest: it was changed; copy the version again"
        )


def _json(path: Path, default: dict[str, Any] | None) -> dict[str, Any]:
    if default is not None and not path.exists():
        return default
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointRefused(f"{path} cannot be read: {error}; copy the version again") from error
    if not isinstance(content, dict):
        raise CheckpointRefused(f"{path} holds no JSON object; copy the version again")
    return content
