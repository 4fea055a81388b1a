"""`StubBus`: the bus in memory, on anyio's clock, so that a test on a mock clock runs days in milliseconds.

It keeps the promises that matter: deduplication within the window, redelivery after the ack wait, nak with delay, work
queues, discard NEW, expiry by age. What it cannot show, reconnects and real bytes, `tests/integration/` shows.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel

from actors.system.bus import Delivery, Depth, Outgoing, Tail
from actors.system.errors import BusMisconfigured, BusUnavailable, StreamFull
from actors.system.streams import STREAMS, Stream, by_stream, matches, stream_of


class _Entry:
    """A stored record."""

    def __init__(self, stream: str, sequence: int, item: Outgoing, stored: float) -> None:
        self.stream, self.sequence, self.item, self.stored = stream, sequence, item, stored


class _Log:
    """One stream."""

    def __init__(self, definition: Stream) -> None:
        self.definition = definition
        self.entries: dict[int, _Entry] = {}
        self.ids: dict[str, float] = {}
        self.sequence = 0
        self.size = 0

    def expire(self, now: float) -> None:
        window, age = self.definition.duplicate_window, self.definition.max_age
        self.ids = {key: at for key, at in self.ids.items() if now - at < window}
        if age:
            for sequence in [s for s, entry in self.entries.items() if now - entry.stored >= age]:
                self.remove(sequence)

    def remove(self, sequence: int) -> None:
        entry = self.entries.pop(sequence, None)
        if entry is not None:
            self.size -= len(entry.item.data)

    def append(self, item: Outgoing, now: float) -> None:
        if item.id in self.ids:
            return
        limit = self.definition.max_bytes
        if self.definition.discard_new and self.size + len(item.data) > limit:
            raise StreamFull(f"stream {self.definition.name}: maximum bytes exceeded")
        self.ids[item.id] = now
        self.sequence += 1
        self.entries[self.sequence] = _Entry(self.definition.name, self.sequence, item, now)
        self.size += len(item.data)
        while self.size > limit:
            self.remove(next(iter(self.entries)))


class _Durable:
    """Position and unacked records of one durable."""

    def __init__(self, subjects: tuple[str, ...], streams: Sequence[str]) -> None:
        self.subjects = subjects
        self.cursors = dict.fromkeys(streams, 0)
        self.ready: deque[_Entry] = deque()
        self.flying: dict[tuple[str, int], tuple[_Entry, float]] = {}
        """Delivered or put off: when each is due again."""
        self.attempts: dict[tuple[str, int], int] = {}


class StubBus:
    """A `Bus` for tests."""

    def __init__(self, streams: Sequence[Stream] = STREAMS, *, ack_wait: float = 30.0) -> None:
        """
        Args:
            streams: what there is.
            ack_wait: seconds on anyio's clock.
        """
        self._logs = {stream.name: _Log(stream) for stream in streams}
        self._streams = tuple(streams)
        self._durables: dict[str, _Durable] = {}
        self._ack_wait = ack_wait
        self._arrival = anyio.Event()
        self._tails: dict[str, Tail] = {}
        self.down = False
        """Set by a test: every call then raises `BusUnavailable`, and fetches stay empty."""
        self.published: list[Outgoing] = []
        """Every item that was ever stored, in order, duplicates left out."""

    @property
    def ack_wait(self) -> float:
        return self._ack_wait

    async def publish(self, items: Sequence[Outgoing]) -> None:
        await anyio.lowlevel.checkpoint()
        self._require_up()
        now = anyio.current_time()
        for item in items:
            log = self._logs[stream_of(item.subject, self._streams).name]
            log.expire(now)
            before = log.sequence
            log.append(item, now)
            if log.sequence > before:
                self.published.append(item)
                known = self._tails.get(log.definition.name, Tail())
                lost = log.sequence <= known.sequence
                self._tails[log.definition.name] = Tail(log.sequence, known.losses + lost)
        self._wake()

    def tail(self, subject: str) -> Tail:
        return self._tails.get(stream_of(subject, self._streams).name, Tail())

    def remember(self, subject: str, sequence: int) -> None:
        name = stream_of(subject, self._streams).name
        known = self.tail(subject)
        self._tails[name] = Tail(max(known.sequence, sequence), known.losses)

    def lose(self, subject: str, records: int) -> None:
        """For a test: what a power failure does; the last `records` of the stream are gone, ids and all."""
        log = self._logs[stream_of(subject, self._streams).name]
        for sequence in range(log.sequence - records + 1, log.sequence + 1):
            entry = log.entries.get(sequence)
            if entry is not None:
                log.ids.pop(entry.item.id, None)
                log.remove(sequence)
        log.sequence -= records

    async def subscribe(self, durable: str, subjects: Sequence[str]) -> "StubSubscription":
        await anyio.lowlevel.checkpoint()
        self._require_up()
        wanted = tuple(dict.fromkeys(subjects))
        grouped = by_stream(wanted, self._streams)
        for name, other in self._durables.items():
            if name == durable:
                continue
            for stream, own in grouped.values():
                if stream.queue and any(_overlap(a, b) for a in own for b in other.subjects):
                    raise BusMisconfigured(f"work queue {stream.name} is already consumed by {name}")
        state = self._durables.setdefault(durable, _Durable(wanted, list(grouped)))
        state.subjects = wanted
        for stream_name in grouped:
            state.cursors.setdefault(stream_name, 0)
        return StubSubscription(self, state)

    async def depth(self) -> Mapping[str, Depth]:
        await anyio.lowlevel.checkpoint()
        self._require_up()
        depths: dict[str, Depth] = {}
        for name, state in self._durables.items():
            self.collect(state)
            depths[name] = Depth(waiting=len(state.ready), in_flight=len(state.flying))
        return depths

    async def aclose(self) -> None:
        self._wake()

    def collect(self, state: _Durable) -> None:
        """Move what is new, and what is due again, to the durable's ready queue."""
        now = anyio.current_time()
        for key, (entry, due) in list(state.flying.items()):
            if due <= now:
                del state.flying[key]
                state.ready.append(entry)
        for name, cursor in state.cursors.items():
            log = self._logs[name]
            log.expire(now)
            for sequence in range(cursor + 1, log.sequence + 1):
                entry = log.entries.get(sequence)
                if entry is not None and any(matches(pattern, entry.item.subject) for pattern in state.subjects):
                    state.ready.append(entry)
            state.cursors[name] = log.sequence
        state.ready = deque(entry for entry in state.ready if entry.sequence in self._logs[entry.stream].entries)

    def finish(self, entry: _Entry) -> None:
        """An ack: on a work queue it deletes the record."""
        log = self._logs[entry.stream]
        if log.definition.queue:
            log.remove(entry.sequence)

    async def wait(self, until: float) -> None:
        """Until something arrives or changes, or the clock shows `until`."""
        arrival = self._arrival
        with anyio.CancelScope(deadline=until):
            await arrival.wait()

    def nudge(self) -> None:
        """Let waiting fetches look again."""
        self._wake()

    def _wake(self) -> None:
        self._arrival.set()
        self._arrival = anyio.Event()

    def _require_up(self) -> None:
        if self.down:
            raise BusUnavailable("the stub bus is down")


class StubSubscription:
    """A `Subscription` of `StubBus`."""

    def __init__(self, bus: StubBus, state: _Durable) -> None:
        self._bus, self._state = bus, state

    async def fetch(self, n: int, timeout: float) -> list[Delivery]:
        deadline = anyio.current_time() + timeout
        while True:
            await anyio.lowlevel.checkpoint()
            if not self._bus.down:
                self._bus.collect(self._state)
                if self._state.ready:
                    return self._take(n)
            now = anyio.current_time()
            if now >= deadline:
                return []
            due = min((due for _, due in self._state.flying.values()), default=deadline)
            await self._bus.wait(min(deadline, due) if due > now else deadline)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await anyio.lowlevel.checkpoint()
        if self._bus.down:
            return
        for delivery in deliveries:
            entry = self._entry(delivery)
            self._state.flying.pop((entry.stream, entry.sequence), None)
            if entry in self._state.ready:
                self._state.ready.remove(entry)
            self._bus.finish(entry)

    async def nak(self, deliveries: Sequence[Delivery], delay: float = 0.0) -> None:
        await anyio.lowlevel.checkpoint()
        self._postpone(deliveries, delay)
        self._bus.nudge()

    async def in_progress(self, deliveries: Sequence[Delivery]) -> None:
        await anyio.lowlevel.checkpoint()
        self._postpone(deliveries, self._bus.ack_wait)

    async def aclose(self) -> None:
        self._bus.nudge()

    def _take(self, n: int) -> list[Delivery]:
        taken: list[Delivery] = []
        due = anyio.current_time() + self._bus.ack_wait
        while self._state.ready and len(taken) < n:
            entry = self._state.ready.popleft()
            key = (entry.stream, entry.sequence)
            attempts = self._state.attempts[key] = self._state.attempts.get(key, 0) + 1
            self._state.flying[key] = (entry, due)
            taken.append(Delivery(entry.item.subject, entry.item.id, entry.item.data, attempts, entry))
        return taken

    def _postpone(self, deliveries: Sequence[Delivery], delay: float) -> None:
        if self._bus.down:
            return
        for delivery in deliveries:
            entry = self._entry(delivery)
            key = (entry.stream, entry.sequence)
            if key in self._state.flying:
                self._state.flying[key] = (entry, anyio.current_time() + delay)

    @staticmethod
    def _entry(delivery: Delivery) -> _Entry:
        if not isinstance(delivery.token, _Entry):
            raise BusMisconfigured("a delivery of another bus")
        return delivery.token


def _overlap(one: str, other: str) -> bool:
    return matches(one, other) or matches(other, one)
