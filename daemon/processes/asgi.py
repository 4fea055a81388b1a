"""`serve`: an ASGI application on hypercorn, on whichever loop the caller runs, with TLS or without."""

import ssl
from collections.abc import Callable

import anyio
import hypercorn.config
import sniffio
from starlette.types import ASGIApp

from daemon.api.tls import ServerTls

_LOOK_SECONDS = 5.0
"""How often the certificate's files are looked at."""


class ServerConfig(hypercorn.config.Config):
    """Hypercorn's, with a context of ours: hypercorn reads its certificate once."""

    tls: ServerTls | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self.tls.context if self.tls is not None else None


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    tls: ServerTls | None = None,
    ready: Callable[[], None] = lambda: None,
    stop: anyio.Event | None = None,
) -> None:
    """Serve `app` until `stop` or a cancellation."""
    async with anyio.create_task_group() as group:
        if tls is not None:
            group.start_soon(watch, tls)
        ready()
        await serve_bound(app, f"{host}:{port}", tls=tls, stop=stop or anyio.Event(), grace=1.0)
        group.cancel_scope.cancel()


async def serve_bound(app: ASGIApp, bind: str, *, tls: ServerTls | None, stop: anyio.Event, grace: float) -> None:
    """Serve `app` at `bind` (HOST:PORT or fd://N) until `stop`; `grace` seconds for what is under way then."""
    config = ServerConfig()
    config.bind = [bind]
    config.tls = tls
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = grace
    if sniffio.current_async_library() == "trio":
        from hypercorn.trio import serve as run
    else:
        from hypercorn.asyncio import serve as run  # type: ignore[assignment]  # same signature, other loop
    await run(app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]  # hypercorn's ASGI types are narrower


async def watch(tls: ServerTls) -> None:
    """Take over renewed certificates, until cancelled."""
    while True:
        await anyio.sleep(_LOOK_SECONDS)
        tls.refresh()
