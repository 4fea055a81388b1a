"""The tap: listens, serves, and drains.

Draining: no new connections, idle ones are closed, calls under way are finished, the spool is flushed.
"""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from daemon.figures import Figures
from daemon.tap.admission import Admission
from daemon.tap.agent import AgentConnection
from daemon.tap.body_budget import BodyBudget
from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, response_bytes
from daemon.tap.keys import check_host
from daemon.tap.metrics import Counts, tap_metrics
from daemon.tap.place import Place, Told, admin_port, told
from daemon.tap.proxy import Proxy
from daemon.tap.recorder import Recorder
from daemon.tap.recorder_wire import Order
from daemon.tap.request import Head, Request
from daemon.tap.route_table import table_path
from daemon.tap.router import Router
from daemon.tap.settings import TapSettings, agents_tls, engines_tls
from daemon.tap.sockets import AGENTS, MIRROR, Sockets, bind, port_of
from daemon.tap.spool import spool_age
from daemon.tap.upstream import Upstream, bracketed

_BACKLOG = 1024
_HEALTH_SECONDS = 5.0
"""How often each of several engines is asked for /health."""
_ROUTES_SECONDS = 0.2
"""How often the daemon's routes are looked at: the swapper waits a second for an engine that it closed."""

log = structlog.get_logger(__name__)


class Bound(msgspec.Struct, frozen=True):
    """Where the tap listens."""

    port: int
    admin_port: int
    mirror_port: int | None = None


class Tap:
    """Puts the parts together and keeps the connections. Runs on asyncio."""

    def __init__(
        self, settings: TapSettings, redaction: dict[str, Any] | None = None, sockets: Sockets | None = None
    ) -> None:
        """`redaction` are fields of `adapters.redaction.RedactionSettings`; `sockets` listen already, instead of host
        and port of the settings.
        """
        self._settings, self._sockets = settings, sockets or {}
        self.counts = Counts()
        self.place = Place(Path(settings.spool_dir).absolute(), settings.number)
        directory = self.place.directory
        self.spool = Recorder(
            Order(directory=str(directory), disk_bytes=settings.spool_disk_bytes, redaction=redaction or {}),
            memory_bytes=settings.spool_memory_bytes,
            rng=random.Random(),
        )
        self._tls = agents_tls(settings)
        upstreams = [
            Upstream(
                one.name,
                one.address,
                weight=one.weight,
                tls=engines_tls(settings) if one.address.tls else None,
                clock=time.monotonic,
            )
            for one in settings.upstreams
        ]
        self.router = Router(upstreams, table=table_path(os.environ, directory.parent), rng=random.Random())
        self._door, self._budget = Admission(settings.door, clock=time.time), BodyBudget()
        check_host("tap.admin", settings.admin_host, self._door.ring)
        self._proxy = Proxy(
            self.router,
            self.spool,
            self._door,
            self.counts,
            tokens=settings.capture_tokens,
            first_byte_seconds=settings.first_byte_seconds,
        )
        self._agents: set[AgentConnection] = set()
        self._admins: set[AgentConnection] = set()
        self.registry = CollectorRegistry()
        """Of the metrics on the admin port."""
        ProcessCollector(registry=self.registry)
        self.registry.register(Figures(Tap._metrics, self))

    async def run(self, stop: anyio.Event, ready: Callable[[Bound], None]) -> None:
        """Serve until `stop`, and drain; `ready` is told once it listens."""
        written = asyncio.Event()
        async with self._listening() as (listeners, bound), asyncio.TaskGroup() as group:
            recorder = group.create_task(self.spool.run(written))
            watching = (
                self.router.watch(_HEALTH_SECONDS),
                self.router.follow(Path(self._settings.routes_file), _ROUTES_SECONDS),
            )
            helpers = [group.create_task(one) for one in (self._watch(), self._sweep(), *watching)]
            try:
                log.info(
                    "tap_listening",
                    number=self.place.number,
                    host=self._settings.host,
                    port=bound.port,
                    admin_port=bound.admin_port,
                    upstream=[f"{one.name}={one.authority.decode()}" for one in self.router.upstreams],
                )
                ready(bound)
                await stop.wait()
                for listener in listeners:
                    listener.close()
                await self._drain()
            finally:
                for helper in helpers:
                    helper.cancel()
                for agent in (*self._agents, *self._admins):
                    agent.cut()
                for upstream in self.router.upstreams:
                    upstream.close()
                written.set()
            await recorder
        self.place.leave()
        log.info("tap_ended", **self.spool.counts)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[tuple[list[asyncio.Server], Bound]]:
        """The servers of agents and mirror, which a drain closes first; the page stays to the end."""
        settings, place = self._settings, self.place
        others = {port for other in told(place.directory.parent) for port in other.ports}
        public = self._sockets.get(AGENTS) or bind(settings.host, settings.port, "tap.listen", others)
        mirror = self._sockets.get(MIRROR, [])
        if settings.mirror_port is not None and not mirror:
            mirror = bind(settings.mirror_host, settings.mirror_port, "tap.mirror", others)
        admin = bind(
            settings.admin_host, admin_port(settings.admin_port, place.number, settings.named_ports), "tap.admin"
        )
        bound = Bound(port_of(public), port_of(admin), port_of(mirror) if mirror else None)
        # Before it listens: another tap that finds somebody on the port is to know who it is.
        ports = (bound.port,) if bound.mirror_port is None else (bound.port, bound.mirror_port)
        page = f"{bracketed(settings.admin_host)}:{bound.admin_port}"
        place.tell(Told(number=place.number, pid=os.getpid(), ports=ports, admin=page))
        tls, agents = self._tls and self._tls.context, self._agents
        servers = await _serve(public, lambda: self._connection(self._proxy.answer, self._proxy.admit, agents), tls)
        servers += await _serve(mirror, lambda: self._connection(self._proxy.mirror, self._door.check, agents))
        admit_admin = self._door.admit_admin
        pages = await _serve(admin, lambda: self._connection(self._page, admit_admin, self._admins, Counts()))
        try:
            yield servers, bound
        finally:
            for server in (*servers, *pages):
                server.close()

    def _connection(
        self,
        answer: Callable[[Request, AgentConnection], object],
        admit: Callable[[Head], object],
        agents: set[AgentConnection],
        counts: Counts | None = None,
    ) -> AgentConnection:
        settings = self._settings
        parser = RequestParser(
            max_body_bytes=settings.max_body_bytes, clock=time.time, admit=admit, budget=self._budget
        )
        return AgentConnection(answer, parser, agents, counts or self.counts, max_connections=settings.max_connections)

    def _page(self, request: Request, agent: AgentConnection) -> None:
        """The tap's own page: /metrics (Prometheus), for an operator's key of scope `read` once there is one, /healthz
        and /readyz, which say 200 while it serves. The engine's health is at /health of the other port.
        """
        if request.path in (b"/healthz", b"/readyz"):
            agent.reply(response_bytes(200, b'{"status":"ok"}', close=agent.closing))
            return
        self._door.admit_admin(request.head)
        if request.path != b"/metrics":
            raise Refused(404, "unknown_path", "here are /metrics, /healthz and /readyz")
        agent.reply(response_bytes(200, generate_latest(self.registry), content_type=CONTENT_TYPE_LATEST))

    async def _watch(self) -> None:
        """Deadlines of all connections with one task: a timer for every piece of a stream would cost most of all."""
        while True:
            await asyncio.sleep(min(self._settings.first_byte_seconds, 2.0) / 4)
            now = time.monotonic()
            for agent in [one for one in (*self._agents, *self._admins) if one.due <= now]:
                agent.late()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for upstream in self.router.upstreams:
                upstream.sweep()
            self._door.reload()
            self.place.hold()
            if self._tls is not None:
                self._tls.refresh()

    async def _drain(self) -> None:
        # What was accepted in the same round of the loop is made in the next one, or after its handshake.
        await asyncio.sleep(0)
        log.info("tap_draining", connections=len(self._agents), in_flight=self.router.in_flight)
        end = time.monotonic() + self._settings.drain_seconds
        while self._agents and time.monotonic() < end:
            for agent in tuple(self._agents):
                if not agent.closing:
                    agent.finish()
            await asyncio.sleep(0.05)
        if self._agents:
            self.counts.errors["cut_off"] += len(self._agents)
            log.warning("drain_deadline_passed", connections=len(self._agents))

    def _metrics(self) -> Iterable[Metric]:
        waits = spool_age(self.place.directory, time.time())
        return tap_metrics(self.counts, self.spool, self.router, waits)


async def _serve(
    sockets: list[socket.socket], connection: Callable[[], AgentConnection], tls: ssl.SSLContext | None = None
) -> list[asyncio.Server]:
    loop = asyncio.get_running_loop()
    return [await loop.create_server(connection, sock=one, ssl=tls, backlog=_BACKLOG) for one in sockets]
