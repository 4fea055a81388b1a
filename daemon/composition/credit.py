"""Credit in the daemon: the attributor and its judge."""

import time

from actors.credit.attributor import Attributor
from daemon.collectors.credit import attributor_figures
from daemon.composition.wiring import LONG, Wiring


def credit(wiring: Wiring) -> Attributor:
    """Trajectories to labels, a step each."""
    config, store = wiring.config, wiring.parts.store
    attributor = Attributor(
        config.attributor, judge=wiring.parts.adapter("judge", config.judge), evidence=store, store=store,
        clock=wiring.clock, ticks=time.monotonic,
    )  # fmt: skip
    wiring.figures(attributor_figures, attributor)
    # Two lanes share its judge's slots: while one writes a batch, or waits for its slowest, the other keeps them busy.
    wiring.act(attributor, LONG, renews=True)
    wiring.act(attributor, LONG, lane="-2")
    return attributor
