"""One connection to NATS, on the host loop: it gets in, comes back by itself for ever, and knows the streams.

The first attempt goes round the servers and ends, so that the caller hears that there is no broker; what is lost later
is won back by nats-py.
"""

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from typing import Any, cast

import nats.errors
import structlog
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from actors.system.access import Access, AccessUnusable, GuardedClient
from actors.system.errors import BusMisconfigured, BusUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.streams import DUPLICATE_SECONDS, Stream

_log = structlog.get_logger(__name__)

CONNECTION_ERRORS = (TimeoutError, OSError, nats.errors.Error, RuntimeError)
"""What a call of nats-py raises when the connection fails. RuntimeError is uvloop's word for a write to a connection
that the server has closed, before nats-py has heard of it."""
_RECONNECT_SECONDS = 1.0
"""Between two attempts to win one server back."""
_PING_SECONDS = 5.0
"""A broker that leaves two pings unanswered is taken for dead."""
_CONNECT_SECONDS = 10.0
"""For a round of the servers, of which some may be silent."""
_OFF = "JetStream is off: start the servers with jetstream {} in their configuration, and enable it for the account"
_ROOM = "make room: max_file_store, the account's limits, or limits.streams_gb of our own"
_REMEDIES = {
    10002: _ROOM, 10023: _ROOM, 10047: _ROOM, 10122: _ROOM, 10035: _OFF, 10039: _OFF, 10076: _OFF,
    10074: "nats.replicas is more than there are servers",
}  # fmt: skip
"""By JetStream's err_code (nats-server, server/errors.json), what cures it; waiting does not."""


class Connection:
    """To be used on the host loop only."""

    def __init__(
        self, access: Access, name: str, streams: Sequence[Stream], metrics: SystemMetrics | None, answer_seconds: float
    ) -> None:
        self.streams, self.answer_seconds = tuple(streams), answer_seconds
        self.metrics = metrics or SystemMetrics()
        self._access, self._name = access, name
        self._client: GuardedClient | None = None
        self._opening = asyncio.Lock()
        self._refusal = self._last_error = ""
        """Of the attempts since the last time that we were in."""
        self._was_in = self._closed = False

    async def client(self) -> GuardedClient:
        """The live client; connects if there is none. BusUnavailable: no server lets us in now, or the bus was closed.
        BusMisconfigured: they never did."""
        async with self._opening:
            if self._closed:
                raise BusUnavailable("the bus is closed")
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
                self._was_in = True
            return self._client

    async def jetstream(self) -> JetStreamContext:
        """JetStream on the live client."""
        # nats-py leaves `**opts` untyped.
        return cast(Any, await self.client()).jetstream(timeout=self.answer_seconds)

    async def _connect(self) -> GuardedClient:
        access, client = self._access, GuardedClient(tls_only=self._access.tls_only)
        where = ", ".join(access.servers)
        self._refusal = self._last_error = ""
        try:
            options: dict[str, Any] = access.options() | {
                "name": self._name, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.25,
                "ping_interval": _PING_SECONDS, "error_cb": self._failed, "disconnected_cb": self._disconnected,
                "reconnected_cb": self._back,
            }  # fmt: skip
            async with asyncio.timeout(_CONNECT_SECONDS):
                await client.connect(list(access.servers), **options)
        except CONNECTION_ERRORS as error:
            with contextlib.suppress(Exception):
                await client.close()
            self._refusal = self._refusal or access.refusal(error)
            if self._refusal and not self._was_in:
                raise BusMisconfigured(f"{where}: {self._refusal}") from error
            raise BusUnavailable(f"no connection to {where}: {self._refusal or self._last_error or error}") from error
        client.options |= {"max_reconnect_attempts": -1, "reconnect_time_wait": _RECONNECT_SECONDS}  # for ever
        self._refusal = ""
        _log.info("bus_connected", server=client.greeting.get("server_name"), tls=access.tls_only)
        return client

    async def _failed(self, error: Exception) -> None:
        self._last_error = f"{type(error).__name__}: {error}"
        refusal = self._access.refusal(error)
        if refusal and refusal != self._refusal and self._was_in:
            # Once, not for each of the attempts that go on until somebody has cured it.
            _log.error("bus_refused", reason=refusal)
        self._refusal = refusal or self._refusal

    async def _disconnected(self) -> None:
        if not self._closed and self._client is not None:
            _log.warning("bus_disconnected", error=self._last_error)
            self.metrics.bus_disconnects.inc()
            with contextlib.suppress(AccessUnusable):
                # A certificate that was renewed meanwhile counts from the next attempt on.
                self._client.options["tls"] = self._access.tls()

    async def _back(self) -> None:
        _log.info("bus_reconnected")
        self._refusal = ""

    async def ensure_streams(self) -> None:
        """Create what is missing, bring what differs to its definition."""
        client = await self.client()
        js = cast(Any, await self.jetstream())
        for stream in self.streams:
            what, self._last_error = f"stream {stream.name}", ""
            config = _stream_config(stream, self._access.replicas)
            try:
                try:
                    await js.update_stream(config)
                except NotFoundError:
                    await js.add_stream(config)
            except CONNECTION_ERRORS as error:
                if isinstance(error, APIError) and error.err_code is not None:
                    raise failure(error, what) from error
                # Nobody answers, which nats-py tells by an error of the API without a code.
                if "permissions violation" in self._last_error.lower():
                    raise BusMisconfigured(
                        f"{what}: {self._last_error}; our user needs to publish and subscribe to $JS.API.>, _INBOX.> "
                        "and our subjects"
                    ) from error
                if isinstance(error, APIError) and not client.greeting.get("jetstream"):
                    raise BusMisconfigured(f"{what}: {_OFF}") from error
                raise BusUnavailable(f"{what}: {error!r}") from error

    async def close(self) -> None:
        """Flush and close. Never `drain`: it hangs for its whole timeout after a fetch that found nothing."""
        self._closed = True
        client, self._client = self._client, None
        if client is None or client.is_closed:
            return
        for ending in (client.flush(1), client.close()):
            with contextlib.suppress(*CONNECTION_ERRORS):
                await asyncio.wait_for(ending, 0.5)


@contextlib.contextmanager
def failing(what: str) -> Generator[None]:
    """What nats-py raises inside, as one of our errors."""
    try:
        yield
    except CONNECTION_ERRORS as error:
        raise failure(error, what) from error


def failure(error: Exception, what: str) -> BusUnavailable | BusMisconfigured:
    """An error of nats-py's, which JetStream's answers are too, as one of ours."""
    if not isinstance(error, APIError):
        return BusUnavailable(f"{what}: {error!r}")
    text = f"{what}: {error.description} ({error.code}, {error.err_code})"
    if error.err_code in _REMEDIES:
        return BusMisconfigured(f"{text}: {_REMEDIES[error.err_code]}")
    return BusMisconfigured(text) if error.code == 400 else BusUnavailable(text)


def _stream_config(stream: Stream, replicas: int) -> api.StreamConfig:
    return api.StreamConfig(
        name=stream.name,
        subjects=list(stream.subjects),
        retention=api.RetentionPolicy.WORK_QUEUE if stream.queue else api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW if stream.discard_new else api.DiscardPolicy.OLD,
        duplicate_window=DUPLICATE_SECONDS,
        max_age=stream.max_age,
        max_bytes=stream.max_bytes,
        storage=api.StorageType.FILE,
        compression=api.StoreCompression.S2,
        num_replicas=replicas,
    )
