"""The bus over NATS JetStream: publish, fetch and ack in batches, at least once, with deduplication by id.

Actors run on trio, nats-py on the host loop: each call crosses once, with a whole batch, because a crossing costs about
100 us. A request that was in the air when the broker died is never answered, so each call has its own deadline.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError, NotFoundError

from actors.system.access import Access
from actors.system.claim_check import CLAIM_HEADER, ClaimStore
from actors.system.connection import CONNECTION_ERRORS, Connection, api_failure
from actors.system.errors import BusMisconfigured, BusRefused, BusUnavailable, StreamFull
from actors.system.metrics import SystemMetrics
from actors.system.outgoing import Outgoing
from actors.system.pull import ID_HEADER, Delivery, Depth, Subscription
from actors.system.runtime import Host
from actors.system.streams import STREAMS, Stream, by_stream, stream_of

_DURABLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_WINDOW, _WINDOW_BYTES = 512, 8 << 20
"""Records and bytes in the air: one answer is waited for, not five hundred, and nats-py holds them in memory."""
_ATTEMPTS = 4
"""Rounds with the same ids before `BusUnavailable`."""
_HEADROOM = 1024
"""Bytes kept free below the broker's max_payload: headers count against it."""


class Tail(msgspec.Struct, frozen=True):
    """How far a stream was filled from here."""

    sequence: int = 0
    """The highest number that the broker confirmed; 0 before the first."""
    losses: int = 0
    """How often it then gave a number again: it had lost what it had confirmed (power failure, restored backup)."""


class _Stored(msgspec.Struct, frozen=True):
    """JetStream's confirmation, as it stands on the wire."""

    stream: str = ""
    seq: int = 0
    """Its number there; that of its first coming, if it is a duplicate."""
    duplicate: bool = False
    error: dict[str, Any] | None = None


class _Window:
    """Records in the air, with one deadline, and what became of them: nats-py's `publish` has a future, a timer and a
    task switch for each."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.done = asyncio.Event()
        self.outcomes: list[Exception | _Stored] = [TimeoutError("no confirmation")] * size

    def settle(self, place: int, outcome: Exception | _Stored) -> None:
        self.outcomes[place] = outcome
        self.left -= 1
        if not self.left:
            self.done.set()


class Bus:
    """`open` it first, `aclose` it last."""

    def __init__(
        self,
        host: Host,
        access: Access,
        *,
        claims: Path,
        name: str = "evolved",
        streams: Sequence[Stream] = STREAMS,
        metrics: SystemMetrics | None = None,
        answer_seconds: float = 5.0,
        ack_wait: float = 30.0,
    ) -> None:
        """
        Args:
            host: the way to the loop that nats-py lives on.
            claims: directory shared by all processes for payloads above the broker's limit.
            name: this connection's name in the broker's monitoring.
            streams: to be created, or brought to their definitions, by `open`.
            answer_seconds: for one answer of JetStream.
            ack_wait: seconds after which a record that was neither acked nor kept in progress is delivered again.
        """
        self.ack_wait = ack_wait
        self._host, self._claims = host, ClaimStore(claims)
        self._connection = Connection(access, name, streams, metrics, answer_seconds)
        self._streams = self._connection.streams
        self._subscriptions: list[Subscription] = []
        self._tails: dict[str, Tail] = {}
        self._client: Client | None = None
        """The one that confirmations are heard on."""
        self._prefix, self._numbers = "", itertools.count()
        self._in_air: dict[str, tuple[_Window, int]] = {}
        """Reply subject -> window and place in it."""

    async def open(self) -> None:
        """Connect and make sure of the streams.

        Raises:
            BusUnavailable: no broker answers; may be called again.
            BusRefused: the servers do not let us in, or not as the settings say; waiting cures nothing.
            BusMisconfigured: a stream cannot be had as defined.
        """
        await self._host(self._connection.ensure_streams)

    async def publish(self, items: Sequence[Outgoing]) -> None:
        """Returns when every item is stored by the broker, in order for items of one subject on the first attempt.

        Raises:
            StreamFull: a stream is at its limit. Some items may have been stored.
            BusUnavailable: not confirmed within the bounded retries. Some items may have been stored.
            BusMisconfigured: no stream has an item's subject.
        """
        await self._host(self._publish, items)

    def tail(self, subject: str) -> Tail:
        """Of the stream that takes `subject`, as of the last `publish`."""
        return self._tails.get(stream_of(subject, self._streams).name, Tail())

    def remember(self, subject: str, sequence: int) -> None:
        """`sequence` was confirmed in an earlier life: a number that is given again is a loss."""
        known = self.tail(subject)
        self._tails[stream_of(subject, self._streams).name] = Tail(max(known.sequence, sequence), known.losses)

    async def subscribe(self, durable: str, subjects: Sequence[str]) -> Subscription:
        """Join the durable consumer `durable` on `subjects`, creating it at the streams' beginning if it is new.

        Raises:
            BusUnavailable: the broker does not answer.
            BusMisconfigured: no stream has a subject, or a work queue has another consumer on it.
        """
        if not durable or not set(durable) <= _DURABLE:
            raise BusMisconfigured(f"durable name {durable!r}: letters, digits, - and _ only")
        grouped = by_stream(subjects, self._streams)
        made = Subscription(self._host, self._connection, self._claims, durable, self.ack_wait, grouped)
        await self._host(made.open)
        self._subscriptions = [*(one for one in self._subscriptions if not one.closed), made]
        return made

    async def depth(self) -> Mapping[str, Depth]:
        """By durable, for those that were subscribed to here; for metrics and the dashboard."""
        held = {one.durable: one for one in self._subscriptions if not one.closed}
        return {durable: await one.depth() for durable, one in held.items()}

    async def sweep_claims(self, now: float) -> int:
        """Delete payload files that no stream can point to any more; returns how many."""
        oldest = max(stream.max_age or float("inf") for stream in self._streams)
        return await self._host(asyncio.to_thread, self._claims.sweep, now - oldest)

    async def rewind(self, spared: Collection[str]) -> int:
        """Remove all durables but `spared` and those of work queues, which `subscribe` then makes anew, from the first
        record on; returns how many. To be called before anybody subscribes; may be done again.
        """
        return await self._host(self._rewind, spared)

    async def aclose(self) -> None:
        """Close within about a second; idempotent."""
        await self._host(self._close)

    async def _close(self) -> None:
        # At once: a broker that does not answer costs each of them a second.
        await asyncio.gather(*(one.close() for one in self._subscriptions))
        await self._connection.close()

    async def _publish(self, items: Sequence[Outgoing]) -> None:
        if not items:
            return
        for item in items:
            stream_of(item.subject, self._streams)
        left, failure = list(items), None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._connection.metrics.bus_retries.inc(len(left))
                await asyncio.sleep(min(1.0, 0.1 * 2**attempt))
            left, failure = await self._round(left)
            if not left:
                return
            if isinstance(failure, StreamFull):
                raise failure
        raise failure or BusUnavailable("not confirmed")

    async def _round(self, items: list[Outgoing]) -> tuple[list[Outgoing], BusUnavailable | None]:
        """Publish `items` window by window; returns those without a confirmation and why."""
        left: list[Outgoing] = []
        failure: BusUnavailable | None = None
        try:
            client = await self._confirming()
        except (BusUnavailable, *CONNECTION_ERRORS) as error:
            return items, _failure(error, items[0].subject)
        for window in _windows(items):
            before = self._tails.copy()
            outcomes = await self._send(client, window)
            self._advance(before, [one for one in outcomes if isinstance(one, _Stored) and not one.duplicate])
            for item, outcome in zip(window, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    error = _failure(outcome, item.subject)
                    left.append(item)
                    # Back-pressure says more than a timeout beside it.
                    failure = error if failure is None or isinstance(error, StreamFull) else failure
        return left, failure

    async def _confirming(self) -> Client:
        """The live client, on which confirmations are heard."""
        client = await self._connection.client()
        if self._client is not client:
            self._prefix = client.new_inbox()
            await cast(Any, client).subscribe(f"{self._prefix}.*", cb=self._confirmed)
            self._client = client
        return client

    async def _send(self, client: Client, items: Sequence[Outgoing]) -> list[Exception | _Stored]:
        """For each item its confirmation, or why there is none."""
        window, tokens = _Window(len(items)), [f"{self._prefix}.{next(self._numbers)}" for _ in items]
        try:
            for place, (token, item) in enumerate(zip(tokens, items, strict=True)):
                headers, data = {ID_HEADER: item.id}, item.data
                if len(data) + len(item.id) > client.max_payload - _HEADROOM:
                    claim = await asyncio.to_thread(self._claims.put, data)
                    headers[CLAIM_HEADER], data = msgspec.json.encode(claim).decode(), b""
                self._in_air[token] = window, place
                try:
                    await client.publish(item.subject, data, reply=token, headers=headers)
                except CONNECTION_ERRORS as error:
                    del self._in_air[token]
                    window.settle(place, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(window.done.wait(), self._connection.answer_seconds)
        finally:
            for token in tokens:
                self._in_air.pop(token, None)
        return window.outcomes

    async def _confirmed(self, message: Msg) -> None:
        window, place = self._in_air.pop(message.subject, (None, 0))
        if window is None:
            return
        outcome: Exception | _Stored = nats.errors.NoRespondersError()
        if not message.headers or message.headers.get("Status") != "503":
            try:
                outcome = msgspec.json.decode(message.data, type=_Stored)
                if outcome.error is not None:
                    outcome = APIError(**{key: outcome.error.get(key) for key in ("code", "description", "err_code")})
            except msgspec.DecodeError as problem:
                outcome = nats.errors.Error(f"no confirmation: {problem}")
        window.settle(place, outcome)

    def _advance(self, before: Mapping[str, Tail], stored: Sequence[_Stored]) -> None:
        """Note how far the streams are filled. What a window added must lie behind `before`, when it was sent; others
        may have ended meanwhile."""
        for stream in {one.stream for one in stored}:
            numbers = [one.seq for one in stored if one.stream == stream]
            known = self._tails.get(stream, Tail())
            lost = min(numbers) <= before.get(stream, Tail()).sequence
            self._tails[stream] = Tail(max(numbers if lost else [known.sequence, *numbers]), known.losses + lost)

    async def _rewind(self, spared: Collection[str]) -> int:
        removed = 0
        try:
            js = cast(Any, await self._connection.jetstream())
            for stream in [one for one in self._streams if not one.queue]:
                found: list[Any] = []
                with contextlib.suppress(NotFoundError):
                    found = await js.consumers_info(stream.name)  # a few dozen at most: one page of the answer
                for name in {one.name for one in found} - set(spared):
                    await js.delete_consumer(stream.name, name)
                    removed += 1
        except APIError as error:
            raise api_failure(error, "removing consumers") from error
        except CONNECTION_ERRORS as error:
            raise BusUnavailable(f"removing consumers: {error!r}") from error
        return removed


def _windows(items: Sequence[Outgoing]) -> list[list[Outgoing]]:
    windows: list[list[Outgoing]] = []
    size = 0
    for item in items:
        if not windows or size + len(item.data) > _WINDOW_BYTES or len(windows[-1]) >= _WINDOW:
            windows.append([])
            size = 0
        windows[-1].append(item)
        size += len(item.data)
    return windows


def _failure(outcome: Exception, subject: str) -> BusUnavailable:
    """Why a record is not confirmed."""
    if isinstance(outcome, BusUnavailable):
        return outcome
    if isinstance(outcome, APIError):
        failure = api_failure(outcome, subject)
        if isinstance(failure, BusUnavailable):
            return failure
        if isinstance(failure, BusRefused):
            # A limit reached while we run is an outage: the records wait in spool and outbox until it is raised.
            return BusUnavailable(str(failure))
        raise failure from outcome
    return BusUnavailable(f"{subject}: {outcome!r}")


__all__ = ["Bus", "Delivery", "Depth", "Subscription", "Tail"]
