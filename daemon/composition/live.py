"""Live APIs as a part of the daemon: its task, its figures, its routes."""

import time

from prometheus_client import CollectorRegistry

from actors.store import Store
from actors.system.lifecycle import Restart
from actors.system.supervisor import Supervisor
from daemon.api.live import LiveRoutes
from daemon.api.orders import notice
from daemon.collectors.live import LiveCollector
from daemon.live.registry import Live
from daemon.settings.config import Config


def live_apis(config: Config, registry: CollectorRegistry, supervisor: Supervisor, store: Store) -> LiveRoutes:
    """Put the live APIs of `config` under `supervisor`.

    Raises:
        ConfigError, StartFailed: as `Live`.
    """

    async def note(what: str, details: dict[str, str], by: str) -> None:
        await store.save([notice(what, details, by=by, now=time.time())])

    live = Live(config.adapters, config.live, config.state, note=note)
    LiveCollector(live).register(registry)
    supervisor.add("live", live.run, Restart(critical=False))
    return LiveRoutes(live)
