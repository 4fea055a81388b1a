"""What worker processes do: make a checkpoint, or run a cell. Spawned ones cannot import it from `__main__`."""

import multiprocessing
import os
import threading
import time
from multiprocessing import connection
from pathlib import Path

from tests.benchmarks.ablation import bases
from tests.benchmarks.ablation.loop import Progress, Ran, run
from tests.benchmarks.ablation.plan import Cell, Setup

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

    def tell(now: Progress) -> None:
        success = "" if now.success is None else f"  held out {now.success:.2f}"
        print(f"{cell.name}  {now.update}/{now.of}  training {now.training:.2f}{success}  {now.seconds:.0f} CPU-s",
              flush=True)  # fmt: skip

    def late() -> bool:
        return end is not None and time.time() > end

    return run(cell.setup, bases.require(directory), cell.seed, progress=tell, stop=late)


def warm_start(seed: int) -> None:
    """Make the warm start of `seed` if it is missing."""
    bases.make_warm_start(seed, lambda line: print(f"warm start {seed}: {line}", flush=True))


def trained(seed: int) -> None:
    """Make the trained policy of `seed` if it is missing.

    Raises:
        BaseMissing: there is no warm start.
    """

    def train(start: Path, seed: int) -> Path:
        aside = bases.ROOT / f".trained-{seed}.part"
        aside.mkdir(parents=True, exist_ok=True)
        run(TRAINING, start, seed, progress=lambda now: print(f"trained {seed}: {now}", flush=True), keep=aside)
        return aside

    bases.make_trained(seed, train)
