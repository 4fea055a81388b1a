"""Where the control API listens: the same before this daemon leads and after."""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import anyio
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from starlette.types import ASGIApp

from actors.system.bus import Bus
from actors.system.errors import ActorSystemError
from actors.system.lifecycle import Lifecycle, Task
from actors.system.metrics import SystemMetrics
from actors.system.supervisor import Supervisor
from daemon.api.admin import admin_keys
from daemon.api.health import Heads
from daemon.api.tls import ServerTls, server_tls
from daemon.figures import Figures, gauge
from daemon.processes.asgi import serve
from daemon.settings import control as settings
from daemon.settings.tables import Config
from daemon.tap.keys import KeyRing

log = structlog.get_logger(__name__)
_LOOK_SECONDS = 5.0


class Listener:
    """The address, its certificate, and the keys of those who may come in.

    Raises:
        KeysUnusable: the key file cannot be used, or other hosts can reach the address and it holds no key.
        ConfigError: other hosts can reach the address and TLS is off.
    """

    def __init__(self, config: Config, registry: CollectorRegistry) -> None:
        self._where = where = settings.where(config.control)
        self._tls = server_tls(where.tls_cert, where.tls_key, section="control")
        self._keys = admin_keys(config.keys, where.host, protected=self._tls is not None or where.behind_tls_proxy)
        if self._tls is not None:
            registry.register(Figures(_certificate_figures, self._tls))

    def task(
        self, make: Callable[[Sequence[str], KeyRing | None], ASGIApp], look: Callable[[], Awaitable[None]]
    ) -> Task:
        """Serves the application that `make` makes for the names that it may be called by, and for the keys.

        Args:
            look: called meanwhile, every five seconds.
        """
        where = self._where

        async def run(lifecycle: Lifecycle) -> None:
            app = make(where.allowed_hosts, self._keys)
            async with anyio.create_task_group() as group:
                group.start_soon(partial(serve, app, where.host, where.port, tls=self._tls, ready=lifecycle.ready))
                going = True
                while going:
                    await look()
                    lifecycle.beat()
                    going = await lifecycle.pause(_LOOK_SECONDS)
                group.cancel_scope.cancel()

        return run


async def observe(supervisor: Supervisor, bus: Bus, metrics: SystemMetrics, heads: Heads) -> None:
    """Look at actors and bus for `/metrics` and `/readyz`."""
    metrics.observe(supervisor.state())
    try:
        depths = await bus.depth()
        heads.look(depths, time.monotonic())
        for durable, depth in depths.items():
            metrics.observe_depth(durable, depth.waiting, depth.in_flight)
    except ActorSystemError as error:
        log.debug("depth.unknown", reason=str(error))


def _certificate_figures(tls: ServerTls) -> Iterator[Metric]:
    yield gauge(
        "evolved_control_certificate_expiry_timestamp_seconds", "When the control API's certificate expires.",
        tls.expires,
    )  # fmt: skip
