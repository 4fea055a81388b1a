"""The asyncio side of the NATS bus: one connection, its streams, and publishing in a window.

Runs on the host loop only; `nats_bus.NatsBus` calls over to it. The connection comes back by itself for ever; each call
has its own deadline, because a request that was in the air when the broker died is never answered.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import nats
import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, BadRequestError, NotFoundError

from actors.system.bus import Outgoing, Tail
from actors.system.claims import ClaimStore
from actors.system.errors import BusMisconfigured, BusUnavailable, StreamFull
from actors.system.nats_confirm import Confirmations, Record, Stored
from actors.system.streams import Stream, stream_of

_log = structlog.get_logger(__name__)

CLAIM_HEADER = "Evolved-Claim"
ID_HEADER = "Nats-Msg-Id"
_HEADROOM = 1024
"""Bytes kept free below the broker's max_payload: headers count against it."""
_NO_STORAGE = 10047
"""JetStream: the streams' max_bytes exceed the broker's store limit."""


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deadlines and windows of the connection."""

    connect_seconds: float = 10.0
    """For the first connection, and for one after the client had given up its own."""
    reconnect_wait: float = 0.25
    """Seconds between attempts to win the broker back; there is no last attempt."""
    ping_seconds: float = 5.0
    """A broker that leaves two pings unanswered is taken for dead."""
    answer_seconds: float = 5.0
    """For one answer of JetStream."""
    publish_attempts: int = 4
    """Rounds with the same ids before `BusUnavailable`."""
    window: int = 512
    """Records in the air."""
    window_bytes: int = 8 << 20
    ack_wait: float = 30.0
    max_ack_pending: int = 1000


class NatsClient:
    """Connection, streams, publishing."""

    def __init__(
        self, url: str, *, user: str, password: str, name: str, settings: NatsSettings, streams: Sequence[Stream],
        claims: ClaimStore, on_disconnect: Callable[[], None], on_reconnect: Callable[[], None],
        on_retry: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.settings, self.streams, self.claims = settings, tuple(streams), claims
        self._url, self._user, self._password, self._name = url, user, password, name
        self._on_disconnect, self._on_reconnect, self._on_retry = on_disconnect, on_reconnect, on_retry
        self._nats: Client | None = None
        self._opening = asyncio.Lock()
        self._confirmations: Confirmations | None = None
        self._last_error = ""
        self._closed = False
        self._tails: dict[str, Tail] = {}
        self.reconnected: list[Callable[[], None]] = []
        """Called on the host loop after each reconnect: requests that were in the air are gone."""

    async def connection(self) -> Client:
        """The live client; connects if there is none.

        Raises:
            BusUnavailable: no connection within `connect_seconds`, or the bus was closed.
        """
        if self._nats is not None and not self._nats.is_closed:
            return self._nats
        async with self._opening:
            if self._closed:
                raise BusUnavailable("the bus is closed")
            if self._nats is None or self._nats.is_closed:
                self._nats = await self._connect()
            return self._nats

    async def jetstream(self) -> JetStreamContext:
        """JetStream on the live client."""
        return self._context(await self.connection())

    def _context(self, client: Client) -> JetStreamContext:
        # nats-py leaves `**opts` untyped.
        return cast(Any, client).jetstream(timeout=self.settings.answer_seconds)

    async def _connect(self) -> Client:
        client = Client()
        options: dict[str, Any] = {
            "user": self._user or None,
            "password": self._password or None,
            "name": self._name,
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": self.settings.reconnect_wait,
            "connect_timeout": 2,
            "ping_interval": self.settings.ping_seconds,
            "max_outstanding_pings": 2,
            "error_cb": self._failed,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._back,
        }
        try:
            # nats-py would go on for ever, silently: the caller has to hear that there is no broker.
            await asyncio.wait_for(client.connect(self._url, **options), self.settings.connect_seconds)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            with contextlib.suppress(Exception):
                await client.close()
            raise BusUnavailable(f"no connection to {self._url}: {self._last_error or error}") from error
        _log.info("bus_connected", url=self._url)
        return client

    async def _failed(self, error: Exception) -> None:
        self._last_error = f"{type(error).__name__}: {error}"

    async def _disconnected(self) -> None:
        if not self._closed:
            _log.warning("bus_disconnected", error=self._last_error)
            self._on_disconnect()

    async def _back(self) -> None:
        _log.info("bus_reconnected")
        self._on_reconnect()
        for callback in tuple(self.reconnected):
            callback()

    async def ensure_streams(self) -> None:
        """Create what is missing, bring what differs to its definition.

        Raises:
            BusUnavailable: JetStream does not answer.
            BusMisconfigured: the broker refuses a definition.
        """
        js = cast(Any, await self.jetstream())
        for stream in self.streams:
            config = _stream_config(stream)
            try:
                try:
                    await js.update_stream(config)
                except NotFoundError:
                    await js.add_stream(config)
            except APIError as error:
                raise api_failure(error, f"stream {stream.name}") from error
            except (TimeoutError, nats.errors.Error, OSError) as error:
                raise BusUnavailable(f"stream {stream.name}: {error!r}") from error

    async def publish(self, items: Sequence[Outgoing]) -> None:
        """See `bus.Bus.publish`."""
        for item in items:
            stream_of(item.subject, self.streams)
        left = list(items)
        failure: BusUnavailable | None = None
        for attempt in range(self.settings.publish_attempts):
            if attempt:
                self._on_retry(len(left))
                await asyncio.sleep(min(1.0, 0.1 * 2**attempt))
            try:
                client = await self.connection()
            except BusUnavailable as error:
                failure = error
                continue
            left, failure = await self._round(client, left)
            if not left:
                return
            if isinstance(failure, StreamFull):
                raise failure
        raise failure or BusUnavailable("not confirmed")

    def tail(self, subject: str) -> Tail:
        """See `bus.Bus.tail`."""
        return self._tails.get(stream_of(subject, self.streams).name, Tail())

    def remember(self, subject: str, sequence: int) -> None:
        """See `bus.Bus.remember`."""
        name = stream_of(subject, self.streams).name
        known = self._tails.get(name, Tail())
        self._tails[name] = Tail(max(known.sequence, sequence), known.losses)

    async def _round(self, client: Client, items: list[Outgoing]) -> tuple[list[Outgoing], BusUnavailable | None]:
        """Publish `items` window by window; returns those without a confirmation and why."""
        left: list[Outgoing] = []
        failure: BusUnavailable | None = None
        for window in self._windows(items):
            before = self._tails.copy()
            try:
                confirmations = await self._confirming(client)
                records = [await self._record(client.max_payload, item) for item in window]
                outcomes = await confirmations.publish(records, self.settings.answer_seconds)
            except (nats.errors.Error, OSError) as error:
                outcomes = [error] * len(window)
            self._tails |= _advanced(before, self._tails, [done for done in outcomes if isinstance(done, Stored)])
            for item, outcome in zip(window, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    error = _publish_failure(outcome, item.subject)
                    left.append(item)
                    # Back-pressure says more than a timeout beside it.
                    failure = error if failure is None or isinstance(error, StreamFull) else failure
        return left, failure

    async def _confirming(self, client: Client) -> Confirmations:
        if self._confirmations is None or self._confirmations.client is not client:
            fresh = Confirmations(client)
            await fresh.listen()
            self._confirmations = fresh
        return self._confirmations

    def _windows(self, items: Sequence[Outgoing]) -> list[list[Outgoing]]:
        windows: list[list[Outgoing]] = []
        size = self.settings.window_bytes + 1
        for item in items:
            if size + len(item.data) > self.settings.window_bytes or len(windows[-1]) >= self.settings.window:
                windows.append([])
                size = 0
            windows[-1].append(item)
            size += len(item.data)
        return windows

    async def _record(self, max_payload: int, item: Outgoing) -> Record:
        """`item` as it goes out: what is too large for the broker goes by claim check."""
        headers, data = {ID_HEADER: item.id}, item.data
        if len(data) + len(item.id) > max_payload - _HEADROOM:
            claim = await asyncio.to_thread(self.claims.put, data)
            headers[CLAIM_HEADER] = msgspec.json.encode(claim).decode()
            data = b""
        return Record(item.subject, data, headers)

    async def close(self) -> None:
        """Flush and close. Never `drain`: it hangs for its whole timeout after a fetch that found nothing."""
        self._closed = True
        client, self._nats = self._nats, None
        if client is None or client.is_closed:
            return
        with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
            await asyncio.wait_for(client.flush(1), 0.5)
        with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
            await asyncio.wait_for(client.close(), 0.5)


def _advanced(before: Mapping[str, Tail], now: Mapping[str, Tail], stored: Sequence[Stored]) -> dict[str, Tail]:
    """The tails after a window.

    Args:
        before: when the window was sent: whatever it added must have come behind.
        now: other windows may have ended meanwhile.
        stored: the window's confirmations.
    """
    added: dict[str, list[int]] = {}
    for one in stored:
        if not one.duplicate:
            added.setdefault(one.stream, []).append(one.seq)
    tails: dict[str, Tail] = {}
    for stream, numbers in added.items():
        known = now.get(stream, Tail())
        if min(numbers) > before.get(stream, Tail()).sequence:
            tails[stream] = Tail(max(known.sequence, *numbers), known.losses)
        else:
            tails[stream] = Tail(max(numbers), known.losses + 1)
    return tails


def _publish_failure(outcome: Exception, subject: str) -> BusUnavailable:
    """Why a record is not confirmed.

    Raises:
        BusMisconfigured: the broker refuses it for good.
    """
    if isinstance(outcome, APIError):
        failure = api_failure(outcome, subject)
        if isinstance(failure, BusUnavailable):
            return failure
        raise failure from outcome
    if isinstance(outcome, nats.errors.NoRespondersError):
        return BusUnavailable(f"{subject}: JetStream is not up")
    return BusUnavailable(f"{subject}: {outcome!r}")


def api_failure(error: APIError, what: str) -> BusUnavailable | BusMisconfigured:
    """JetStream's answer as one of our errors."""
    text = f"{what}: {error.description} ({error.code}, {error.err_code})"
    if "maximum" in (error.description or "") and "exceeded" in (error.description or ""):
        return StreamFull(text)
    if isinstance(error, BadRequestError) or error.code == 400 or error.err_code == _NO_STORAGE:
        return BusMisconfigured(text)
    return BusUnavailable(text)


def _stream_config(stream: Stream) -> api.StreamConfig:
    return api.StreamConfig(
        name=stream.name,
        subjects=list(stream.subjects),
        retention=api.RetentionPolicy.WORK_QUEUE if stream.queue else api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW if stream.discard_new else api.DiscardPolicy.OLD,
        duplicate_window=stream.duplicate_window,
        max_age=stream.max_age,
        max_bytes=stream.max_bytes,
        storage=api.StorageType.FILE,
        compression=api.StoreCompression.S2,
        allow_direct=True,
    )
