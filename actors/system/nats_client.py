"""The asyncio side of the NATS bus: one connection, its streams, and publishing in a window.

Runs on the host loop only; `nats_bus.NatsBus` calls over to it. The connection comes back by itself for ever; each call
has its own deadline, because a request that was in the air when the broker died is never answered.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from actors.system.bus import Outgoing, Tail
from actors.system.claim_check import ClaimStore
from actors.system.errors import BusRefused, BusUnavailable, StreamFull
from actors.system.nats_access import AccessUnusable, NatsAccess, NatsConnection, NextServer
from actors.system.nats_confirm import Confirmations, Record, Stored
from actors.system.nats_failures import CONNECTION_ERRORS, api_failure, connect_refusal, publish_failure, silence
from actors.system.streams import Stream, stream_of

_log = structlog.get_logger(__name__)

CLAIM_HEADER = "Evolved-Claim"
ID_HEADER = "Nats-Msg-Id"
_WANTED_PAYLOAD = 4 << 20
"""Bytes: the embedded broker's max_payload. Below it, large calls go by claim check, over a directory of all."""
_CANCEL_SECONDS = 0.2
"""Until an attempt to connect that goes on all the same is cancelled once more."""
_HEADROOM = 1024
"""Bytes kept free below the broker's max_payload: headers count against it."""


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deadlines and windows of the connection."""

    connect_seconds: float = 10.0
    """For the first connection, and for one after the client had given up its own."""
    reconnect_wait: float = 0.25
    """Seconds before the first attempt to win the broker back; they grow, with jitter, and there is no last one."""
    reconnect_longest: float = 5.0
    """Seconds between two attempts at the most."""
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
        self, access: NatsAccess, *, name: str, settings: NatsSettings, streams: Sequence[Stream],
        claims: ClaimStore, on_disconnect: Callable[[], None], on_reconnect: Callable[[], None],
        on_retry: Callable[[int], None], on_failure: Callable[[str], None], rng: random.Random,
    ) -> None:  # fmt: skip
        self.settings, self.streams, self.claims = settings, tuple(streams), claims
        self._access, self._name, self._rng = access, name, rng
        self._on_disconnect, self._on_reconnect, self._on_retry = on_disconnect, on_reconnect, on_retry
        self._on_failure = on_failure
        self._nats: NatsConnection | None = None
        self._refusals: list[str] = []
        """Since the last time that we were in: one for each attempt that no other one would better."""
        self._first = True
        self._opening = asyncio.Lock()
        self._confirmations: Confirmations | None = None
        self._last_error = ""
        self._heard = asyncio.Event()
        self._closed = False
        self._tails: dict[str, Tail] = {}
        self.reconnected: list[Callable[[], None]] = []
        """Called on the host loop after each reconnect: requests that were in the air are gone."""

    async def connection(self) -> NatsConnection:
        """The live client; connects if there is none.

        Raises:
            BusUnavailable: no connection within `connect_seconds`, or the bus was closed.
            BusRefused: the servers do not let us in, and never did.
        """
        if self._nats is not None and not self._nats.is_closed:
            return self._nats
        async with self._opening:
            if self._closed:
                raise BusUnavailable("the bus is closed")
            if self._nats is None or self._nats.is_closed:
                self._nats = await self._connect()
                if not self._first:
                    # The client had given up its connection: a login that was withdrawn, for example.
                    await self._back()
                self._first = False
            return self._nats

    async def jetstream(self) -> JetStreamContext:
        """JetStream on the live client."""
        return self._context(await self.connection())

    def _context(self, client: Client) -> JetStreamContext:
        # nats-py leaves `**opts` untyped.
        return cast(Any, client).jetstream(timeout=self.settings.answer_seconds)

    async def _connect(self) -> NatsConnection:
        access, client = self._access, NatsConnection(tls_only=self._access.settings.tls)
        self._refusals.clear()
        try:
            options: dict[str, Any] = access.options() | {
                "name": self._name,
                "allow_reconnect": True,
                "max_reconnect_attempts": -1,
                "reconnect_time_wait": self.settings.reconnect_wait,
                "reconnect_to_server_handler": NextServer(
                    self.settings.reconnect_wait, self.settings.reconnect_longest, self._rng
                ),
                "connect_timeout": 2,
                "ping_interval": self.settings.ping_seconds,
                "max_outstanding_pings": 2,
                "error_cb": self._failed,
                "disconnected_cb": self._disconnected,
                "reconnected_cb": self._back,
            }
            # nats-py would go on for ever, silently: the caller has to hear that there is no broker.
            await self._until_in(asyncio.create_task(client.connect(list(access.servers), **options)))
        except CONNECTION_ERRORS as error:
            refusal, heard = (
                connect_refusal(error, access.settings) or self._hopeless(),
                [*filter(None, self._refusals)],
            )
            with contextlib.suppress(Exception):
                await client.close()
            where = ", ".join(access.servers)
            if refusal and self._first:
                raise BusRefused(f"{where}: {refusal}") from error
            raise BusUnavailable(
                f"no connection to {where}: {[refusal, *heard][-1] or self._last_error or error}"
            ) from error
        self._refusals.clear()
        _log.info("bus_connected", server=client.greeting.get("server_name"), tls=access.settings.tls)
        if client.max_payload < _WANTED_PAYLOAD:
            _log.info("bus_small_payload", max_payload=client.max_payload, wanted=_WANTED_PAYLOAD)
        return client

    async def _until_in(self, attempt: "asyncio.Task[None]") -> None:
        """Until we are in, or every server has said that we never shall be."""
        heard: asyncio.Task[Any] = attempt
        try:
            async with asyncio.timeout(self.settings.connect_seconds):
                while not attempt.done() and not self._hopeless():
                    self._heard.clear()
                    heard = asyncio.create_task(self._heard.wait())
                    await asyncio.wait((attempt, heard), return_when=asyncio.FIRST_COMPLETED)
                    heard.cancel()
            if not attempt.done():
                raise TimeoutError("refused")
            attempt.result()
        finally:
            heard.cancel()
            while not attempt.done():
                # Until it hears: before Python 3.12 `asyncio.wait_for`, in nats-py, loses a cancellation that comes in
                # the moment in which a connection is refused, and the attempt goes on for ever.
                attempt.cancel()
                await asyncio.wait((attempt,), timeout=_CANCEL_SECONDS)
            await asyncio.gather(attempt, return_exceptions=True)

    def _hopeless(self) -> str:
        """What the servers say who all refuse us; empty as long as one may not."""
        if len(self._refusals) < len(self._access.servers) or not all(self._refusals):
            return ""
        return self._refusals[-1]

    async def _failed(self, error: Exception) -> None:
        self._last_error = f"{type(error).__name__}: {error}"
        refusal = connect_refusal(error, self._access.settings)
        if refusal and refusal not in self._refusals and not self._first:
            # Once, not for each of the attempts that go on until somebody has cured it.
            _log.error("bus_refused", reason=refusal)
        if refusal or not _ambiguous(error):
            self._refusals = [*self._refusals, refusal][-max(8, len(self._access.servers)) :]
        self._on_failure("refused" if refusal else "unreachable" if isinstance(error, OSError) else "other")
        self._heard.set()

    async def _disconnected(self) -> None:
        if not self._closed and self._nats is not None:
            _log.warning("bus_disconnected", error=self._last_error)
            self._on_disconnect()
            with contextlib.suppress(AccessUnusable):
                # A certificate that was renewed meanwhile counts from the next attempt on.
                self._nats.options["tls"] = self._access.tls()

    async def _back(self) -> None:
        _log.info("bus_reconnected")
        self._refusals.clear()
        self._on_reconnect()
        for callback in tuple(self.reconnected):
            callback()

    async def ensure_streams(self) -> None:
        """Create what is missing, bring what differs to its definition."""
        client = await self.connection()
        js = cast(Any, self._context(client))
        for stream in self.streams:
            config = _stream_config(stream, self._access)
            self._last_error = ""
            try:
                try:
                    await js.update_stream(config)
                except NotFoundError:
                    await js.add_stream(config)
            except APIError as error:
                if error.err_code is None:
                    # nats-py's word for: nobody answered.
                    raise self._silence(client, nats.errors.NoRespondersError(), stream) from error
                raise api_failure(error, f"stream {stream.name}") from error
            except CONNECTION_ERRORS as error:
                raise self._silence(client, error, stream) from error

    def _silence(self, client: NatsConnection, error: Exception, stream: Stream) -> BusUnavailable | BusRefused:
        jetstream = bool(client.greeting.get("jetstream"))
        return silence(error, f"stream {stream.name}", jetstream=jetstream, reported=self._last_error)

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
            except CONNECTION_ERRORS as error:
                outcomes = [error] * len(window)
            self._tails |= _advanced(before, self._tails, [done for done in outcomes if isinstance(done, Stored)])
            for item, outcome in zip(window, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    error = publish_failure(outcome, item.subject)
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
        with contextlib.suppress(*CONNECTION_ERRORS):
            await asyncio.wait_for(client.flush(1), 0.5)
        with contextlib.suppress(*CONNECTION_ERRORS):
            await asyncio.wait_for(client.close(), 0.5)


def _ambiguous(error: Exception) -> bool:
    """Whether a server hung up without a reason: under TLS 1.3 its refusal may be overtaken by the end of the line."""
    return isinstance(error, ConnectionResetError | BrokenPipeError | EOFError) or "empty response" in str(error)


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


def _stream_config(stream: Stream, access: NatsAccess) -> api.StreamConfig:
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
        num_replicas=access.settings.replicas,
    )


async def remove_durables(client: NatsClient, streams: Sequence[str], spared: Collection[str]) -> int:
    """Remove the durables of `streams` but `spared`, so that a subscription begins at the first record again; returns
    how many. May be done again.
    """
    removed = 0
    try:
        js = cast(Any, await client.jetstream())
        for stream in streams:
            found: list[Any] = []
            with contextlib.suppress(NotFoundError):
                found = await js.consumers_info(stream)  # a few dozen at most: one page of the broker's answer
            for consumer in found:
                if consumer.name not in spared:
                    await js.delete_consumer(stream, consumer.name)
                    removed += 1
    except APIError as error:
        raise api_failure(error, "removing consumers") from error
    except CONNECTION_ERRORS as error:
        raise BusUnavailable(f"removing consumers: {error!r}") from error
    return removed
