"""A sharded model's files: gathered tensor by tensor, written under the names, shapes and types they were loaded with.

Weights go into one file that rank 0 writes. The optimizer's state goes into one file a rank, whole tensors in each, so
that another number of ranks, or the native trainer's single file, restores as well.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from actors.messages import FileDigest
from learner.errors import CheckpointInvalid
from learner.trainers.files import save_tensors
from learner.versions import weight_files


def local(tensor: Tensor) -> Tensor:
    """This rank's part, sharing memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The full tensor; a collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def save_weights(named: list[tuple[str, Tensor]], dtypes: dict[str, torch.dtype], path: Path) -> Sequence[FileDigest]:
    """Rank 0 writes them all; a collective, with the digest on rank 0. Raises NonFiniteWeights: on rank 0, see
    `save_tensors`."""
    kept: dict[str, Tensor] = {}
    for name, tensor in named:
        full = whole(tensor)
        if dist.get_rank() == 0:
            kept[name] = full.to("cpu", dtypes[name], copy=True)
    return [save_tensors(kept, path)] if dist.get_rank() == 0 else []


def state_of(named: list[tuple[str, Tensor]], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """fp32 masters and moments, by the native trainer's names."""
    state: dict[str, Tensor] = {}
    for name, parameter in named:
        state[f"master.{name}"] = parameter.detach()
        state |= {f"{key}.{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
    return state


def save_state(state: dict[str, Tensor], directory: Path) -> Sequence[FileDigest]:
    """Each rank writes its share of the tensors, whole; a collective, with everybody's digests on every rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    kept: dict[str, Tensor] = {}
    for i, (name, tensor) in enumerate(state.items()):
        full = whole(tensor)
        if i % ranks == rank:
            kept[name] = full.to("cpu", copy=True)
    file = "optimizer.safetensors" if ranks == 1 else f"optimizer-{rank:05d}-of-{ranks:05d}.safetensors"
    own: FileDigest | None = None
    found: list[FileDigest | None] = [None] * ranks
    try:
        own = save_tensors(kept, directory / file)
    finally:
        dist.all_gather_object(found, own)  # whatever became of it: the others wait here
    return [each for each in found if each is not None]


class Stored:
    """Tensors in files, read piece by piece; use as a context."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths, self._stack = paths, ExitStack()
        self._files: dict[str, Any] = {}

    def __enter__(self) -> "Stored":
        """
        Raises:
            CheckpointInvalid: missing or damaged.
        """
        try:
            for path in self._paths:
                file = self._stack.enter_context(safe_open(path, "pt"))
                self._files |= dict.fromkeys(file.keys(), file)
        except (OSError, SafetensorError) as error:
            self._stack.close()
            raise CheckpointInvalid(f"{self._paths[0].parent}: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def like(self, name: str, parameter: Tensor) -> Tensor:
        """`name`, in fp32, placed and sharded as `parameter` is; every rank reads for itself."""
        full: Tensor = self._files[name].get_tensor(name).to(parameter.device, torch.float32)
        if not isinstance(parameter, DTensor):
            return full
        # No source rank: each has read the file, so nothing needs to travel.
        return distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)

    def scalar(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)


def stored_state(directory: Path | None) -> Stored:
    """What `save_state` wrote, on any number of ranks, or the native trainer; empty without a directory. Raises
    CheckpointInvalid: there is nothing, or a rank's file is missing."""
    return Stored(list(_state_files(directory)) if directory is not None else [])


def restore(named: list[tuple[str, Tensor]], optimizer: torch.optim.Optimizer, weights: Path, kept: Stored) -> None:
    """Take over weights and, from `kept`, masters and moments; what it lacks starts afresh. Raises
    CheckpointInvalid: on every rank; nothing has changed."""
    with Stored(weight_files(weights)) as stored, torch.no_grad():
        _fits(named, stored, weights)
        optimizer.state.clear()
        on_gpu = named[0][1].device.type == "cuda"
        for name, parameter in named:
            master = f"master.{name}"
            source = kept.like(master, parameter) if master in kept else stored.like(name, parameter)
            parameter.copy_(source)
            if f"exp_avg.{name}" in kept:
                step = kept.scalar(f"step.{name}")
                optimizer.state[parameter] = {
                    "step": step.to(parameter.device) if on_gpu else step,  # where a fused AdamW wants it
                    "exp_avg": kept.like(f"exp_avg.{name}", parameter),
                    "exp_avg_sq": kept.like(f"exp_avg_sq.{name}", parameter),
                }


def settle(named: list[tuple[str, Tensor]], dtypes: dict[str, torch.dtype], weights: Path) -> int:
    """See `Trainer.settle`; a collective, the same answer on every rank. Raises CheckpointInvalid: on every rank;
    nothing has changed."""
    with Stored(weight_files(weights)) as stored, torch.no_grad():
        _fits(named, stored, weights)
        differing = torch.zeros((), dtype=torch.int64, device=named[0][1].device)
        for name, parameter in named:
            here, there = local(parameter), local(stored.like(name, parameter))
            other = here.to(dtypes[name]).to(there.dtype) != there
            differing += other.sum()
            here.copy_(torch.where(other, there.to(here.dtype), here))
    dist.all_reduce(differing)
    return int(differing)


def _fits(named: list[tuple[str, Tensor]], stored: Stored, weights: Path) -> None:
    """
    Raises:
        CheckpointInvalid: a tensor is missing or of another shape.
    """
    for name, parameter in named:
        if name not in stored or stored.shape(name) != tuple(parameter.shape):
            raise CheckpointInvalid(f"{weights}: {name} is missing or of another shape")


def _state_files(directory: Path) -> Iterator[Path]:
    """
    Raises:
        CheckpointInvalid: there are none, or a rank's file is missing.
    """
    found = sorted(directory.glob("optimizer*.safetensors"))
    ranks = int(found[0].stem.rpartition("-")[2]) if found and "-of-" in found[0].stem else 1
    if len(found) != ranks:
        raise CheckpointInvalid(f"{directory}: {len(found)} of {ranks} optimizer files")
    yield from found
