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
_GRACE_SECONDS = 1.0
"""For what is under way at the end."""


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
    config, until = ServerConfig(), stop or anyio.Event()
    config.bind, config.tls = [f"{host}:{port}"], tls
    config.accesslog = config.errorlog = None
    config.graceful_timeout = _GRACE_SECONDS
    if sniffio.current_async_library() == "trio":
        from hypercorn.trio import serve as run
    else:
        from hypercorn.asyncio import serve as run  # type: ignore[assignment]  # same signature, other loop
    async with anyio.create_task_group() as group:
        if tls is not None:
            group.start_soon(watch, tls)
        ready()
        await run(app, config, shutdown_trigger=until.wait)  # type: ignore[arg-type]  # hypercorn's types are narrower
        group.cancel_scope.cancel()


async def watch(tls: ServerTls) -> None:
    """Take over renewed certificates, until cancelled."""
    while True:
        await anyio.sleep(_LOOK_SECONDS)
        tls.refresh()
