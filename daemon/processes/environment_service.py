"""`evolved environments serve`: an environment over HTTP, behind a door that takes keys of scope `environment`.

On loopback nobody needs a key unless it is asked for; on any other address everybody does.
"""

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from actors.ports.environments import Environment
from adapters.environments.http.service import EnvironmentService
from adapters.environments.workers import WorkerEnvironment
from daemon.api.tls import server_tls
from daemon.composition.environments import environment_figures
from daemon.errors import ConfigError
from daemon.figures import Figures
from daemon.processes.asgi import serve
from daemon.tap.errors import Refused
from daemon.tap.keys import KeyRing, is_loopback

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    host: str = "127.0.0.1"
    port: int = 8100
    require_key: bool = False
    tls_cert: str = ""
    """PEM file; empty: plain HTTP."""
    tls_key: str = ""
    max_instances: int = 256
    idle_seconds: float = 900.0
    call_seconds: float = 60.0


class EnvironmentKeys:
    """ASGI middleware: lets requests with an active key of scope `environment` pass, and questions after our health."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] != "/healthz":
            self._keys.refresh()
            try:
                self._keys.check(dict(scope["headers"]), "environment")
            except Refused as refusal:
                error = {"kind": "key", "message": str(refusal)}
                answer = JSONResponse({"success": False, "error": error}, 401)
        await answer(scope, receive, send)


def door(settings: ServeSettings, keys_file: Path | None, *, clock: Callable[[], float]) -> tuple[Middleware, ...]:
    """Who may come in.

    Raises:
        ConfigError: keys are needed and no key file is set.
        KeysUnusable: the key file cannot be read.
    """
    loopback = is_loopback(settings.host)
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(_LOOPBACK) if loopback else ["*"])
    if loopback and not settings.require_key:
        return (hosts,)
    if keys_file is None:
        raise ConfigError(
            f"--host {settings.host}: whoever comes in needs a key; make one with `evolved keys add --scope "
            "environment --tenant NAME`, or listen on 127.0.0.1 without --require-key"
        )
    return (hosts, Middleware(EnvironmentKeys, keys=KeyRing(keys_file, clock=clock)))


async def serve_environment(
    environment: Environment, settings: ServeSettings, keys_file: Path | None, *, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT."""
    service = EnvironmentService(
        {environment.name: environment}, max_instances=settings.max_instances, idle_seconds=settings.idle_seconds,
        call_seconds=settings.call_seconds,
    )  # fmt: skip
    registry = CollectorRegistry()
    registry.register(Figures(partial(environment_figures, "http"), service))
    if isinstance(environment, WorkerEnvironment):
        registry.register(Figures(partial(environment_figures, "workers"), environment))

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app = service.app(middleware=door(settings, keys_file, clock=time.time), routes=(Route("/metrics", metrics),))
    tls = server_tls(settings.tls_cert, settings.tls_key, section="environments serve")
    stop = anyio.Event()

    async def until_told() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                stop.set()
                return

    async with anyio.create_task_group() as group:
        group.start_soon(until_told)
        await serve(app, settings.host, settings.port, tls=tls, ready=ready, stop=stop)
        group.cancel_scope.cancel()
    if isinstance(environment, WorkerEnvironment):
        await environment.aclose()
