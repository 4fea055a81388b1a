"""The OTLP/HTTP receiver: spans of agents' instrumentations become exchanges in a spool of their own.

    POST /v1/traces -> decode -> exchange_from -> redaction -> spool/otlp        (the shipper publishes what is there)

An export is answered once all its calls are on the disk; if the disk does not take them, with 503 and when to come
again, so the exporter's own queue is the buffer. A span has all of its call in it; a call that comes twice has the same
id.
"""

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import anyio
import anyio.to_thread
import structlog
from prometheus_client.core import Metric
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from actors.dialects.conversation import string
from actors.messages import Exchange, encode
from actors.system.lifecycle import Lifecycle
from adapters.intake.otlp.calls import exchange_from, is_call, opted_out
from adapters.intake.otlp.wire import (
    PROTOBUF,
    Refused,
    Span,
    answer,
    complaint,
    decode,
    inflated,
    media_type,
    too_large,
)
from daemon.api.tls import ServerTls
from daemon.figures import counter, split
from daemon.processes.asgi import serve
from daemon.tap import errors
from daemon.tap.keys import KeyRing, is_loopback
from daemon.tap.spool import Record, SpoolWriter

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 16 << 20
"""Of an export, compressed and inflated: collectors' batches have some hundred kilobytes."""
MAX_REQUESTS = 16
"""Exports in work at a time, each with its body in memory."""
_RETRY_AFTER = "5"
"""Seconds, with 429 and 503: exporters wait longer by themselves each time."""
_TICK_SECONDS = 0.5
_READ_SECONDS = 30.0
_MOST_READ = 8
"""Times the limit: what is read of a body that is too large."""
_GRACE_SECONDS = 1.0
"""For exports under way when draining begins."""
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""Host headers that are answered where nobody else reaches it."""


class OtlpIntake:
    """The server. `run` is a task for the supervisor."""

    def __init__(
        self,
        host: str,
        port: int,
        spool: SpoolWriter,
        *,
        redact: Callable[[Exchange], Exchange],
        tls: ServerTls | None = None,
        keys: KeyRing | None = None,
        require_key: bool = False,
        tenant_attribute: str = "",
        trace_is_run: bool = True,
    ) -> None:
        """
        Args:
            redact: takes out what must not be stored.
            keys: an agent's key says whose the calls are.
            tenant_attribute: resource attribute whose value names the tenant, say "service.namespace", unless a key
                does; its senders are believed. Without either the calls are the tenant default's.
            trace_is_run: see `exchange_from`.
        """
        self._host, self._port, self._spool, self._redact, self._tls = host, port, spool, redact, tls
        self._keys, self._require_key = keys, require_key
        self._tenant_attribute, self._trace_is_run = tenant_attribute, trace_is_run
        self.working = 0
        self._one = anyio.CapacityLimiter(1)
        """Reading exports takes a core at most: the actors run in the same process. And the spool has one writer."""
        self.counts: Counter[str] = Counter()
        """Calls: kept, no_content, opted_out, unreadable. Spans that are none: other. Exports: status_<code>."""

    async def run(self, lifecycle: Lifecycle) -> None:
        log.info("otlp_listening", host=self._host, port=self._port)
        local = is_loopback(self._host)
        if self._tls is None and not local:
            log.warning(
                "otlp_in_plain_text", host=self._host,
                remedy="what agents say and their keys cross the network readable: set tap.tls_cert and tls_key",
            )  # fmt: skip
        app = Starlette(
            routes=[Route("/v1/traces", self._take, methods=["POST"])],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(_LOCAL) if local else ["*"])],
        )
        stop = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(partial(serve, app, self._host, self._port, tls=self._tls, stop=stop))
            lifecycle.ready()
            while await lifecycle.pause(_TICK_SECONDS):
                lifecycle.beat()
                if not self.working:
                    with contextlib.suppress(OSError):  # whoever sends something next is told
                        await anyio.to_thread.run_sync(self._spool.tend, limiter=self._one)
            # Let it end by itself: on asyncio, hypercorn does not take well to being cancelled.
            stop.set()
            group.cancel_scope.deadline = anyio.current_time() + 2 * _GRACE_SECONDS

    async def _take(self, request: Request) -> Response:
        media = PROTOBUF
        try:
            media = media_type(request.headers.get("content-type", ""))
            tenant, caller = self._sender(request)
            if self.working >= MAX_REQUESTS:
                raise Refused(429, "too many exports at once")
            self.working += 1
            try:
                body = await _body(request)
                plain = inflated(body, request.headers.get("content-encoding", ""), MAX_BODY_BYTES)
                refused = await anyio.to_thread.run_sync(self._keep, media, plain, tenant, caller, limiter=self._one)
            finally:
                self.working -= 1
        except Refused as error:
            again = {"retry-after": _RETRY_AFTER} if error.status in (429, 503) else {}
            response = Response(complaint(media, str(error)), error.status, headers=again, media_type=media)
        else:
            response = Response(answer(media, refused), media_type=media)
        self.counts[f"status_{response.status_code}"] += 1
        return response

    def _sender(self, request: Request) -> tuple[str, str]:
        """(tenant, id of the key), both empty without a key."""
        if self._keys is None:
            return "", ""
        self._keys.refresh()
        try:
            key = self._keys.check(dict(request.scope["headers"]), "agent")
        except errors.Refused as refusal:
            if refusal.code != "missing_key" or self._require_key:
                raise Refused(401, str(refusal)) from refusal
            return "", ""
        return key.tenant, key.id

    def _keep(self, media: str, body: bytes, tenant: str, caller: str) -> int:
        """Put the calls of an export on the disk, in a worker thread; returns how many spans were not taken."""
        spans, refused = decode(media, body)
        calls, counts = self._calls(spans, tenant, caller)
        try:
            kept = not calls or self._spool.append([Record(bytes.fromhex(call.id), encode(call)) for call in calls])
            self._spool.sync()
        except OSError as error:
            raise Refused(503, f"the spool cannot be written ({error})") from error
        if not kept:
            raise Refused(503, "the spool is full: the broker has taken nothing for long, or limits.spool_gb is small")
        if counts["no_content"] and not self.counts["no_content"]:
            log.warning(
                "otlp_without_content",
                spans=counts["no_content"],
                remedy="set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY for the agent, with "
                "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental; see docs/attach.md",
            )
        self.counts.update(counts)
        return refused

    def _calls(self, spans: Sequence[Span], tenant: str, caller: str) -> tuple[list[Exchange], Counter[str]]:
        calls: list[Exchange] = []
        counts: Counter[str] = Counter()
        for span in spans:
            try:
                if not is_call(span):
                    counts["other"] += 1
                    continue
                named = tenant or string(span.resource.get(self._tenant_attribute)) or "default"
                call = exchange_from(span, tenant=named, caller=caller, trace_is_run=self._trace_is_run)
                if call is None:
                    counts["opted_out" if opted_out(span) else "no_content"] += 1
                    continue
                calls.append(self._redact(call))
                counts["kept"] += 1
            except Exception as error:
                # A bug of ours in reading one call must not make the exporter send all of them again for ever. Its
                # message may quote what is not redacted yet.
                log.error(
                    "otlp_call_failed", trace=span.key[0].hex(), span=span.key[1].hex(), error=type(error).__name__,
                    where=traceback.format_tb(error.__traceback__)[-1],
                )  # fmt: skip
                counts["unreadable"] += 1
        return calls, counts


async def _body(request: Request) -> bytes:
    """Read to its end, if need be without keeping it: an answer in the middle of an upload gets lost in a reset, and
    the exporter would send the same again."""
    size, body = 0, bytearray()
    try:
        with anyio.fail_after(_READ_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size <= MAX_BODY_BYTES:
                    body += piece
                elif size > _MOST_READ * MAX_BODY_BYTES:
                    break
    except ClientDisconnect as error:
        raise Refused(400, "the body is cut off") from error
    except TimeoutError as error:
        raise Refused(408, f"the body took longer than {_READ_SECONDS:g} s") from error
    if size > MAX_BODY_BYTES:
        raise too_large(MAX_BODY_BYTES)
    return bytes(body)


def intake_figures(intake: OtlpIntake) -> Iterator[Metric]:
    exports, calls = split(intake.counts, "status_")
    yield counter("evolved_otlp_exports", "Exports answered.", exports, "status")
    yield counter("evolved_otlp_calls", "Spans, by what became of them.", calls, "what")
