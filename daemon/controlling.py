"""The task that serves the control API, and meanwhile looks at the actors and the bus for `/metrics`."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import structlog

from actors.system.errors import ActorSystemError
from actors.system.life import Life
from actors.system.supervisor import Supervisor
from daemon.admin import admin_keys
from daemon.config import Config
from daemon.control import Control, serve
from daemon.parts import Parts

log = structlog.get_logger(__name__)


def control_task(
    config: Config, parts: Parts, supervisor: Supervisor, make: Callable[..., Control]
) -> Callable[[Life], Awaitable[None]]:
    """The control API's task; `make` lacks what depends on the bus."""
    store, bus = parts.store, parts.bus
    keys = admin_keys(config.keys, config.control.host)

    async def retry(dead_id: str) -> bool:
        item = await store.revive(dead_id)
        if item is None:
            return False
        await bus.publish([item])
        await store.bury(dead_id)
        return True

    control = make(
        retry=retry,
        describe={
            "sandbox": config.sandbox.environment or None,
            "engines": {name: engine.url for name, engine in parts.engines.items()},
            "tap": f"http://{config.tap.host}:{config.tap.port}",
        },
    )

    async def observe(life: Life) -> None:
        while not life.draining.is_set():
            parts.metrics.observe(supervisor.state())
            try:
                for durable, depth in (await bus.depth()).items():
                    parts.metrics.observe_depth(durable, depth)
            except ActorSystemError as error:
                log.debug("depth.unknown", reason=str(error))
            life.beat()
            await life.pause(5.0)

    async def run(life: Life) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(observe, life)
            group.start_soon(
                partial(serve, control.app(config.control.allowed_hosts, keys), config.control, ready=life.ready)
            )
            await life.draining.wait()
            group.cancel_scope.cancel()

    return run
