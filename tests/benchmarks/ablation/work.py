"""What worker processes do with a cell: spawned ones cannot import it from `__main__`."""

import multiprocessing
import os
import threading
from multiprocessing import connection

from tests.benchmarks.ablation import bases
from tests.benchmarks.ablation.loop import Ran, run
from tests.benchmarks.ablation.plan import Cell


def die_with_parent() -> None:
    """Initialise a worker: a pool's processes would outlive a parent that is killed, waiting for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def play_cell(cell: Cell, end: float | None) -> Ran:
    """Run one cell; raises `Stopped` past `end`, unix seconds."""
    directory = bases.warm_start(cell.warm) if cell.setup.start == "warm" else bases.trained(cell.warm)
    return run(cell.setup, bases.require(directory), cell.seed, name=cell.name, end=end)
