"""Trajectories in the daemon: the assembler, which links calls."""

import time

from actors.trajectories.assembler import Assembler
from daemon.collectors.trajectories import assembler_figures
from daemon.composition.wiring import Wiring


def trajectories(wiring: Wiring) -> None:
    """Calls to trajectories."""
    config = wiring.config
    assembler = Assembler(
        config.assembler, store=wiring.parts.store, clock=wiring.clock, serving=wiring.times.version,
        ticks=time.monotonic,
    )  # fmt: skip
    wiring.figures(assembler_figures, assembler)
    wiring.reloading.part("assembler", assembler.reconfigure)
    wiring.act(assembler, leads=True, renews=True)
