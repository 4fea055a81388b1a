"""Something on loopback, served from a thread of its own: an ASGI application, as the daemon would serve it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import anyio
import anyio.from_thread
from starlette.types import ASGIApp

from daemon.control import serve
from tests.benchmarks.report import await_port
from tests.support.engines import free_port


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The application's base address."""
    port = free_port()
    with anyio.from_thread.start_blocking_portal("trio") as portal:
        running = portal.start_task_soon(partial(serve, app, SimpleNamespace(host="127.0.0.1", port=port)))
        await_port(port)
        yield f"http://127.0.0.1:{port}"
        running.cancel()
