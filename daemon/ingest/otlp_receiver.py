"""The OTLP/HTTP receiver: spans and events of agents' instrumentations become exchanges on TRAFFIC.

    POST /v1/traces, /v1/logs -> decode -> Joiner -> exchange_from -> redaction -> traffic.exchange

An export is answered once all that it made whole is on the bus; if the bus does not take it, with 503 and when to come
again, so the exporter's own queue is the buffer. What waits for its other half waits in memory: bounded in number,
bytes and time, passed on at a drain, and lost with the process if that is killed.
"""

import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from actors.messages import Exchange
from actors.system.bus import Bus, Outgoing, outgoing
from actors.system.errors import ActorSystemError
from actors.system.lifecycle import Lifecycle
from actors.system.streams import TRAFFIC_EXCHANGE
from adapters.intake.otlp import (
    Gathered,
    InvalidExport,
    Joiner,
    JoinSettings,
    UnsupportedMedia,
    exchange_from,
    opted_out,
)
from adapters.intake.otlp.wire import MEDIA, Encoding, Signal, answer, complaint, decode, encoding_of, inflated
from daemon.api.tls import server_tls
from daemon.errors import ConfigError
from daemon.processes.asgi import serve_bound
from daemon.tap.errors import KeysUnusable
from daemon.tap.keys import KeyRing, is_loopback, presented

log = structlog.get_logger(__name__)

_TICK_SECONDS = 0.5
_READ_SECONDS = 30.0
"""For the body of a request."""
_MOST_READ = 8
"""Times the limit: what is read of a body that is too large."""
_GRACE_SECONDS = 1.0
"""For exports under way when draining begins."""
_DRAIN_SECONDS = 5.0
"""For what waits, to go out to the bus."""
_GRPC = {400: 3, 401: 16, 408: 4, 413: 3, 415: 3, 429: 8, 503: 14}
"""HTTP status -> code of gRPC, for the body of a refusal."""


class IntakeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ways in beside the tap."""

    otlp: bool = False
    """Receive OTLP/HTTP: LLM calls from agents' OpenTelemetry or OpenInference instrumentation."""
    host: str = "127.0.0.1"
    """Address to listen on. Who can reach it can put calls into the store, unless tap.door asks for keys."""
    port: int = 4318
    """Port; 0 takes a free one. An OpenTelemetry collector on this machine has the same default."""
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Host headers that are answered; ("*",) for all, when `host` is not loopback."""
    tls_cert: str = ""
    """PEM file with the certificate chain; empty: plain HTTP. Read again when it changes."""
    tls_key: str = ""
    """PEM file with its key, for its owner alone."""
    tls_client_ca: str = ""
    """PEM file of authorities: only exporters with a certificate of one of them get in."""
    max_body_bytes: int = 16 << 20
    """Of an export, compressed and inflated; larger ones are refused (413)."""
    max_requests: int = 16
    """Exports in work at a time; more are told to come again (429)."""
    retry_after_seconds: int = 5
    """When to come again, after 429 and 503."""
    spans: JoinSettings = JoinSettings()
    """How spans and events become calls."""


class OtlpIntake:
    """The server and the buffer behind it. `run` is a task for the supervisor."""

    def __init__(
        self,
        settings: IntakeSettings,
        bus: Bus,
        *,
        redact: Callable[[Exchange], Exchange],
        rng: random.Random,
        keys: KeyRing | None = None,
        require_key: bool = False,
        listening: Callable[[int], None] = lambda port: None,
    ) -> None:
        """
        Args:
            redact: takes out what must not be stored; called in a worker thread.
            rng: for the jitter of retries.
            keys: agents' keys; whose key it is, the calls belong to.
            require_key: refuse exports without one.
            listening: told the port.

        Raises:
            ConfigError: a certificate that cannot be used.
        """
        self._settings, self._bus, self._redact, self._rng = settings, bus, redact, rng
        self._keys, self._require_key, self._listening = keys, require_key, listening
        self._tls = server_tls(settings.tls_cert, settings.tls_key, settings.tls_client_ca, section="intake")
        self._joiner = Joiner(settings.spans)
        self._working, self._held_back = 0, False
        self._one = anyio.CapacityLimiter(1)
        """Reading exports takes a core at most: the actors run in the same process."""
        self.counts: Counter[str] = Counter()
        """Calls: published, no_content, opted_out, unreadable, lost. Of exports: status_<code>, refused_records."""

    @property
    def joined(self) -> Counter[str]:
        """What the joiner counted."""
        return self._joiner.counts

    @property
    def waiting(self) -> int:
        """Calls of which a part is missing."""
        return len(self._joiner)

    async def run(self, lifecycle: Lifecycle) -> None:
        """Serve until draining, then pass on what waits.

        Raises:
            OSError: the port is taken.
        """
        sock = socket.create_server((self._settings.host, self._settings.port), reuse_port=False)
        self._listening(sock.getsockname()[1])
        log.info("otlp_listening", host=self._settings.host, port=sock.getsockname()[1])
        if self._tls is None and not is_loopback(self._settings.host):
            log.warning(
                "otlp_in_plain_text", host=self._settings.host,
                remedy="what agents say and their keys cross the network readable: set intake.tls_cert and tls_key",
            )  # fmt: skip
        stop = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(self._serve, sock, stop)
            lifecycle.ready()
            await self._tick(lifecycle)
            # Let it end by itself: on asyncio, hypercorn does not take well to being cancelled.
            stop.set()
            group.cancel_scope.deadline = anyio.current_time() + 2 * _GRACE_SECONDS
        with anyio.move_on_after(_DRAIN_SECONDS, shield=True):
            rest = self._joiner.take_all()
            if not await self._pass_on(rest):
                self.counts["lost"] += len(rest)
                log.error("otlp_lost", calls=len(rest), why="the bus did not take them before the process had to end")

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/traces", partial(self._take, "traces"), methods=["POST"]),
                Route("/v1/logs", partial(self._take, "logs"), methods=["POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(self._settings.allowed_hosts))],
        )

    async def _take(self, signal: Signal, request: Request) -> Response:
        encoding: Encoding = "protobuf"
        try:
            encoding = encoding_of(request.headers.get("content-type", ""))
            tenant, caller = self._sender(request)
            if self._working >= self._settings.max_requests:
                raise _Refused(429, "too many exports at once")
            if self._joiner.full:
                raise _Refused(503, "the buffer is full, because the broker does not take what is in it")
            self._working += 1
            try:
                response = await self._export(signal, encoding, request, tenant, caller)
            finally:
                self._working -= 1
        except UnsupportedMedia as error:
            response = self._refusal(encoding, 415, str(error))
        except InvalidExport as error:
            response = self._refusal(encoding, 400, str(error))
        except _Refused as refused:
            response = self._refusal(encoding, refused.status, str(refused))
        self.counts[f"status_{response.status_code}"] += 1
        return response

    async def _export(self, signal: Signal, encoding: Encoding, request: Request, tenant: str, caller: str) -> Response:
        body = await self._body(request)
        plain = inflated(body, request.headers.get("content-encoding", ""), self._settings.max_body_bytes)
        if plain is None:
            raise self._too_large()
        export = await anyio.to_thread.run_sync(decode, signal, encoding, plain, limiter=self._one)
        self._joiner.add(export, anyio.current_time(), size=len(plain), tenant=tenant, caller=caller)
        if not await self._pass_on(self._joiner.take()):
            raise _Refused(503, "the broker does not take records now")
        self.counts["refused_records"] += export.refused
        why = "records without a trace id and a span id cannot be joined" if export.refused else ""
        return Response(answer(signal, encoding, export.refused, why), media_type=MEDIA[encoding])

    async def _body(self, request: Request) -> bytes:
        """Read to its end, if need be without keeping it: an answer in the middle of an upload gets lost in a reset,
        and the exporter would send the same again."""
        limit, size = self._settings.max_body_bytes, 0
        body = bytearray()
        with anyio.move_on_after(_READ_SECONDS):
            try:
                async for piece in request.stream():
                    size += len(piece)
                    if size <= limit:
                        body += piece
                    elif size > _MOST_READ * limit:
                        break
            except ClientDisconnect as error:
                raise _Refused(400, "the body is cut off") from error
            if size > limit:
                raise self._too_large()
            return bytes(body)
        raise _Refused(408, f"the body took longer than {_READ_SECONDS:g} s")

    def _too_large(self) -> "_Refused":
        return _Refused(413, f"more than {self._settings.max_body_bytes} bytes; see intake.max_body_bytes")

    def _sender(self, request: Request) -> tuple[str, str]:
        """(tenant, id of the key), both empty without a key."""
        if self._keys is None:
            return "", ""
        own, authorization = request.headers.get("x-evolved-key", ""), request.headers.get("authorization", "")
        shown = presented(own.encode("latin-1"), authorization.encode("latin-1"))
        if not shown:
            if self._require_key:
                raise _Refused(401, "an agent's key is needed, in x-evolved-key (OTEL_EXPORTER_OTLP_HEADERS)")
            return "", ""
        key = self._keys.find(shown)
        if key is None or key.scope != "agent":
            raise _Refused(401, "the key opens nothing here; see `evolved keys list`")
        return key.tenant, key.id

    def _refusal(self, encoding: Encoding, status: int, message: str) -> Response:
        retry = {"retry-after": str(self._settings.retry_after_seconds)} if status in (429, 503) else {}
        body = complaint(encoding, _GRPC[status], message)
        return Response(body, status, headers=retry, media_type=MEDIA[encoding])

    async def _pass_on(self, taken: Sequence[Gathered]) -> bool:
        """Publish what was taken from the joiner; False, and back it goes, if the bus does not take it."""
        if not taken:
            return True
        try:
            items, counts = await anyio.to_thread.run_sync(self._convert, taken, limiter=self._one)
            await self._bus.publish(items)
        except ActorSystemError as error:
            self._joiner.put_back(taken)
            if not self._held_back:
                log.warning("otlp_held_back", reason=str(error))
            self._held_back = True
            return False
        except BaseException:
            self._joiner.put_back(taken)
            raise
        self._joiner.settle(taken)
        if self._held_back:
            log.info("otlp_going_on")
        self._held_back = False
        if counts["no_content"] and not self.counts["no_content"]:
            log.warning(
                "otlp_without_content",
                spans=counts["no_content"],
                remedy="set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT for the agent; see docs/attach.md",
            )
        self.counts.update(counts)
        return True

    def _convert(self, taken: Sequence[Gathered]) -> tuple[list[Outgoing], Counter[str]]:
        """In a worker thread."""
        items: list[Outgoing] = []
        counts: Counter[str] = Counter()
        for one in taken:
            try:
                exchange = exchange_from(one, self._settings.spans)
                if exchange is None:
                    counts["opted_out" if opted_out(one) else "no_content"] += 1
                    continue
                items.append(outgoing(TRAFFIC_EXCHANGE, self._redact(exchange)))
                counts["published"] += 1
            except Exception:
                # A bug of ours in reading one call must not make the exporter send all of them again for ever.
                log.exception("otlp_call_failed", trace=one.place[1][0].hex(), span=one.place[1][1].hex())
                counts["unreadable"] += 1
        return items, counts

    async def _tick(self, lifecycle: Lifecycle) -> None:
        delay = _TICK_SECONDS
        while await lifecycle.pause(delay):
            lifecycle.beat()
            if self._keys is not None:
                self._keys.refresh()
            if self._tls is not None:
                self._tls.refresh()
            if await self._pass_on(self._joiner.take_due(anyio.current_time())):
                delay = _TICK_SECONDS
                lifecycle.ready()
            else:
                delay = min(10.0, 2 * delay) * self._rng.uniform(0.5, 1.5)
                lifecycle.waiting("the bus does not take calls from OTLP")

    async def _serve(self, sock: socket.socket, stop: anyio.Event) -> None:
        await serve_bound(self.app(), f"fd://{sock.detach()}", tls=self._tls, stop=stop, grace=_GRACE_SECONDS)


def agent_keys(path: Path | None) -> KeyRing | None:
    """The keys in the file at `path`; none if nobody has keys.

    Raises:
        ConfigError: the file cannot be used.
    """
    try:
        return None if path is None else KeyRing(path, clock=time.time)
    except KeysUnusable as error:
        raise ConfigError(f"tap.door.keys_file: {error}") from error


class _Refused(Exception):
    """An export that is answered with an error.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class IntakeCollector(Collector):
    """Reads the receiver's counts at each scrape."""

    def __init__(self, intake: OtlpIntake) -> None:
        self._intake = intake

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        counts = self._intake.counts
        exports = CounterMetricFamily("evolved_otlp_exports", "Exports answered.", labels=("status",))
        calls = CounterMetricFamily("evolved_otlp_calls", "LLM calls, by what became of them.", labels=("what",))
        for what, number in sorted(counts.items()):
            if what.startswith("status_"):
                exports.add_metric((what.removeprefix("status_"),), number)
            elif what != "refused_records":
                calls.add_metric((what,), number)
        yield exports
        yield calls
        records = CounterMetricFamily("evolved_otlp_records", "Spans and events.", labels=("what",))
        for what, number in sorted({**self._intake.joined, "refused": counts["refused_records"]}.items()):
            records.add_metric((what,), number)
        yield records
        yield GaugeMetricFamily("evolved_otlp_waiting", "Calls of which a part is missing.", self._intake.waiting)
