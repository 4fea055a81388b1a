"""The tap as a process: listens, serves, and drains on SIGTERM.

SIGTERM: no new connections, idle ones are closed, calls under way are finished, the spool is flushed. Several taps may
listen on one port (SO_REUSEPORT), so a new one can take over before the old one goes; each needs its own spool.
"""

import contextlib
import errno
import signal
import time
from pathlib import Path

import anyio
import msgspec
import structlog
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream, TaskGroup, TaskStatus
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from daemon.tap.capture import Capture
from daemon.tap.connection import Answer, Connection
from daemon.tap.deadlines import Watch
from daemon.tap.errors import Refused
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import Request, RequestParser, refusal_bytes, response_bytes
from daemon.tap.metrics import Counts, TapCollector
from daemon.tap.relay import Relay
from daemon.tap.settings import TapSettings, captured_headers, upstream_address
from daemon.tap.spool import SpoolLimits, SpoolWriter
from daemon.tap.upstream import Upstream, discard

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = structlog.get_logger(__name__)


class Bound(msgspec.Struct, frozen=True):
    """Where the tap listens."""

    port: int
    admin_port: int


class Tap:
    """Puts the parts together and keeps the connections."""

    def __init__(self, settings: TapSettings) -> None:
        """
        Raises:
            InvalidTapSettings: a setting that cannot work.
        """
        self._settings = settings
        self.counts = Counts()
        self.spool = SpoolWriter(
            Path(settings.spool_dir),
            SpoolLimits(
                segment_bytes=settings.spool_segment_bytes,
                memory_bytes=settings.spool_memory_bytes,
                disk_bytes=settings.spool_disk_bytes,
                sync_seconds=settings.spool_sync_seconds,
                tick_seconds=settings.spool_tick_seconds,
            ),
        )
        shortest = min(settings.connect_seconds, settings.idle_seconds, settings.first_byte_seconds, 2.0)
        self._interval = shortest / 4
        self._watch = Watch(interval=self._interval)
        host, port = upstream_address(settings)
        self._upstream = Upstream(host, port, idle_seconds=settings.upstream_idle_seconds)
        capture = Capture(engine=settings.engine, tokens=settings.capture_tokens, headers=captured_headers(settings))
        desk = FeedbackDesk(self.spool, self.counts, max_bytes=settings.max_feedback_bytes, clock=time.time)
        self._relay = Relay(settings, self._upstream, capture, desk, self.spool, self.counts, self._watch)
        self._connections: set[Connection] = set()
        self._registry = CollectorRegistry()
        TapCollector(self.counts, self.spool, lambda: self._upstream.idle).register(self._registry)

    async def run(self, stop: anyio.Event, task_status: TaskStatus[Bound]) -> None:
        """Serve until `stop`, then drain.

        Raises:
            OSError: a port is taken.
        """
        settings = self._settings
        self.spool.start()
        try:
            async with anyio.create_task_group() as group:
                public = await _listen(settings.host, settings.port)
                admin = await _listen(settings.admin_host, settings.admin_port)
                group.start_soon(self._watch.run)
                group.start_soon(self._sweep)
                for one in admin:
                    group.start_soon(self._accept, one, self._admin, group)
                async with anyio.create_task_group() as accepting:
                    for one in public:
                        accepting.start_soon(self._accept, one, self._relay.answer, group)
                    bound = Bound(_port(public), _port(admin))
                    log.info("tap_listening", host=settings.host, port=bound.port, upstream=settings.upstream)
                    task_status.started(bound)
                    await stop.wait()
                    accepting.cancel_scope.cancel()
                for one in public:
                    await one.aclose()
                await self._drain()
                for one in admin:
                    await one.aclose()
                group.cancel_scope.cancel()
            await self._upstream.aclose()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.spool.close)
        log.info("tap_ended", written=self.spool.written, shed=self.spool.shed)

    async def _accept(self, listener: SocketListener, answer: Answer, group: TaskGroup) -> None:
        while True:
            try:
                stream = await listener.accept()
            except anyio.ClosedResourceError:
                return
            except OSError as error:
                # Waiting connections stay in the backlog until some of ours have ended.
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                self.counts.errors["out_of_descriptors"] += 1
                await anyio.sleep(0.1)
                continue
            group.start_soon(self._serve, stream, answer)

    async def _serve(self, stream: SocketStream, answer: Answer) -> None:
        settings = self._settings
        if self.counts.connections >= settings.max_connections:
            self.counts.errors["too_many_connections"] += 1
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.send(refusal_bytes(Refused(503, "too_many_connections", "try again later"), close=True))
            await discard(stream)
            return
        parser = RequestParser(
            max_header_bytes=settings.max_header_bytes, max_body_bytes=settings.max_body_bytes, clock=time.time
        )
        connection = Connection(
            stream, answer, parser, self._watch, self.counts,
            request_seconds=settings.request_seconds, keep_alive_seconds=settings.keep_alive_seconds,
        )  # fmt: skip
        self._connections.add(connection)
        self.counts.connections += 1
        try:
            await connection.serve()
        except Exception:
            # One connection's fault must not end the others.
            self.counts.errors["internal"] += 1
            log.exception("connection_failed")
        finally:
            self.counts.connections -= 1
            self._connections.discard(connection)

    async def _drain(self) -> None:
        log.info("tap_draining", connections=self.counts.connections, in_flight=self.counts.in_flight)
        for connection in tuple(self._connections):
            connection.finish()
        with anyio.move_on_after(self._settings.drain_seconds):
            while self._connections:  # noqa: ASYNC110 - at the end of the process, for seconds
                await anyio.sleep(0.05)
        if self._connections:
            self.counts.errors["cut_off"] += len(self._connections)
            log.warning("drain_deadline_passed", connections=len(self._connections))

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(1.0)
            await self._upstream.sweep()

    async def _admin(self, request: Request, client: ByteStream, closing: bool) -> bool:
        """The tap's own page: metrics, and whether it lives (the engine's health is at /health of the other port)."""
        if request.path == b"/metrics":
            data = response_bytes(200, generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST, close=closing)
        elif request.path == b"/healthz":
            data = response_bytes(200, b'{"status":"ok"}', close=closing)
        else:
            data = refusal_bytes(Refused(404, "unknown_path", "here are /metrics and /healthz"), close=closing)
        await client.send(data)
        return True


async def serve(
    settings: TapSettings, *, stop: anyio.Event, task_status: TaskStatus[Bound] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Run a tap until `stop` is set, then drain; `task_status` gets where it listens.

    Raises:
        InvalidTapSettings: a setting that cannot work.
        OSError: a port is taken.
    """
    await Tap(settings).run(stop, task_status)


async def _until_signal(settings: TapSettings) -> None:
    stop = anyio.Event()
    async with anyio.create_task_group() as group:

        async def obey(*, task_status: TaskStatus[None]) -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                task_status.started()
                async for _ in signals:
                    stop.set()

        await group.start(obey)
        await serve(settings, stop=stop)
        group.cancel_scope.cancel()


def main(settings: TapSettings) -> None:
    """Run until SIGTERM or SIGINT."""
    anyio.run(_until_signal, settings, backend_options={"use_uvloop": True})


async def _listen(host: str, port: int) -> list[SocketListener]:
    """One listener for each address that `host` has."""
    both = await anyio.create_tcp_listener(local_host=host, local_port=port, reuse_port=True, backlog=1024)
    return [listener for listener in both.listeners if isinstance(listener, SocketListener)]


def _port(listeners: list[SocketListener]) -> int:
    return int(listeners[0].extra(SocketAttribute.local_port))  # noqa: S610 - no Django here
