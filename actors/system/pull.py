"""A durable consumer: pull requests that stand with the server, one a stream, feeding one buffer.

nats-py's `fetch` waits out its timeout when fewer records come than were asked for, serves one stream only, and forgets
what arrives after a cancel. Here a request stands until it is used up or expires, and the next batch is asked for
while this one is worked on. Everything with a leading underscore runs on the host loop.
"""

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from actors.system.claim_check import CLAIM_HEADER, ClaimStore
from actors.system.connection import CONNECTION_ERRORS, Connection, failing
from actors.system.errors import BusUnavailable, PayloadMissing
from actors.system.runtime import Host

_log = structlog.get_logger(__name__)

ID_HEADER = "Nats-Msg-Id"
_EXPIRES = 4.0
"""Seconds that a pull request stands; a reconnect or a refusal ends it sooner."""
_GRACE = 1.0
"""Seconds for the server to say that it has expired: one that is silent for longer is dead, and nobody will tell."""
_LEAVING = 1.0
"""Seconds for the server to say that nothing more is on its way."""
_RECHECK = 0.5
"""Seconds before a refused request is made again, after making sure that the consumer exists."""


class Delivery(msgspec.Struct, frozen=True):
    """A record as it came in."""

    subject: str
    id: str
    """`Nats-Msg-Id` of its publisher; `STREAM:sequence` if it set none."""
    data: bytes
    attempts: int
    """How many times the broker has delivered it to this durable, this time included."""
    token: Any
    """The bus' own handle for ack and nak."""
    problem: str = ""
    """Why `data` could not be had (claim without its file); empty if all is well."""


class _Source(msgspec.Struct):
    """One stream's consumer, and the request that stands with it."""

    stream: str
    subjects: list[str]
    request: str = ""
    """Reply subject of the last one."""
    left: int = 0
    """Records that the server may still send."""
    until: float = 0.0
    """Loop time before which nothing is asked: a request stands, or was refused just now."""
    lost: bool = False
    """The consumer may be gone."""


class Subscription:
    """One durable consumer; several holders of the same durable share its records."""

    def __init__(
        self, host: Host, connection: Connection, claims: ClaimStore, durable: str, ack_wait: float,
        grouped: Mapping[str, list[str]],
    ) -> None:  # fmt: skip
        self.durable, self.closed = durable, False
        self._host, self._connection, self._claims, self._ack_wait = host, connection, claims, ack_wait
        self._sources = {stream: _Source(stream, subjects) for stream, subjects in grouped.items()}
        self._buffer: deque[Msg] = deque()
        self._event = asyncio.Event()
        self._inbox: Inbox | None = None
        self._client: Client | None = None
        self._prefix, self._number = "", 0
        self._reconnects = 0
        """Of the client, as last seen: requests that were in the air before are gone."""

    async def open(self) -> None:
        """Create the consumers and the inbox; once, on the host loop."""
        for source in self._sources.values():
            await self._ensure(source)
        await self._listen()

    async def fetch(self, n: int, timeout: float) -> list[Delivery]:
        """Up to `n` records, as soon as there are any; empty after `timeout` seconds, or while the broker is away.

        May be cancelled at any moment; what had arrived by then comes with the next call.
        """
        return await self._host(self._fetch, n, timeout)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are done. A lost ack means redelivery, so it is never worth a retry."""
        await self._host(self._answer, [delivery.token for delivery in deliveries], b"+ACK")

    async def nak(self, deliveries: Sequence[Delivery], delay: float = 0.0) -> None:
        """Deliver these again in `delay` seconds."""
        body = b"-NAK " + json.dumps({"delay": int(delay * 1e9)}).encode() if delay > 0 else b"-NAK"
        await self._host(self._answer, [delivery.token for delivery in deliveries], body)

    async def in_progress(self, deliveries: Sequence[Delivery]) -> None:
        """These are being worked on: start their ack wait again. What waits in the buffer is ours as well."""
        await self._host(self._answer, [*(delivery.token for delivery in deliveries), *self._buffer], b"+WPI")

    async def aclose(self) -> None:
        """Stop receiving. The durable and its position stay."""
        await self._host(self.close)

    async def _ensure(self, source: _Source) -> None:
        config = api.ConsumerConfig(
            durable_name=self.durable,
            filter_subjects=source.subjects,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait,
        )
        js = cast(Any, await self._connection.jetstream())
        with failing(f"consumer {self.durable} of {source.stream}"):
            try:
                await js.add_consumer(source.stream, config)
            except NotFoundError:
                # The broker lost its store underneath us.
                await self._connection.ensure_streams()
                await js.add_consumer(source.stream, config)
        source.lost = False

    async def _listen(self) -> Client:
        client = await self._connection.client()
        if client is not self._client:
            self._client, self._reconnects = client, -1
            self._prefix = client.new_inbox()
            self._inbox = await cast(Any, client).subscribe(f"{self._prefix}.*", cb=self._receive)
        if self._reconnects != client.stats["reconnects"]:
            self._reconnects = client.stats["reconnects"]
            self._forget_requests()
        return client

    def _forget_requests(self) -> None:
        for source in self._sources.values():
            source.until = 0.0

    async def _receive(self, message: Msg) -> None:
        status = JetStreamContext.is_status_msg(message)
        if status:
            self._ended(message, status)
        elif self.closed:
            await self._answer([message], b"-NAK")
        else:
            self._buffer.append(message)
            source = self._sources[message.metadata.stream]
            source.left -= 1
            if source.left <= 0:
                source.until = 0.0
        self._event.set()

    def _ended(self, message: Msg, status: str) -> None:
        """A request ended without (all) its records: 408 expired, 409 consumer gone or busy, 503 no JetStream."""
        for source in self._sources.values():
            if message.subject != source.request:
                continue
            source.until = 0.0
            if status != "408":
                description = (message.headers or {}).get("Description", "")
                _log.info("pull_refused", durable=self.durable, status=status, description=description)
                source.until, source.lost = asyncio.get_running_loop().time() + _RECHECK, True

    async def _fetch(self, n: int, timeout: float) -> list[Delivery]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self.closed:
            self._event.clear()
            if self._buffer:
                break
            now = loop.time()
            wake = await self._ask_all(n, now, deadline)
            if now >= deadline:
                break
            try:
                await asyncio.wait_for(self._event.wait(), max(0.0, wake - loop.time()))
            except TimeoutError:
                continue
        else:
            raise BusUnavailable("the subscription is closed")
        taken = [self._buffer.popleft() for _ in range(min(n, len(self._buffer)))]
        try:
            if taken:
                await self._ask_all(n - len(self._buffer), loop.time(), deadline)
            return [await self._delivery(message) for message in taken]
        except asyncio.CancelledError:
            self._buffer.extendleft(reversed(taken))
            raise

    async def _ask_all(self, n: int, now: float, wake: float) -> float:
        """Ask every stream that has no request of ours for `n` records; returns when to try again, `wake` at the
        latest."""
        try:
            client = await self._listen()
            for source in self._sources.values():
                if source.until <= now:
                    await self._ask(client, source, n, now)
                wake = min(wake, source.until)
        except (BusUnavailable, *CONNECTION_ERRORS) as error:
            _log.debug("pull_failed", durable=self.durable, error=repr(error))
            self._forget_requests()
            wake = min(wake, now + _RECHECK)
        return wake

    async def _ask(self, client: Client, source: _Source, n: int, now: float) -> None:
        if source.lost:
            await self._ensure(source)
        if n <= 0:
            return
        self._number += 1
        source.request, source.left, source.until = f"{self._prefix}.{self._number}", n, now + _EXPIRES + _GRACE
        request = {"batch": n, "expires": int(_EXPIRES * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{source.stream}.{self.durable}"
        await client.publish(subject, json.dumps(request).encode(), reply=source.request)

    async def _delivery(self, message: Msg) -> Delivery:
        headers, metadata = message.headers or {}, message.metadata
        data, problem = message.data, ""
        if CLAIM_HEADER in headers:
            try:
                data = await asyncio.to_thread(self._claims.get, headers[CLAIM_HEADER])
            except PayloadMissing as error:
                problem = f"{type(error).__name__}: {error}"
        record = headers.get(ID_HEADER) or f"{metadata.stream}:{metadata.sequence.stream}"
        return Delivery(message.subject, record, data, metadata.num_delivered, message, problem)

    async def _answer(self, messages: Sequence[Msg], body: bytes) -> None:
        client = self._client
        if client is None or client.is_closed:
            return
        try:
            for message in messages:
                await client.publish(message.reply, body)
        except CONNECTION_ERRORS as error:
            # The records come again after the ack wait, and the ledger knows them.
            _log.info("ack_lost", durable=self.durable, records=len(messages), error=repr(error))

    async def close(self) -> None:
        """Leave the inbox, then hand the buffer back: it would come again to requests that still stood. On the host
        loop; idempotent."""
        if self.closed:
            return
        self.closed = True
        self._event.set()
        if self._inbox is not None and self._client is not None and not self._client.is_closed:
            # Not cancelled in the end: nats-py's reader fails over an answer that nobody waits for any more.
            await asyncio.wait({asyncio.create_task(self._leave(self._inbox))}, timeout=_LEAVING)
        await self._answer(list(self._buffer), b"-NAK")
        self._buffer.clear()

    async def _leave(self, inbox: Inbox) -> None:
        try:
            # What is on its way arrives before the server's answer to this.
            await inbox.drain()
        except CONNECTION_ERRORS as error:
            _log.debug("unsubscribe_failed", durable=self.durable, error=repr(error))
