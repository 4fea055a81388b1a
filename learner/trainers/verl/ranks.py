"""Several ranks as one trainer: rank 0 runs the learner's service, the others do what it tells them to do.

    torchrun -> rank 0: service -> Updater -> Leader -> VerlTrainer
             -> rank n: follow                       -> VerlTrainer

Before each call rank 0 broadcasts the method and its arguments, the packed batch among them. After it, all tell each
other whether they got through. A rank that dies takes the rest with it (torchrun sees to that, and a
broken collective does), and the next start goes on from disk, where only whole versions are.
"""

import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

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
IDLE = timedelta(days=3650)
"""How long the others wait for rank 0's next word: traffic may stop for days. Collectives within a call keep torch's
own, short limit."""
WORK = timedelta(minutes=30)
_AGREED = (LearnerError, OSError, SafetensorError)
"""Errors after which a rank has nothing left to say to the others but that it failed; any other ends the process."""


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
        """Load a model on every rank, in place of the one before."""
        self._trainer = None  # its memory is needed
        self._trainer = self._together("open", weights, reference)
        return self

    def stop(self) -> None:
        """Let the other ranks go; nothing can be called after it."""
        self._words.say("stop")
        dist.destroy_process_group()

    @property
    def vocabulary(self) -> int:
        return self._own.vocabulary

    @property
    def max_tokens(self) -> int:
        return self._own.max_tokens

    def log_probs(self, batch: TrajectoryBatch) -> npt.NDArray[np.float32]:
        batch.check()  # here, not when the others are already waiting for this rank in a collective
        return self._together("log_probs", batch)

    def update(self, batch: TrajectoryBatch, *, seed: int) -> UpdateReport:
        batch.check()
        return self._together("update", batch, seed=seed)

    def save(self, directory: Path) -> Sequence[FileDigest]:
        return self._together("save", directory)

    def save_state(self, directory: Path) -> Sequence[FileDigest]:
        return self._together("save_state", directory)

    def restore(self, weights: Path, state: Path | None, *, rewarm: bool = False) -> None:
        self._together("restore", weights, state, rewarm=rewarm)

    def settle(self, weights: Path) -> int:
        return self._together("settle", weights)

    @property
    def _own(self) -> VerlTrainer:
        assert self._trainer is not None, "open() comes first"
        return self._trainer

    def _together(self, method: str, *given: Any, **named: Any) -> Any:
        """Tell the others, do the own part, hear how it went. Raises RankFailed: another rank's error; its log has
        it in full."""
        self._words.say(method, *given, **named)
        try:
            result = _do(self._settings, self._trainer, method, given, named)
        except _AGREED as error:
            self._words.outcomes(error)
            raise
        failed = [text for text in self._words.outcomes(None) if text]
        if failed:
            raise RankFailed(f"{method}: {failed[0]}")
        return result


def follow(settings: LearnerSettings) -> int:
    """The life of a rank above 0: do as rank 0 says until it says stop; the exit status. Raises TrainerUnavailable:
    verl cannot run here; RuntimeError: rank 0 is gone, or a collective broke."""
    engine.require()
    # A stop is rank 0's to decide: it may be in the midst of an update that needs all ranks.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    join()
    words, trainer = _Words(), None
    while (call := words.hear())[0] != "stop":
        method, given, named = call
        failure: Exception | None = None
        try:
            if method == "open":
                trainer = None  # its memory is needed
                trainer = _do(settings, None, method, given, named)
            else:
                _do(settings, trainer, method, given, named)
        except _AGREED as error:
            failure = error
            _log.error("rank_failed", rank=dist.get_rank(), call=method, reason=str(error))
        words.outcomes(failure)
    dist.destroy_process_group()
    return 0


def _do(
    settings: LearnerSettings, trainer: VerlTrainer | None, method: str, given: Sequence[Any], named: dict[str, Any]
) -> Any:
    """One rank's part of a call."""
    if method == "open":
        weights, reference = given
        return VerlTrainer(settings, weights, reference=reference)
    return getattr(trainer, method)(*given, **named)


class _Words:
    """What ranks say to each other beside tensors: a group of its own, over gloo, that may wait for days."""

    def __init__(self) -> None:
        self._group: Any = dist.new_group(backend="gloo", timeout=IDLE) if dist.get_world_size() > 1 else None

    def say(self, method: str, *given: Any, **named: Any) -> None:
        """Rank 0: to all."""
        if self._group is not None:
            dist.broadcast_object_list([(method, given, named)], src=0, group=self._group)

    def hear(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Another rank: wait for the next call."""
        word: list[Any] = [None]
        dist.broadcast_object_list(word, src=0, group=self._group)
        return word[0]

    def outcomes(self, failure: Exception | None) -> list[str]:
        """How every rank's part went, "" for well; whoever comes here has left no collective open."""
        own = "" if failure is None else f"{type(failure).__name__}: {failure}"
        if self._group is None:
            return [own]
        found: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(found, own, group=self._group)
        return found
