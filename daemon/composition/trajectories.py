"""Trajectories in the daemon: the assembler, which links calls."""

import time

from actors.trajectories.assembler import Assembler
from daemon.collectors.trajectories import assembler_figures
from daemon.composition.wiring import Wiring
from daemon.settings.config import serving_engines


def trajectories(wiring: Wiring) -> None:
    """Calls to trajectories."""
    config = wiring.config
    assembler = Assembler(
        config.assembler, store=wiring.parts.store, clock=wiring.clock, serving=wiring.times.version,
        ticks=time.monotonic, engine=wiring.parts.engines[next(iter(serving_engines(config)))],
        engines={name: wiring.parts.engines[name] for name in serving_engines(config)},
    )  # fmt: skip
    wiring.figures(assembler_figures, assembler)
    wiring.act(assembler, leads=True, renews=True)
