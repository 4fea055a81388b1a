"""A checkpoint directory, looked at before the model is touched: names, shapes, types, numbers, digests.

vLLM keeps the old weights where a tensor is missing, serves NaN without a word, and dies of a wrong shape. So a version
is read once as a whole while the old one serves (`Check`, a thread that stays out of the way of the forward pass), and
the load then takes the same mapped pages. The evolved daemon has a check of the same kind; this one runs where only
vLLM is installed.
"""

import contextlib
import hashlib
import json
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "u1",
}  # fmt: skip
_SAME = (
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "hidden_act",
    "num_experts", "num_experts_per_tok", "sliding_window", "use_sliding_window", "quantization_config",
)  # fmt: skip
_MAX_HEADER = 100_000_000
_PIECE = 1 << 22
"""Bytes that are looked at together: bounds what the look needs beside the pages, and how long it holds a core."""


class Refused(Exception):
    """The directory must not be loaded; the message says why and what to do."""


class Tensor(NamedTuple):
    """A tensor as it lies in a file."""

    dtype: str
    """As safetensors says it: F32, BF16, ..."""
    shape: tuple[int, ...]
    data: npt.NDArray[Any]
    """Its numbers in its shape; the bits, as unsigned integers, of types that numpy does not have."""


class Served(NamedTuple):
    """What a checkpoint must be like to take the place of what is served."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...]]]


class Checkpoint(NamedTuple):
    """A directory, its files mapped."""

    path: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    files: dict[str, npt.NDArray[np.uint8]]
    """Every safetensors file as its bytes."""
    identity: tuple[tuple[str, int, int, int], ...]
    """Name, inode, bytes and modification time of every file: whether it is still what was looked at."""


def open_checkpoint(path: str) -> Checkpoint:
    """Map every `*.safetensors` file of a directory. Raises Refused: there is none, or one is truncated or
    malformed, or two hold the same tensor."""
    directory = Path(path)
    identity = identify(directory)
    names = [name for name, *_ in identity if name.endswith(".safetensors")]
    if not names:
        raise Refused(f"{path} holds no .safetensors file that this engine can read; is the path right on its machine?")
    tensors: dict[str, Tensor] = {}
    files: dict[str, npt.NDArray[np.uint8]] = {}
    for name in names:
        try:
            files[name], found = _map_file(directory / name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise Refused(f"{directory / name} is truncated or no safetensors file: {error}") from error
        for key, tensor in found.items():
            if key in tensors:
                raise Refused(f"{path}: tensor {key} is in two files; keep one")
            tensors[key] = tensor
    return Checkpoint(path, _json(directory / "config.json"), tensors, files, identity)


def identify(directory: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Which files are there, and in which state; empty if it is no directory that can be read."""
    try:
        entries = [(entry.name, entry.stat()) for entry in os.scandir(directory) if entry.is_file()]
    except OSError:
        return ()
    return tuple(sorted((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in entries))


def _map_file(path: Path) -> tuple[npt.NDArray[np.uint8], dict[str, Tensor]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(_MAX_HEADER, size - 8):
            raise ValueError("the header is longer than the file")
        header = json.loads(file.read(length))
    # Private to this process, and never written: torch wants memory that could be.
    whole = np.memmap(path, mode="c", dtype=np.uint8, shape=(size,))
    data = whole[8 + length :]
    header.pop("__metadata__", None)
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        dtype, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(int(n) for n in entry["shape"])
        start, end = entry["data_offsets"]
        need = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not 0 <= start <= end <= len(data) or end - start != need:
            raise ValueError(f"tensor {name} needs bytes {start} to {start + need}, {len(data)} are there")
        tensors[name] = Tensor(entry["dtype"], shape, data[start:end].view(dtype).reshape(shape))
    return whole, tensors


def describe(checkpoint: Checkpoint) -> Served:
    """What a checkpoint that replaces this one must be like."""
    return Served(checkpoint.config, {name: (t.dtype, t.shape) for name, t in checkpoint.tensors.items()})


def compare(checkpoint: Checkpoint, served: Served) -> None:
    """Compare architecture, names, shapes and types. Raises Refused: names the first difference."""
    path = checkpoint.path
    for key in _SAME:
        new, old = _setting(checkpoint.config, key), _setting(served.config, key)
        if new != old:
            raise Refused(f"{path}: {key} is {new}, {old} is served; a version has the architecture of its parent")
    for name, (dtype, shape) in served.tensors.items():
        found = checkpoint.tensors.get(name)
        if found is None:
            raise Refused(f"{path}: tensor {name} is missing; write every tensor of the model")
        if found.shape != shape:
            raise Refused(f"{path}: tensor {name} has shape {found.shape}, {shape} is served")
        if found.dtype != dtype:
            raise Refused(f"{path}: tensor {name} is {found.dtype}, {dtype} is served; convert it")
    for name in checkpoint.tensors:
        if name not in served.tensors:
            raise Refused(f"{path}: tensor {name} is not part of the model that is served; leave it out")


def _setting(config: dict[str, Any], key: str) -> Any:
    if key == "rope_theta" and isinstance(config.get("rope_parameters"), dict):  # where transformers 5 writes it
        return config["rope_parameters"].get(key, config.get(key))
    return config.get(key)


class Check(threading.Thread):
    """Looks at one directory and keeps what came of it.

    It runs at a low priority, on the cores that the forward pass is not bound to if there are any, and takes small
    bites, so that what serves meanwhile hardly feels it.
    """

    def __init__(self, path: str, served: Served, manifest: str = "") -> None:
        """
        Args:
            manifest: sha256 that manifest.json must have; empty for any.
        """
        super().__init__(name="evolved-check", daemon=True)
        self.path, self.manifest = path, manifest
        self.checkpoint: Checkpoint | None = None
        """Set once it is found good."""
        self.digest = ""
        """sha256 over names and sha256 of the weight files."""
        self.reason = ""
        """Why it is refused."""
        self.seconds = 0.0
        self._served, self._stop_asked = served, threading.Event()

    @property
    def over(self) -> bool:
        return self.checkpoint is not None or bool(self.reason)

    def stop(self) -> None:
        """Give up soon."""
        self._stop_asked.set()

    def run(self) -> None:
        _leave_the_workers_cores()
        self.look()

    def look(self) -> None:
        """Do the whole look in the calling thread; afterwards `checkpoint` or `reason` is set."""
        began = time.monotonic()
        try:
            checkpoint = open_checkpoint(self.path)
            compare(checkpoint, self._served)
            digests = self._digests(checkpoint)
            self._finite(checkpoint)
            if identify(Path(self.path)) != checkpoint.identity:
                raise Refused(f"{self.path} was changed while it was read; write versions aside and rename them")
        except Refused as error:
            self.reason = str(error)
            return
        except Exception as error:  # a thread's exception would be lost, and the caller would wait for ever
            self.reason = f"{self.path} could not be read: {type(error).__name__}: {error}"
            return
        finally:
            self.seconds = time.monotonic() - began
        self.digest, self.checkpoint = digests, checkpoint

    def _digests(self, checkpoint: Checkpoint) -> str:
        """Compare every file that manifest.json names with its sha256 there."""
        directory = Path(checkpoint.path)
        found = {name: self._sha256(data) for name, data in checkpoint.files.items()}
        for entry in self._listed(directory / "manifest.json"):
            name = str(entry.get("name", ""))
            file = directory / name
            if Path(name).name != name or not file.is_file():
                raise Refused(f"{directory}: {name or 'a file'} is in the manifest and not in the directory")
            if file.stat().st_size != entry.get("size"):
                raise Refused(f"{file} has {file.stat().st_size} bytes, its manifest says {entry.get('size')}")
            digest = found.get(name) or hashlib.sha256(file.read_bytes()).hexdigest()
            if digest != entry.get("sha256"):
                raise Refused(f"{file} does not have the sha256 of its manifest: it was changed; copy it again")
        text = "".join(f"{name} {digest}\n" for name, digest in sorted(found.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def _listed(self, path: Path) -> list[dict[str, Any]]:
        """The files that the manifest names; none where no manifest is asked for and none is there."""
        if not path.exists() and not self.manifest:
            return []
        content = _json(path)
        if self.manifest and hashlib.sha256(path.read_bytes()).hexdigest() != self.manifest:
            raise Refused(f"{path} is not the manifest that was judged; somebody changed it")
        return list(content.get("files", ()))

    def _sha256(self, data: npt.NDArray[np.uint8]) -> str:
        state = hashlib.sha256()
        for start in range(0, len(data), _PIECE):
            self._breathe()
            state.update(data[start : start + _PIECE].data)
        return state.hexdigest()

    def _finite(self, checkpoint: Checkpoint) -> None:
        for name, tensor in checkpoint.tensors.items():
            flat = tensor.data.reshape(-1)
            size = _PIECE // flat.itemsize
            for start in range(0, len(flat), size):
                self._breathe()
                if not _is_finite(flat[start : start + size], tensor.dtype):
                    raise Refused(f"{checkpoint.path}: tensor {name} holds NaN or infinity")

    def _breathe(self) -> None:
        if self._stop_asked.is_set():
            raise Refused(f"{self.path}: another version was asked for meanwhile")
        time.sleep(0)  # lets a forward pass that waits for the interpreter go first


def _is_finite(piece: npt.NDArray[Any], dtype: str) -> bool:
    match dtype:
        case "BF16":
            return not bool(np.any((piece & 0x7F80) == 0x7F80))  # an exponent of all ones
        case "F8_E4M3":
            return not bool(np.any((piece & 0x7F) == 0x7F))  # has NaN alone, no infinity
        case "F8_E5M2":
            return not bool(np.any((piece & 0x7C) == 0x7C))
        case "F64" | "F32" | "F16":
            return bool(np.isfinite(piece).all())
        case _:
            return True


def _leave_the_workers_cores() -> None:
    """Let the calling thread run wherever the kernel finds room, and not only on the cores that the worker is bound to.

    Its priority stays: a thread that holds the interpreter's lock and gets no time, because another engine polls on the
    same core, keeps its whole worker from answering. Seen: a worker stood still for 88 s.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))  # vLLM binds the worker, not its parent


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Refused(f"{path} holds no JSON object")
    return content
