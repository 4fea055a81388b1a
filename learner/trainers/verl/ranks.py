"""Several ranks as one trainer: rank 0 runs the learner's service, the others do what it tells them to do.

    torchrun -> rank 0: service -> Updater -> Leader -> VerlTrainer
             -> rank n: follow                       -> VerlTrainer

Before each call rank 0 broadcasts what it is: a method, directories, a seed, the path of the packed batch. After it,
all tell each other whether they got through. A rank that dies takes the rest with it (torchrun sees to that, and a
broken collective does), and the next start goes on from disk, where only whole versions are.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
import torch
import torch.distributed as dist
from safetensors import SafetensorError

from actors.messages import FileDigest
from learner.batch import TrajectoryBatch
from learner.errors import LearnerError, RankFailed
from learner.settings import LearnerSettings
from learner.trainers import Trainer, UpdateReport
from learner.trainers.verl import engine
from learner.trainers.verl.trainer import VerlTrainer

_log = structlog.get_logger(__name__)
R = TypeVar("R")
IDLE = timedelta(days=3650)
"""How long the others wait for rank 0's next word: traffic may stop for days. Collectives within a call keep torch's
own, short limit."""
WORK = timedelta(minutes=30)
_AGREED = (LearnerError, OSError, SafetensorError)
"""Errors after which a rank has nothing left to say to the others but that it failed; any other ends the process."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 is about to do."""

    method: str
    """`open`, `log_probs`, `update`, `save`, `save_state`, `restore`, `settle`, or `stop`."""
    path: str = ""
    second: str | None = None
    """A second directory, if the method takes one."""
    seed: int = 0
    rewarm: bool = False


def join() -> None:
    """Join the process group that torchrun's environment names, or make one of this process alone."""
    if dist.is_initialized():
        return
    where = engine.device()
    backend = "gloo" if where.type == "cpu" else "cpu:gloo,cuda:nccl"
    if where.type == "cuda":
        torch.cuda.set_device(where)
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=WORK)
    else:
        store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage] - documented, not in __all__
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=WORK)


def is_follower() -> bool:
    """Whether torchrun started this process as another rank than 0."""
    return int(os.environ.get("RANK", "0")) > 0


class Leader:
    """The `Trainer` of rank 0."""

    def __init__(self, settings: LearnerSettings) -> None:
        """
        Raises:
            TrainerUnavailable: verl cannot run here.
        """
        engine.require()
        join()
        self._settings, self._words = settings, _Words()
        self._trainer: VerlTrainer | None = None

    def open(self, weights: Path, reference: Path) -> Trainer:
        """Load a model on every rank, in place of the one before.

        Raises:
            LearnerError: see `VerlTrainer`.
        """
        self._trainer = None  # its memory is needed
        call = Call(method="open", path=str(weights), second=str(reference))
        self._trainer = self._together(call, lambda: VerlTrainer(self._settings, weights, reference=reference))
        return self

    def stop(self) -> None:
        """Let the other ranks go; nothing can be called after it."""
        self._words.say(Call(method="stop"))
        dist.destroy_process_group()

    @property
    def vocabulary(self) -> int:
        return self._own.vocabulary

    @property
    def max_tokens(self) -> int:
        return self._own.max_tokens

    def log_probs(self, batch: TrajectoryBatch) -> npt.NDArray[np.float32]:
        return self._on_batch("log_probs", batch, 0, lambda: self._own.log_probs(batch))

    def update(self, batch: TrajectoryBatch, *, seed: int) -> UpdateReport:
        return self._on_batch("update", batch, seed, lambda: self._own.update(batch, seed=seed))

    def save(self, directory: Path) -> Sequence[FileDigest]:
        return self._together(Call(method="save", path=str(directory)), lambda: self._own.save(directory))

    def save_state(self, directory: Path) -> Sequence[FileDigest]:
        return self._together(Call(method="save_state", path=str(directory)), lambda: self._own.save_state(directory))

    def restore(self, weights: Path, state: Path | None, *, rewarm: bool = False) -> None:
        second = str(state) if state is not None else None
        call = Call(method="restore", path=str(weights), second=second, rewarm=rewarm)
        self._together(call, lambda: self._own.restore(weights, state, rewarm=rewarm))

    def settle(self, weights: Path) -> int:
        return self._together(Call(method="settle", path=str(weights)), lambda: self._own.settle(weights))

    @property
    def _own(self) -> VerlTrainer:
        assert self._trainer is not None, "open() comes first"
        return self._trainer

    def _on_batch(self, method: str, batch: TrajectoryBatch, seed: int, own: Callable[[], R]) -> R:
        batch.check()  # here, not when the others load it and this rank is already waiting for them in a collective
        if dist.get_world_size() == 1:
            return own()
        with tempfile.TemporaryDirectory(prefix="evolved-batch-") as directory:
            path = Path(directory) / "batch.safetensors"
            batch.save(path)
            return self._together(Call(method=method, path=str(path), seed=seed), own)

    def _together(self, call: Call, own: Callable[[], R]) -> R:
        """Tell the others, do the own part, hear how it went.

        Raises:
            RankFailed: another rank's error; its log has it in full.
        """
        self._words.say(call)
        try:
            result = own()
        except _AGREED as error:
            self._words.outcomes(error)
            raise
        failed = [text for text in self._words.outcomes(None) if text]
        if failed:
            raise RankFailed(f"{call.method}: {failed[0]}")
        return result


def follow(settings: LearnerSettings) -> int:
    """The life of a rank above 0: do as rank 0 says until it says stop; the exit status.

    Raises:
        TrainerUnavailable: verl cannot run here.
        RuntimeError: rank 0 is gone, or a collective broke.
    """
    engine.require()
    # A stop is rank 0's to decide: it may be in the midst of an update that needs all ranks.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    join()
    words, trainer = _Words(), None
    while (call := words.hear()).method != "stop":
        failure: Exception | None = None
        try:
            if call.method == "open":
                trainer = None
                trainer = VerlTrainer(settings, Path(call.path), reference=Path(call.second) if call.second else None)
            else:
                assert trainer is not None, "rank 0 opens a model first"
                _do(trainer, call)
        except _AGREED as error:
            failure = error
            _log.error("rank_failed", rank=dist.get_rank(), call=call.method, reason=str(error))
        words.outcomes(failure)
    dist.destroy_process_group()
    return 0


def _do(trainer: VerlTrainer, call: Call) -> None:
    path = Path(call.path)
    match call.method:
        case "log_probs":
            trainer.log_probs(TrajectoryBatch.load(path))
        case "update":
            trainer.update(TrajectoryBatch.load(path), seed=call.seed)
        case "save":
            trainer.save(path)
        case "save_state":
            trainer.save_state(path)
        case "restore":
            state = Path(call.second) if call.second is not None else None
            trainer.restore(path, state, rewarm=call.rewarm)
        case "settle":
            trainer.settle(path)
        case other:
            raise AssertionError(other)


class _Words:
    """What ranks say to each other beside tensors: a group of its own, over gloo, that may wait for days."""

    def __init__(self) -> None:
        self._group: Any = dist.new_group(backend="gloo", timeout=IDLE) if dist.get_world_size() > 1 else None

    def say(self, call: Call) -> None:
        """Rank 0: to all."""
        if self._group is None:
            return
        data = msgspec.msgpack.encode(call)
        dist.broadcast(torch.tensor([len(data)]), src=0, group=self._group)
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), src=0, group=self._group)

    def hear(self) -> Call:
        """Another rank: wait for the next call."""
        size = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(size, src=0, group=self._group)
        word = torch.zeros(int(size), dtype=torch.uint8)
        dist.broadcast(word, src=0, group=self._group)
        return msgspec.msgpack.decode(word.numpy().tobytes(), type=Call)

    def outcomes(self, failure: Exception | None) -> list[str]:
        """How every rank's part went, "" for well; whoever comes here has left no collective open."""
        own = "" if failure is None else f"{type(failure).__name__}: {failure}"
        if self._group is None:
            return [own]
        found: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(found, own, group=self._group)
        return found
