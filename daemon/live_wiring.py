"""Live APIs as a part of the daemon: its task, its figures, its routes."""

from prometheus_client import CollectorRegistry

from actors.system.life import Restart
from actors.system.supervisor import Supervisor
from daemon.config import Config
from daemon.live import Live
from daemon.live_api import LiveRoutes
from daemon.live_metrics import LiveCollector


def live_apis(config: Config, registry: CollectorRegistry, supervisor: Supervisor) -> LiveRoutes:
    """Put the live APIs of `config` under `supervisor`.

    Raises:
        ConfigError, StartFailed: as `Live`.
    """
    live = Live(config.adapters, config.live, config.state)
    LiveCollector(live).register(registry)
    supervisor.add("live", live.run, Restart(critical=False))
    return LiveRoutes(live)
