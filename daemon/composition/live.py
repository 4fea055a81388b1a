"""Live APIs as a part of the daemon: its task, its figures, its routes."""

import time

from actors.system.lifecycle import Restart
from daemon.api.live import LiveRoutes
from daemon.api.orders import notice
from daemon.collectors.figures import Figures
from daemon.collectors.live import live_figures
from daemon.composition.wiring import Wiring
from daemon.live.registry import Live


def live_apis(wiring: Wiring) -> LiveRoutes:
    """The live APIs that are registered; their shadow is an environment."""
    config, parts = wiring.config, wiring.parts

    async def note(what: str, details: dict[str, str], by: str) -> None:
        await parts.store.save([notice(what, details, by=by, now=time.time())])

    live = Live(config.adapters, config.live, config.state, note=note)
    parts.registry.register(Figures(live_figures, live))
    wiring.supervisor.add("live", live.run, Restart(critical=False))
    return LiveRoutes(live)
