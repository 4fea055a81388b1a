"""`StubBus`: the bus in memory, on anyio's clock, so that a test on a mock clock runs days in milliseconds.

It keeps the promises that matter: deduplication within the window, redelivery after the ack wait, nak with delay, work
queues, discard NEW, expiry by age. What it cannot show, reconnects and real bytes, `tests/integration/` shows.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel

from actors.system.bus import Delivery, Depth, Tail
from actors.system.errors import BusMisconfigured, BusUnavailable
from actors.system.outgoing import Outgoing
from actors.system.streams import DUPLICATE_SECONDS, STREAMS, Stream, by_stream, matches, stream_of


class _Entry:
    """A stored record."""

    def __init__(self, log: "_Log", sequence: int, item: Outgoing, stored: float) -> None:
        self.log, self.sequence, self.item, self.stored = log, sequence, item, stored


class _Log:
    """One stream."""

    def __init__(self, definition: Stream) -> None:
        self.definition = definition
        self.entries: dict[int, _Entry] = {}
        self.ids: dict[str, float] = {}
        self.sequence = self.size = 0
        self.tail = Tail()

    def expire(self, now: float) -> None:
        self.ids = {key: at for key, at in self.ids.items() if now - at < DUPLICATE_SECONDS}
        for entry in list(self.entries.values()):
            if now - entry.stored >= self.definition.max_age:
                self.remove(entry.sequence)

    def remove(self, sequence: int) -> None:
        entry = self.entries.pop(sequence, None)
        if entry is not None:
            self.size -= len(entry.item.data)

    def append(self, item: Outgoing, now: float) -> bool:
        """Whether it is new."""
        self.expire(now)
        if item.id in self.ids:
            return False
        limit = self.definition.max_bytes
        if self.definition.discard_new and self.size + len(item.data) > limit:
            raise BusUnavailable(f"stream {self.definition.name}: maximum bytes exceeded")
        self.ids[item.id] = now
        self.sequence += 1
        self.entries[self.sequence] = _Entry(self, self.sequence, item, now)
        self.size += len(item.data)
        while self.size > limit:
            self.remove(next(iter(self.entries)))
        self.tail = Tail(self.sequence, self.tail.losses + (self.sequence <= self.tail.sequence))
        return True


class StubBus:
    """What `Bus` promises, for tests."""

    def __init__(self, streams: Sequence[Stream] = STREAMS, *, ack_wait: float = 30.0) -> None:
        """`ack_wait`: seconds on anyio's clock."""
        self._streams, self.ack_wait = streams, ack_wait
        self._logs = {stream.name: _Log(stream) for stream in streams}
        self._durables: dict[str, StubSubscription] = {}
        self.arrival = anyio.Event()
        self.down = False
        """Set by a test: every call then raises `BusUnavailable`, and fetches stay empty."""
        self.published: list[Outgoing] = []
        """Every item that was ever stored, in order, duplicates left out."""

    def _log(self, subject: str) -> _Log:
        return self._logs[stream_of(subject, self._streams).name]

    async def publish(self, items: Sequence[Outgoing]) -> None:
        await self._require_up()
        for item in items:
            if self._log(item.subject).append(item, anyio.current_time()):
                self.published.append(item)
        self.wake()

    def tail(self, subject: str) -> Tail:
        return self._log(subject).tail

    def remember(self, subject: str, sequence: int) -> None:
        log = self._log(subject)
        log.tail = Tail(max(log.tail.sequence, sequence), log.tail.losses)

    def lose(self, subject: str, records: int) -> None:
        """For a test: what a power failure does; the last `records` of the stream are gone, ids and all."""
        log = self._log(subject)
        for sequence in range(log.sequence - records + 1, log.sequence + 1):
            if sequence in log.entries:
                log.ids.pop(log.entries[sequence].item.id, None)
                log.remove(sequence)
        log.sequence -= records

    async def subscribe(self, durable: str, subjects: Sequence[str]) -> "StubSubscription":
        await self._require_up()
        grouped = by_stream(subjects, self._streams)
        taken = [subject for name, other in self._durables.items() if name != durable for subject in other.subjects]
        for name, own in grouped.items():
            if self._logs[name].definition.queue and any(matches(a, b) or matches(b, a) for a in own for b in taken):
                raise BusMisconfigured(f"work queue {name} is already consumed")
        found = self._durables.setdefault(durable, StubSubscription(self))
        found.subjects = tuple(subjects)
        for name in grouped:
            found.cursors.setdefault(self._logs[name], 0)
        return found

    async def depth(self) -> Mapping[str, Depth]:
        await self._require_up()
        for durable in self._durables.values():
            durable.collect()
        return {
            name: Depth(waiting=len(durable.ready), in_flight=len(durable.flying), acked=durable.acked)
            for name, durable in self._durables.items()
        }

    async def aclose(self) -> None:
        pass

    def wake(self) -> None:
        """Let waiting fetches look again."""
        self.arrival.set()
        self.arrival = anyio.Event()

    async def _require_up(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.down:
            raise BusUnavailable("the stub bus is down")


class StubSubscription:
    """A durable of `StubBus`, and the `Subscription` of all who hold it."""

    def __init__(self, bus: StubBus) -> None:
        self._bus = bus
        self.subjects: tuple[str, ...] = ()
        self.cursors: dict[_Log, int] = {}
        self.ready: deque[_Entry] = deque()
        self.flying: dict[_Entry, float] = {}
        self.acked = 0
        """Delivered or put off: when each is due again."""
        self._attempts: Counter[_Entry] = Counter()

    def collect(self) -> None:
        """Make ready what is new, and what is due again."""
        now = anyio.current_time()
        for entry in [entry for entry, due in self.flying.items() if due <= now]:
            del self.flying[entry]
            self.ready.append(entry)
        for log, cursor in self.cursors.items():
            log.expire(now)
            for sequence in range(cursor + 1, log.sequence + 1):
                entry = log.entries.get(sequence)
                if entry is not None and any(matches(pattern, entry.item.subject) for pattern in self.subjects):
                    self.ready.append(entry)
            self.cursors[log] = log.sequence
        self.ready = deque(entry for entry in self.ready if entry.sequence in entry.log.entries)

    async def fetch(self, n: int, timeout: float) -> list[Delivery]:
        deadline = anyio.current_time() + timeout
        while True:
            await anyio.lowlevel.checkpoint()
            if not self._bus.down:
                self.collect()
                if self.ready:
                    return [self._take() for _ in range(min(n, len(self.ready)))]
            now = anyio.current_time()
            if now >= deadline:
                return []
            due = min(self.flying.values(), default=deadline)
            arrival = self._bus.arrival
            with anyio.CancelScope(deadline=min(deadline, due) if due > now else deadline):
                await arrival.wait()

    def _take(self) -> Delivery:
        entry = self.ready.popleft()
        self._attempts[entry] += 1
        self.flying[entry] = anyio.current_time() + self._bus.ack_wait
        return Delivery(entry.item.subject, entry.item.id, entry.item.data, self._attempts[entry], entry)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for entry in await self._heard(deliveries):
            self.acked += self.flying.pop(entry, None) is not None
            if entry in self.ready:
                self.ready.remove(entry)
            if entry.log.definition.queue:
                entry.log.remove(entry.sequence)

    async def nak(self, deliveries: Sequence[Delivery], delay: float = 0.0) -> None:
        now = anyio.current_time()
        for entry in await self._heard(deliveries):
            if entry in self.flying:
                self.flying[entry] = now + delay
        self._bus.wake()

    async def in_progress(self, deliveries: Sequence[Delivery]) -> None:
        await self.nak(deliveries, self._bus.ack_wait)

    async def _heard(self, deliveries: Sequence[Delivery]) -> list[_Entry]:
        """The entries; none while the bus is down."""
        await anyio.lowlevel.checkpoint()
        found = [delivery.token for delivery in deliveries if isinstance(delivery.token, _Entry)]
        return [] if self._bus.down else found

    async def aclose(self) -> None:
        pass
