"""The tap as a process: listens, serves, and drains on SIGTERM.

SIGTERM: no new connections, idle ones are closed, calls under way are finished, the spool is flushed. Under systemd its
socket unit keeps what arrives meanwhile for the next one; without, several taps may listen on one port (SO_REUSEPORT),
so a new one can take over before the old one goes; each needs its own spool.
"""

import asyncio
import contextlib
import gc
import os
import random
import signal
import stat
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
import structlog
import uvloop
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry

from daemon.tap.admin import AdminRoute
from daemon.tap.agent import Agent, Route
from daemon.tap.capture import Capture
from daemon.tap.door import Door
from daemon.tap.errors import InvalidTapSettings
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import RequestParser
from daemon.tap.metrics import Counts, SiblingsCollector, TapCollector
from daemon.tap.mint import Mint
from daemon.tap.plant import Plant
from daemon.tap.router import Router
from daemon.tap.routes import EngineRoute, MirrorRoute
from daemon.tap.routing import Routing
from daemon.tap.scribe import Scribe
from daemon.tap.scribe_wire import Order
from daemon.tap.settings import TapSettings, agents_tls, captured_headers, engines_tls, upstreams_of
from daemon.tap.siblings import Siblings
from daemon.tap.sockets import ADMIN, AGENTS, MIRROR, Sockets, bind, handed_down, inherited, port_of
from daemon.tap.spool_reader import spool_age
from daemon.tap.upstream import Upstream

_BACKLOG = 1024
_GARBAGE = 20_000
"""Objects made between two looks for cyclic garbage; calls leave next to none."""
_SCRIBE_SHARE = 8
"""The scribe may hold this part of the memory that the tap may: what it cannot write, it leaves to the tap."""

log = structlog.get_logger(__name__)


class Bound(msgspec.Struct, frozen=True):
    """Where the tap listens."""

    port: int
    admin_port: int
    mirror_port: int | None = None


class ServiceManager(Protocol):
    """Who is told how the process does; `actors.system.notify.Notify` is one."""

    watchdog_seconds: float

    def ready(self, status: str = "") -> None: ...
    def alive(self) -> None: ...
    def reloading(self) -> None: ...
    def stopping(self) -> None: ...


class Tap:
    """Puts the parts together and keeps the connections. Runs on asyncio."""

    def __init__(
        self, settings: TapSettings, redaction: dict[str, Any] | None = None, sockets: Sockets | None = None,
        siblings: Siblings | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            redaction: fields of `adapters.redaction.RedactionSettings`; its defaults if there are none.
            sockets: that listen already, instead of host and port of the settings.
            siblings: the other workers of the same tap.

        Raises:
            InvalidTapSettings: a setting that cannot work.
        """
        self._settings, self._sockets, self._siblings = settings, sockets or {}, siblings
        self.counts = Counts()
        order = Order(
            directory=str(Path(settings.spool_dir).absolute()),
            segment_bytes=settings.spool_segment_bytes,
            memory_bytes=max(1, settings.spool_memory_bytes // _SCRIBE_SHARE),
            disk_bytes=settings.spool_disk_bytes,
            sync_seconds=settings.spool_sync_seconds,
            tick_seconds=settings.spool_tick_seconds,
            redaction=redaction or {},
        )
        self.spool = Scribe(
            order,
            memory_bytes=settings.spool_memory_bytes,
            tick_seconds=settings.spool_tick_seconds,
            silence_seconds=settings.scribe_seconds,
            rng=random.Random(),
        )
        self._tls = agents_tls(settings)
        upstreams = [
            Upstream(
                one.name,
                address,
                weight=one.weight,
                idle_seconds=settings.upstream_idle_seconds,
                tls=engines_tls(settings) if address.tls else None,
                clock=time.monotonic,
            )
            for one, address in upstreams_of(settings)
        ]
        self._router = Router(upstreams, remembered=settings.remembered_routes, rng=random.Random())
        self._routing = Routing(Path(settings.routes_file), self._router, clock=time.time)
        door = Door(settings.door, clock=time.time)
        capture = Capture(
            tokens=settings.capture_tokens, minting=settings.mint_tool_call_ids, headers=captured_headers(settings)
        )
        mint = Mint(lambda: os.urandom(12).hex()) if settings.mint_tool_call_ids else None
        plant = Plant(settings, self._router, capture, self.spool, self.counts, mint)
        desk = FeedbackDesk(self.spool, self.counts, max_bytes=settings.max_feedback_bytes, clock=time.time)
        self._capture, self._door = capture, door
        self._public = EngineRoute(plant, door, desk)
        self._mirror = MirrorRoute(plant, door)
        self._agents: set[Agent] = set()
        self._admins: set[Agent] = set()
        registry = CollectorRegistry()
        spool = Path(settings.spool_dir)
        TapCollector(
            self.counts, self.spool, self._router, self._routing, lambda: spool_age(spool, time.time())
        ).register(registry)
        if siblings is not None:
            SiblingsCollector(siblings).register(registry)
        self._admin = AdminRoute(registry, self._router, door, settings.admin_host)

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """The engines."""
        return self._router.upstreams

    @property
    def router(self) -> Router:
        """Which of them a call goes to."""
        return self._router

    async def run(self, stop: anyio.Event, task_status: TaskStatus[Bound] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`, then drain.

        Raises:
            PortTaken: it cannot listen where the settings say.
        """
        written = asyncio.Event()
        async with self._listening() as (listeners, bound), asyncio.TaskGroup() as group:
            scribe = group.create_task(self.spool.run(written))
            helpers = [group.create_task(self._watch()), group.create_task(self._sweep())]
            helpers.append(group.create_task(self._router.watch(self._settings.health_seconds)))
            helpers.append(group.create_task(self._routing.watch(self._settings.routes_seconds)))
            if self._siblings is not None and self._router.many:
                self._siblings.open(self._router.learned)
                self._router.tell, self._router.catch_up = self._siblings.tell, self._siblings.catch_up
            try:
                log.info("tap_listening", host=self._settings.host, port=bound.port, upstream=self._names())
                task_status.started(bound)
                await stop.wait()
                for listener in listeners:
                    listener.close()
                await self._drain()
            finally:
                for helper in helpers:
                    helper.cancel()
                for agent in (*self._agents, *self._admins):
                    agent.cut()
                for upstream in self._router.upstreams:
                    upstream.close()
                if self._siblings is not None:
                    self._siblings.close()
                written.set()
            await scribe
        log.info("tap_ended", written=self.spool.written, shed=self.spool.shed)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[tuple[list[asyncio.Server], Bound]]:
        settings, loop = self._settings, asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        agents = self._maker(self._public, self._agents, self.counts)
        try:
            public = self._sockets.get(AGENTS) or bind(settings.host, settings.port, "tap.port")
            for one in public:
                servers.append(await loop.create_server(agents, sock=one, ssl=self._tls, backlog=_BACKLOG))
            if settings.unix_socket:
                servers.append(await self._listen_unix(settings.unix_socket, agents))
            mirror = self._sockets.get(MIRROR, [])
            if settings.mirror_port is not None:
                mirror = mirror or bind(settings.host, settings.mirror_port, "tap.mirror_port")
            maker = self._maker(self._mirror, self._agents, self.counts)
            servers += [await loop.create_server(maker, sock=one, backlog=_BACKLOG) for one in mirror]
            admin = self._sockets.get(ADMIN) or bind(settings.admin_host, settings.admin_port, "tap.admin_port")
            maker = self._maker(self._admin, self._admins, Counts())
            pages = [await loop.create_server(maker, sock=one) for one in admin]
            try:
                yield servers, Bound(port_of(public), port_of(admin), port_of(mirror) if mirror else None)
            finally:
                for page in pages:
                    page.close()
        finally:
            for server in servers:
                server.close()
            if settings.unix_socket:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(settings.unix_socket)

    async def _listen_unix(self, path: str, agents: Callable[[], Agent]) -> asyncio.Server:
        # One that a killed tap left behind would be in the way; a file that is no socket is not ours to remove.
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise InvalidTapSettings(f"tap.unix_socket {path!r}: something else is there; give another path")
            os.unlink(path)
        return await asyncio.get_running_loop().create_unix_server(agents, path, backlog=_BACKLOG)

    def _maker(self, route: Route, agents: set[Agent], counts: Counts) -> Callable[[], Agent]:
        settings, capture = self._settings, self._capture

        def hold(target: bytes) -> int:
            return settings.hold_chat_bytes if capture.holds(target) else settings.hold_bytes

        def make() -> Agent:
            parser = RequestParser(
                max_header_bytes=settings.max_header_bytes,
                max_body_bytes=settings.max_body_bytes,
                hold=hold,
                clock=time.time,
            )
            return Agent(
                route, parser, agents, counts,
                request_seconds=settings.request_seconds,
                keep_alive_seconds=settings.keep_alive_seconds,
                max_connections=settings.max_connections,
            )  # fmt: skip

        return make

    async def _watch(self) -> None:
        """Deadlines of all connections with one task: a timer for every piece of a stream would cost most of all."""
        settings = self._settings
        shortest = min(settings.connect_seconds, settings.idle_seconds, settings.first_byte_seconds, 2.0)
        while True:
            await asyncio.sleep(shortest / 4)
            now = time.monotonic()
            for agent in [one for one in (*self._agents, *self._admins) if one.due <= now]:
                agent.late()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for upstream in self._router.upstreams:
                upstream.sweep()
            self._door.reload()

    async def _drain(self) -> None:
        log.info("tap_draining", connections=len(self._agents), in_flight=self.counts.in_flight)
        for agent in tuple(self._agents):
            agent.finish()
        end = time.monotonic() + self._settings.drain_seconds
        while self._agents and time.monotonic() < end:  # noqa: ASYNC110 - at the end of the process, for seconds
            await asyncio.sleep(0.05)
        if self._agents:
            self.counts.errors["cut_off"] += len(self._agents)
            log.warning("drain_deadline_passed", connections=len(self._agents))

    def _names(self) -> list[str]:
        return [f"{one.name}={one.authority.decode()}" for one in self._router.upstreams]


async def serve(
    settings: TapSettings,
    redaction: dict[str, Any] | None = None,
    *,
    stop: anyio.Event,
    sockets: Sockets | None = None,
    siblings: Siblings | None = None,
    task_status: TaskStatus[Bound] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Run a tap until `stop` is set, then drain; `task_status` gets where it listens.

    Raises:
        InvalidTapSettings: a setting that cannot work.
        PortTaken: it cannot listen where the settings say.
    """
    await Tap(settings, redaction, sockets, siblings).run(stop, task_status)


class _Ready(TaskStatus[Bound]):
    """Tells the service manager once the tap listens."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager

    def started(self, value: Bound | None = None) -> None:
        self._manager.ready(f"agents on port {value.port}" if value is not None and value.port else "")


async def _until_signal(
    settings: TapSettings, redaction: dict[str, Any] | None, manager: ServiceManager | None,
    siblings: Siblings | None,
) -> None:  # fmt: skip
    stop, loop = anyio.Event(), asyncio.get_running_loop()

    def end() -> None:
        if manager is not None:
            manager.stopping()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    told = _Ready(manager) if manager is not None else anyio.TASK_STATUS_IGNORED
    fed = loop.create_task(_feed(manager, stop)) if manager is not None and manager.watchdog_seconds else None
    try:
        sockets = handed_down(os.environ) or inherited(os.environ, os.getpid())
        await serve(settings, redaction, stop=stop, sockets=sockets, siblings=siblings, task_status=told)
    finally:
        if fed is not None:
            fed.cancel()


async def _feed(manager: ServiceManager, stop: anyio.Event) -> None:
    """Tell the watchdog that this loop turns; a drain has the stop timeout instead."""
    while not stop.is_set():
        manager.alive()
        with anyio.move_on_after(manager.watchdog_seconds / 2):
            await stop.wait()


def main(
    settings: TapSettings, redaction: dict[str, Any] | None = None, *, manager: ServiceManager | None = None,
    siblings: Siblings | None = None,
) -> None:  # fmt: skip
    """Run until SIGTERM or SIGINT, on the sockets that systemd or a parent passes; `manager` hears how it goes."""
    # What is there now stays: looking through it over and over is what makes the slowest calls slow.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    uvloop.run(_until_signal(settings, redaction, manager, siblings))
