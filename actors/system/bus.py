"""The bus over NATS JetStream: publish, fetch and ack in batches, at least once, with deduplication by id.

Actors run on trio, nats-py on the host loop: each call crosses once, with a whole batch, because a crossing costs about
100 us. A request that was in the air when the broker died is never answered, so each call has its own deadline.
"""

import asyncio
import contextlib
from collections import defaultdict
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
from actors.system.connection import CONNECTION_ERRORS, Connection, failing, failure
from actors.system.errors import BusUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.outgoing import Outgoing
from actors.system.pull import ID_HEADER, Delivery, Subscription
from actors.system.runtime import Host
from actors.system.streams import STREAMS, Stream, by_stream, stream_of

_WINDOW, _WINDOW_BYTES = 512, 8 << 20
"""Records and bytes in the air: one answer is waited for, not five hundred, and nats-py holds them in memory."""
_ATTEMPTS = 4
"""Rounds with the same ids before `BusUnavailable`."""
_HEADROOM = 1024
"""Bytes kept free below the broker's max_payload: headers count against it."""


class Depth(msgspec.Struct, frozen=True):
    """How far a durable is behind."""

    waiting: int = 0
    """Records not yet delivered."""
    in_flight: int = 0
    """Records delivered and not yet acked."""
    acked: int = 0
    """Rises with each record at the head that is acked."""


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
        """`claims` is a directory that all processes share, for payloads above the broker's limit; a record that was
        neither acked nor kept in progress for `ack_wait` seconds is delivered again."""
        self.ack_wait = ack_wait
        self.host, self._claims = host, ClaimStore(claims)
        self._connection = Connection(access, name, streams, metrics, answer_seconds)
        self._streams = self._connection.streams
        self._subscriptions: list[Subscription] = []
        self._tails: defaultdict[str, Tail] = defaultdict(Tail)

    async def open(self) -> None:
        """Connect and make sure of the streams. May be called again after BusUnavailable; BusMisconfigured: waiting
        cures nothing."""
        await self.host(self._connection.ensure_streams)

    async def publish(self, items: Sequence[Outgoing]) -> None:
        """Returns when every item is stored by the broker, in order for items of one subject on the first attempt.
        BusUnavailable: some may not be. BusMisconfigured: no stream has an item's subject."""
        await self.host(self._publish, items)

    def tail(self, subject: str) -> Tail:
        """Of the stream that takes `subject`, as of the last `publish`."""
        return self._tails[stream_of(subject, self._streams).name]

    def remember(self, subject: str, sequence: int) -> None:
        """`sequence` was confirmed in an earlier life: a number that is given again is a loss."""
        known = self.tail(subject)
        self._tails[stream_of(subject, self._streams).name] = Tail(max(known.sequence, sequence), known.losses)

    async def subscribe(self, durable: str, subjects: Sequence[str]) -> Subscription:
        """Join the durable consumer `durable` on `subjects`, creating it at the streams' beginning if it is new.
        BusMisconfigured: no stream has a subject, or a work queue has another consumer on it."""
        grouped = by_stream(subjects, self._streams)
        made = Subscription(self.host, self._connection, self._claims, durable, self.ack_wait, grouped)
        await self.host(made.open)
        self._subscriptions = [*(one for one in self._subscriptions if not one.closed), made]
        return made

    async def depth(self) -> Mapping[str, Depth]:
        """By durable, for those that were subscribed to here; for metrics and the dashboard."""
        return await self.host(self._depth)

    async def sweep_claims(self, now: float) -> int:
        """Delete payload files that no stream can point to any more; returns how many."""
        oldest = now - max(stream.max_age for stream in self._streams)
        return await self.host(asyncio.to_thread, self._claims.sweep, oldest)

    async def rewind(self, spared: Collection[str]) -> int:
        """Remove all durables but `spared` and those of work queues; returns how many. Whoever subscribes after it
        starts at the first record."""
        return await self.host(self._rewind, spared)

    async def aclose(self) -> None:
        """Close within about a second; idempotent."""
        await self.host(self._close)

    async def _close(self) -> None:
        # At once: a broker that does not answer costs each of them a second.
        await asyncio.gather(*(one.close() for one in self._subscriptions))
        await self._connection.close()

    async def _publish(self, items: Sequence[Outgoing]) -> None:
        if not items:
            return
        for item in items:
            stream_of(item.subject, self._streams)
        left, outage = list(items), BusUnavailable("not confirmed")
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(min(1.0, 0.1 * 2**attempt))
            failed: list[tuple[Outgoing, BusUnavailable]] = []
            try:
                client = await self._connection.client()
                for window in _windows(left):
                    failed += await self._send(client, window)
            except (BusUnavailable, *CONNECTION_ERRORS) as error:
                outage = _outage(error, left[0].subject)
                continue
            if not failed:
                return
            left, outage = [item for item, _ in failed], failed[0][1]
        raise outage

    async def _send(self, client: Client, items: Sequence[Outgoing]) -> list[tuple[Outgoing, BusUnavailable]]:
        """Publish a window; those that are not confirmed, and why. One inbox and one deadline for all: JetStream's
        `publish` in nats-py has a timer and a task switch for each."""
        before, inbox, loop = self._tails.copy(), client.new_inbox(), asyncio.get_running_loop()
        answers: dict[str, asyncio.Future[Exception | _Stored]] = {
            f"{inbox}.{number}": loop.create_future() for number in range(len(items))
        }

        async def answered(message: Msg) -> None:
            answer = answers[message.subject]
            if not answer.done():
                answer.set_result(_stored(message))

        listening = await cast(Any, client).subscribe(f"{inbox}.*", cb=answered)
        try:
            for (reply, answer), item in zip(answers.items(), items, strict=True):
                headers, data = {ID_HEADER: item.id}, item.data
                if len(data) + len(item.id) > client.max_payload - _HEADROOM:
                    headers[CLAIM_HEADER], data = await asyncio.to_thread(self._claims.put, data), b""
                try:
                    await client.publish(item.subject, data, reply=reply, headers=headers)
                except CONNECTION_ERRORS as error:
                    answer.set_result(error)
            await asyncio.wait(answers.values(), timeout=self._connection.answer_seconds)
        finally:
            with contextlib.suppress(*CONNECTION_ERRORS):
                await listening.unsubscribe()
        outcomes = [one.result() if one.done() else TimeoutError("no confirmation") for one in answers.values()]
        self._advance(before, [one for one in outcomes if isinstance(one, _Stored) and not one.duplicate])
        return [
            (item, _outage(outcome, item.subject))
            for item, outcome in zip(items, outcomes, strict=True)
            if isinstance(outcome, Exception)
        ]

    def _advance(self, before: defaultdict[str, Tail], stored: Sequence[_Stored]) -> None:
        """Note how far the streams are filled. What a window added must lie behind `before`, when it was sent; others
        may have ended meanwhile."""
        for stream in {one.stream for one in stored}:
            numbers = [one.seq for one in stored if one.stream == stream]
            known = self._tails[stream]
            lost = min(numbers) <= before[stream].sequence
            self._tails[stream] = Tail(max(numbers if lost else [known.sequence, *numbers]), known.losses + lost)

    async def _consumers(self) -> list[tuple[Stream, Any]]:
        """Every durable of the streams, as it stands; a few dozen at most: one page of the answer."""
        js, found = cast(Any, await self._connection.jetstream()), list[tuple[Stream, Any]]()
        for stream in self._streams:
            with failing(f"consumers of {stream.name}"), contextlib.suppress(NotFoundError):
                found += [(stream, one) for one in await js.consumers_info(stream.name)]
        return found

    async def _depth(self) -> dict[str, Depth]:
        found = {one.durable: Depth() for one in self._subscriptions if not one.closed}
        for _, one in await self._consumers():
            if one.name in found:
                known, floor = found[one.name], one.ack_floor.stream_seq if one.ack_floor is not None else 0
                waiting, in_flight = one.num_pending or 0, one.num_ack_pending or 0
                found[one.name] = Depth(known.waiting + waiting, known.in_flight + in_flight, known.acked + floor)
        return found

    async def _rewind(self, spared: Collection[str]) -> int:
        js, removed = cast(Any, await self._connection.jetstream()), 0
        for stream, one in await self._consumers():
            if not stream.queue and one.name not in spared:
                with failing(f"removing consumer {one.name}"):
                    await js.delete_consumer(stream.name, one.name)
                removed += 1
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


def _stored(message: Msg) -> Exception | _Stored:
    """What a confirmation says."""
    try:
        stored = msgspec.json.decode(message.data, type=_Stored)
    except msgspec.DecodeError as error:
        return nats.errors.Error(f"no confirmation: {message.headers or error}")  # of 503: no stream takes it now
    if stored.error is None:
        return stored
    return APIError(**{key: stored.error.get(key) for key in ("code", "description", "err_code")})


def _outage(error: Exception, subject: str) -> BusUnavailable:
    """Why a record is not confirmed: while we run, a limit that is reached or a login that is refused is an outage; the
    records wait in spool and outbox until it is cured."""
    return error if isinstance(error, BusUnavailable) else BusUnavailable(str(failure(error, subject)))


__all__ = ["Bus", "Delivery", "Depth", "Subscription", "Tail"]
