"""The task that serves the control API, and meanwhile looks at the actors and the bus for `/metrics`."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import anyio
import structlog
from prometheus_client.core import Metric

from actors.system.errors import ActorSystemError
from actors.system.lifecycle import Lifecycle
from actors.system.supervisor import Supervisor
from daemon.api.admin import admin_keys
from daemon.api.control import Control
from daemon.api.tls import ServerTls, server_tls
from daemon.collectors.figures import Figures, gauge
from daemon.composition.resources import Resources
from daemon.ingest.dead_letters import put_back
from daemon.processes.asgi import serve
from daemon.settings import control as settings
from daemon.settings.tables import Config

log = structlog.get_logger(__name__)


def _certificate_figures(tls: ServerTls) -> Iterator[Metric]:
    yield gauge(
        "evolved_control_certificate_expiry_timestamp_seconds", "When the control API's certificate expires.",
        tls.expires,
    )  # fmt: skip


def control_task(
    config: Config, parts: Resources, supervisor: Supervisor, make: Callable[..., Control]
) -> Callable[[Lifecycle], Awaitable[None]]:
    """The control API's task; `make` lacks what depends on the bus."""
    store, bus = parts.store, parts.bus
    where = settings.where(config.control)
    tls = server_tls(where.tls_cert, where.tls_key, section="control")
    keys = admin_keys(config.keys, where.host, protected=tls is not None or where.behind_tls_proxy)
    if tls is not None:
        parts.registry.register(Figures(_certificate_figures, tls))

    control = make(
        retry=partial(put_back, bus, store),
        describe={
            "sandbox": config.sandbox.environment or None,
            "engines": {name: engine.url for name, engine in parts.engines.items()},
            "tap": f"http://{config.tap.listen}",
        },
    )

    async def observe(lifecycle: Lifecycle) -> None:
        while not lifecycle.draining.is_set():
            parts.metrics.observe(supervisor.state())
            try:
                for durable, depth in (await bus.depth()).items():
                    parts.metrics.observe_depth(durable, depth.waiting, depth.in_flight)
            except ActorSystemError as error:
                log.debug("depth.unknown", reason=str(error))
            lifecycle.beat()
            await lifecycle.pause(5.0)

    async def run(lifecycle: Lifecycle) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(observe, lifecycle)
            app = control.app(where.allowed_hosts, keys)
            group.start_soon(partial(serve, app, where.host, where.port, tls=tls, ready=lifecycle.ready))
            await lifecycle.draining.wait()
            group.cancel_scope.cancel()

    return run
