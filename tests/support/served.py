"""Something on loopback, served from a thread of its own: an ASGI application, by the server that the daemon uses."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio.from_thread
import hypercorn.config
from hypercorn.asyncio import serve
from starlette.types import ASGIApp

from tests.support.patience import wait_until, within
from tests.support.ports import free_port
from tests.support.process import listens


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The application's base address."""
    config, port = hypercorn.config.Config(), free_port()
    config.bind, config.accesslog, config.errorlog, config.graceful_timeout = [f"127.0.0.1:{port}"], None, None, 0.2
    with anyio.from_thread.start_blocking_portal() as portal:
        stop = portal.call(asyncio.Event)
        running = portal.start_task_soon(lambda: serve(app, config, shutdown_trigger=stop.wait))  # type: ignore[arg-type]
        wait_until(lambda: listens(port), f"port {port} is open")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            portal.call(stop.set)
            running.result(within())
