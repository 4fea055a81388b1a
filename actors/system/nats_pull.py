"""The asyncio side of a NATS subscription: pull consumers, one per stream, feeding one buffer.

nats-py's `fetch` waits out its timeout when fewer records come than were asked for, serves one stream only, and forgets
what arrives after a cancel. Here a request stands until it is used up or expires, and the next batch is asked for
while this one is worked on.
"""

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from actors.system.bus import Delivery, Depth
from actors.system.claim_check import Claim
from actors.system.errors import BusMisconfigured, BusUnavailable, PayloadMissing
from actors.system.nats_client import CLAIM_HEADER, ID_HEADER, NatsClient
from actors.system.nats_failures import CONNECTION_ERRORS, api_failure
from actors.system.streams import Stream

_log = structlog.get_logger(__name__)

_EXPIRES = 20.0
"""Seconds that a pull request stands; a reconnect or a refusal ends it sooner."""
_HEARTBEAT = 2.0
"""Seconds after which the server says that a request still stands, if no record came meanwhile."""
_SILENCE = 2.5 * _HEARTBEAT
"""Seconds without a word after which it does not: the server that led the consumer is dead, and nobody will tell."""
_LEAVING = 1.0
"""Seconds for the server to say that nothing more is on its way."""
_RECHECK = 0.5
"""Seconds before a refused request is made again, after making sure that the consumer exists."""


class _Source:
    """One stream's consumer: requests that stand with the server."""

    def __init__(self, stream: Stream, subjects: tuple[str, ...]) -> None:
        self.stream, self.subjects = stream, subjects
        self.requests: dict[str, list[float]] = {}
        """Reply subject -> [records still to come, loop time when it expires]; the oldest is served first."""
        self.blocked_until = 0.0
        self.heard = 0.0
        """Loop time of the server's last word on a request, or of ours."""
        self.lost = False

    def credit(self, now: float) -> int:
        """Records that the server may still send."""
        self.requests = {key: value for key, value in self.requests.items() if value[1] > now and value[0] > 0}
        return int(sum(value[0] for value in self.requests.values()))

    def silent(self, now: float) -> bool:
        """Whether requests stand that the server has forgotten."""
        return self.credit(now) > 0 and now > self.heard + _SILENCE

    def arrived(self) -> None:
        for value in self.requests.values():
            if value[0] > 0:
                value[0] -= 1
                return


class NatsPull:
    """Records of one durable."""

    def __init__(self, client: NatsClient, durable: str, grouped: dict[str, tuple[Stream, tuple[str, ...]]]) -> None:
        self._client, self._durable = client, durable
        self._sources = {name: _Source(stream, subjects) for name, (stream, subjects) in grouped.items()}
        self._buffer: deque[Msg] = deque()
        self._event = asyncio.Event()
        self._inbox: Inbox | None = None
        self._prefix = ""
        self._nats: Client | None = None
        self._number = 0
        self._closed = self._left = False

    async def open(self) -> None:
        """Create the consumers and the inbox."""
        for source in self._sources.values():
            await self._ensure(source)
        await self._listen()
        self._client.reconnected.append(self._forget_requests)

    async def _ensure(self, source: _Source) -> None:
        settings = self._client.settings
        config = api.ConsumerConfig(
            durable_name=self._durable,
            filter_subjects=list(source.subjects),
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=settings.ack_wait,
            max_deliver=-1,
            max_ack_pending=settings.max_ack_pending,
        )
        js = cast(Any, await self._client.jetstream())
        try:
            try:
                await js.add_consumer(source.stream.name, config)
            except NotFoundError:
                # The broker lost its store underneath us.
                await self._client.ensure_streams()
                await js.add_consumer(source.stream.name, config)
        except APIError as error:
            raise api_failure(error, f"consumer {self._durable} of {source.stream.name}") from error
        except CONNECTION_ERRORS as error:
            raise BusUnavailable(f"consumer {self._durable}: {error!r}") from error
        source.lost = False

    async def _listen(self) -> Client:
        client = await self._client.connection()
        if client is not self._nats:
            self._nats = client
            self._prefix = client.new_inbox()
            self._inbox = await cast(Any, client).subscribe(f"{self._prefix}.*", cb=self._receive)
            self._forget_requests()
        return client

    def _forget_requests(self) -> None:
        for source in self._sources.values():
            source.requests.clear()
            source.blocked_until = 0.0
        self._event.set()

    async def _receive(self, message: Msg) -> None:
        status = JetStreamContext.is_status_msg(message)
        if not status and self._left:
            await self._answer([message], b"-NAK")
        elif not status:
            self._buffer.append(message)
            source = self._sources.get(message.metadata.stream)
            if source is not None:
                source.heard = asyncio.get_running_loop().time()
                source.arrived()
        else:
            self._refused(message, status)
        self._event.set()

    def _refused(self, message: Msg, status: str) -> None:
        """A request ended without (all) its records: 408 expired, 409 consumer gone or busy, 503 no JetStream. 100 says
        that it stands."""
        for source in self._sources.values():
            if status == "100":
                if message.subject in source.requests:
                    source.heard = asyncio.get_running_loop().time()
                continue
            if source.requests.pop(message.subject, None) is None or status == "408":
                continue
            if not source.lost:  # every request that stands is refused by itself: the first says it for all
                description = (message.headers or {}).get("Description", "")
                _log.info("pull_refused", durable=self._durable, status=status, description=description)
            source.blocked_until = asyncio.get_running_loop().time() + _RECHECK
            source.lost = True

    async def fetch(self, n: int, timeout: float) -> list[Delivery]:
        """See `bus.Subscription.fetch`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self._closed:
            self._event.clear()
            if self._buffer:
                break
            now = loop.time()
            wake = deadline
            wake = await self._ask_all(n, now, wake)
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
        """Ask every stream for `n` records less what is on its way; returns when to try again, `wake` at the latest."""
        try:
            for source in self._sources.values():
                if source.silent(now):
                    _log.info("pull_silent", durable=self._durable, stream=source.stream.name)
                    source.requests.clear()
                if source.blocked_until > now:
                    wake = min(wake, source.blocked_until)
                else:
                    await self._ask(source, n, now)
                    wake = min(wake, source.heard + _SILENCE + 0.1)
        except BusUnavailable:
            wake = min(wake, now + _RECHECK)
        except CONNECTION_ERRORS as error:
            _log.debug("pull_failed", durable=self._durable, error=repr(error))
            wake = min(wake, now + _RECHECK)
        return wake

    async def _ask(self, source: _Source, n: int, now: float) -> None:
        if source.lost:
            await self._ensure(source)
        client = await self._listen()
        missing = n - source.credit(now)
        if missing <= 0:
            return
        self._number += 1
        reply = f"{self._prefix}.{self._number}"
        source.requests[reply] = [missing, now + _EXPIRES + 1.0]
        source.heard = max(source.heard, now)
        request = {"batch": missing, "expires": int(_EXPIRES * 1e9), "idle_heartbeat": int(_HEARTBEAT * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{source.stream.name}.{self._durable}"
        await client.publish(subject, json.dumps(request).encode(), reply=reply)

    async def _delivery(self, message: Msg) -> Delivery:
        headers = message.headers or {}
        metadata = message.metadata
        data, problem = message.data, ""
        if CLAIM_HEADER in headers:
            try:
                claim = msgspec.json.decode(headers[CLAIM_HEADER], type=Claim)
                data = await asyncio.to_thread(self._client.claims.get, claim)
            except (PayloadMissing, msgspec.DecodeError) as error:
                problem = f"{type(error).__name__}: {error}"
        record = headers.get(ID_HEADER) or f"{metadata.stream}:{metadata.sequence.stream}"
        return Delivery(message.subject, record, data, metadata.num_delivered, message, problem)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `bus.Subscription.ack`."""
        await self._answer([_message(delivery) for delivery in deliveries], b"+ACK")

    async def nak(self, deliveries: Sequence[Delivery], delay: float) -> None:
        """See `bus.Subscription.nak`."""
        body = b"-NAK " + json.dumps({"delay": int(delay * 1e9)}).encode() if delay > 0 else b"-NAK"
        await self._answer([_message(delivery) for delivery in deliveries], body)

    async def in_progress(self, deliveries: Sequence[Delivery]) -> None:
        """See `bus.Subscription.in_progress`; what waits in the buffer is ours as well."""
        await self._answer([*(_message(delivery) for delivery in deliveries), *self._buffer], b"+WPI")

    async def _answer(self, messages: Sequence[Msg], body: bytes) -> None:
        client = self._nats
        if client is None or client.is_closed:
            return
        try:
            for message in messages:
                await client.publish(message.reply, body)
        except CONNECTION_ERRORS as error:
            # The records come again after the ack wait, and the ledger knows them.
            _log.info("ack_lost", durable=self._durable, records=len(messages), error=repr(error))

    async def depth(self) -> Depth:
        """See `bus.Bus.depth`."""
        js = await self._client.jetstream()
        waiting = in_flight = 0
        try:
            for name in self._sources:
                info = await js.consumer_info(name, self._durable)
                waiting += info.num_pending or 0
                in_flight += info.num_ack_pending or 0
        except APIError as error:
            raise BusUnavailable(str(error)) from error
        except CONNECTION_ERRORS as error:
            raise BusUnavailable(f"depth of {self._durable}: {error!r}") from error
        return Depth(waiting=waiting, in_flight=in_flight)

    async def close(self) -> None:
        """Leave the inbox, then hand the buffer back: it would come again to requests that still stood. The durable
        stays."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._forget_requests in self._client.reconnected:
            self._client.reconnected.remove(self._forget_requests)
        if self._inbox is not None and self._nats is not None and not self._nats.is_closed:
            # Not cancelled in the end: nats-py's reader fails over an answer that nobody waits for any more.
            await asyncio.wait({asyncio.create_task(self._leave(self._inbox))}, timeout=_LEAVING)
        self._left = True
        await self._answer(list(self._buffer), b"-NAK")
        self._buffer.clear()

    async def _leave(self, inbox: Inbox) -> None:
        try:
            # What is on its way arrives before the server's answer to this.
            await inbox.drain()
        except CONNECTION_ERRORS as error:
            _log.debug("unsubscribe_failed", durable=self._durable, error=repr(error))


def _message(delivery: Delivery) -> Msg:
    if not isinstance(delivery.token, Msg):
        raise BusMisconfigured("a delivery of another bus")
    return delivery.token
