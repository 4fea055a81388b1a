"""What worker processes do: make a checkpoint, or run a cell. Spawned ones cannot import it from `__main__`."""

import multiprocessing
import os
import shutil
import threading
import time
from multiprocessing import connection

from tests.benchmarks.ablation import bases
from tests.benchmarks.ablation.loop import Ran, run
from tests.benchmarks.ablation.plan import Cell, Setup
from tests.warmstart import courses

TRAINING = Setup(updates=30, eval_every=5, learner={"lr": 5e-4, "credit": {"alpha": 0.0}})
"""How a warm start becomes the policy that drifts and forgetting begin from: GRPO on the short desk."""


def die_with_parent() -> None:
    """Initialise a worker: a pool's processes would outlive a parent that is killed, waiting for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def play_cell(cell: Cell, end: float | None) -> Ran:
    """Run one cell, in a worker.

    Raises:
        BaseMissing: its checkpoint has not been prepared.
        Stopped: it is past `end`, unix seconds.
    """
    directory = bases.warm_start(cell.warm) if cell.setup.start == "warm" else bases.trained(cell.warm)

    def late() -> bool:
        return end is not None and time.time() > end

    return run(cell.setup, bases.require(directory), cell.seed, name=cell.name, stop=late)


def warm_start(seed: int) -> None:
    """Train the warm start of `seed` unless it is there; minutes."""
    directory = bases.warm_start(seed)
    if not (directory / "model.safetensors").exists():
        aside = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        courses.run(aside, seed, lambda line: print(f"warm start {seed}: {line}", flush=True), attempts=bases.ATTEMPTS)
        os.replace(aside, directory)


def trained(seed: int) -> None:
    """Train the warm start of `seed` on, unless that is done.

    Raises:
        BaseMissing: there is no warm start.
    """
    directory, start = bases.trained(seed), bases.require(bases.warm_start(seed))
    if not (directory / "model.safetensors").exists():
        aside = bases.ROOT / f".trained-{seed}.part"
        aside.mkdir(parents=True, exist_ok=True)
        run(TRAINING, start, seed, name=f"trained {seed}", keep=aside)
        for name in bases.FILES:
            shutil.copy(start / name, aside / name)
        os.replace(aside, directory)
