"""The loop in one process and without waiting, with what production does to it: records that are delayed, overtaken and
delivered twice, dependencies that are away for a while, and daemons that die at the worst moment.

    events on a heap -> records on their way -> inboxes -> actor -> one commit in the real store (inputs, records,
    outbox) -> published -> marked -> acknowledged

It does what `actors.system.runner` does, in the same order, and the store's ledger decides what is new: a record comes
again after a death or a lost acknowledgement, and must count once all the same.
"""

import hashlib
import heapq
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import count

from actors.messages import BatchOrder, Candidate, Directive, Message, Verdict, decode
from actors.store import Store
from actors.system.actor import Actor, Received, Result
from actors.system.bus import Outgoing, delivery_id, outgoing
from actors.system.errors import DependencyUnavailable
from tests.benchmarks.standstill.world import Clock

GRID = 60.0
"""Seconds between two looks of the actors at the clock while nothing happens."""
AWAKE = 900.0
"""Seconds after a decision in which they look; then only at events. Deadlines that count are shorter, or such that
traffic decides them."""
REDELIVERED = 30.0
"""Seconds after which what was not acknowledged comes again: the broker's ack wait."""
GATHER = 5.0
"""Seconds: what comes in so long reaches the actors together."""
AWAY = 10.0
"""Seconds that an actor waits for what is away."""
_ROUNDS = 400
"""Of handing on what came of one event: beyond, two actors answer each other for ever."""
_SLOW = {
    "assembler": 5.0, "sentinel": GRID, "swapper": GRID / 2, "gatekeeper": GRID / 2, "curator": 10.0,
    "experiencer": GRID,
}  # fmt: skip
"""Seconds between two ticks at least: engines are well here, and what follows from a record follows in `handle`."""

Event = Callable[[], Awaitable[None]]


def gathered(when: float) -> float:
    """The time at which what comes at `when` is handed on."""
    return math.ceil(when / GATHER) * GATHER


class DaemonDied(Exception):
    """The daemon dies here."""


class Faults:
    """How often what goes wrong; all of it from one seed."""

    def __init__(self, rng: random.Random, *, on: bool) -> None:
        self._rng, self.on = rng, on
        self.met: dict[str, int] = {}
        """How often what happened."""

    def strikes(self, what: str, chance: float) -> bool:
        """Whether `what` happens now."""
        if not self.on or self._rng.random() >= chance:
            return False
        self.met[what] = self.met.get(what, 0) + 1
        return True

    def delay(self) -> float:
        """Seconds that a record is on its way."""
        if not self.on:
            return 0.0
        return 20.0 * self._rng.random() if self.strikes("held_up", 0.02) else self._rng.expovariate(4.0)


class Loop:
    """Actors, store and bus around a heap of events."""

    def __init__(
        self,
        build: Mapping[str, Callable[[], Actor]],
        *,
        store: Store,
        clock: Clock,
        faults: Faults,
        seen: Callable[[str, Message], None],
        recorded: Callable[[Message], None],
        outside: Callable[[str, Message], None],
    ) -> None:
        """
        Args:
            build: makes each actor, anew when its daemon died.
            seen: told of everything that is published, once each.
            recorded: told of everything that actors have written.
            outside: gets what is published too, as the learner does.
        """
        self._build, self._store, self._clock, self.faults = build, store, clock, faults
        self._seen, self._recorded, self._outside = seen, recorded, outside
        self.actors: dict[str, Actor] = {}
        self._events: list[tuple[float, int, Event]] = []
        self._number = count()
        self._boxes: dict[str, deque[Received]] = {name: deque() for name in build}
        self._away = dict.fromkeys(build, 0.0)
        self._ticked = dict.fromkeys(build, float("-inf"))
        self._published: set[str] = set()
        self._awake = 0.0
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Of everything that was published, in order and with its time."""
        return self._hash.hexdigest()

    @property
    def waiting(self) -> dict[str, int]:
        """Records in each inbox."""
        return {name: len(box) for name, box in self._boxes.items()}

    async def start(self) -> None:
        """Start the actors and let them look round."""
        for name in self._build:
            await self._begin(name)
        await self._settle()

    def at(self, when: float, event: Event) -> None:
        """Let `event` happen at `when`, unix seconds; in the order of the calls where times are equal."""
        heapq.heappush(self._events, (when, next(self._number), event))

    def look(self, when: float) -> None:
        """Let the actors look at the clock at `when`."""

        async def nothing() -> None: ...

        self.at(when, nothing)

    async def step(self) -> None:
        """What happens next, and all that comes of it."""
        when = self._events[0][0] if self._events else float("inf")
        if self._clock.now < self._awake and when > self._clock.now + GRID:
            self._clock.advance(self._clock.now + GRID)
        else:
            self._clock.advance(when)
            await self._tick()  # what was due by now was due before the event
            while self._events and self._events[0][0] <= when:
                _, _, event = heapq.heappop(self._events)
                await event()
        await self._settle()

    def say(self, subject: str, message: Message) -> None:
        """Publish what comes from outside: the tap, the learner, a person."""
        self._send(outgoing(subject, message))

    def _send(self, item: Outgoing) -> None:
        message = decode(item.data)
        assert isinstance(message, Message)
        if item.id not in self._published:  # the broker drops what it has
            self._published.add(item.id)
            self._hash.update(f"{self._clock.now:.6f} {item.id}\n".encode())
            self._seen(item.subject, message)
            self._outside(item.subject, message)
            self._deliver_later(item.subject, message)
        if isinstance(message, BatchOrder | Candidate | Verdict | Directive):
            self._awake = self._clock.now + AWAKE

    def _deliver_later(self, subject: str, message: Message) -> None:
        received = Received(delivery_id(subject, message), subject, message)
        for name in self._build:
            if subject in self._inputs(name):
                delay = self.faults.delay()
                self._arrive(name, received, delay)
                if self.faults.strikes("twice", 0.02):
                    self._arrive(name, received, delay + REDELIVERED)

    def _arrive(self, name: str, received: Received, delay: float) -> None:
        if not delay:
            self._boxes[name].append(received)
            return

        async def arrives() -> None:
            self._boxes[name].append(received)

        self.at(gathered(self._clock.now + delay), arrives)

    def _inputs(self, name: str) -> tuple[str, ...]:
        return tuple(self.actors[name].inputs)

    async def _begin(self, name: str) -> None:
        """A new life: nothing but the store is left of the one before."""
        self.actors[name] = self._build[name]()
        await self.actors[name].start()
        await self._flush(name)

    async def _flush(self, name: str) -> None:
        while items := await self._store.unpublished(name, 256):
            for item in items:
                self._send(item)
            await self._store.published(name, [item.id for item in items])

    async def _settle(self) -> None:
        """Hand on until nothing is left that can be, then tick who is due, until nothing comes of that either."""
        for _ in range(_ROUNDS):
            for name in self._build:
                await self._deliver(name)
            if self._deliverable():
                continue
            await self._tick()
            if not self._deliverable():
                return
        raise RuntimeError(f"what came of one event at {self._clock.now} does not end")

    def _deliverable(self) -> bool:
        return any(box and self._away[name] <= self._clock.now for name, box in self._boxes.items())

    async def _tick(self) -> None:
        for name in self._build:
            every = self.actors[name].tick_seconds
            due = every is not None and self._clock.now - self._ticked[name] >= max(every, _SLOW.get(name, 0.0))
            if not due or self._away[name] > self._clock.now:
                continue
            self._ticked[name] = self._clock.now
            try:
                result = await self.actors[name].tick()
            except DependencyUnavailable:
                await self._wait(name)
                continue
            except DaemonDied:
                await self._begin(name)
                continue
            if result.records or result.outputs:
                await self._commit(name, [], result)

    async def _deliver(self, name: str) -> None:
        box = self._boxes[name]
        while box and self._away[name] <= self._clock.now:
            batch = [box.popleft() for _ in range(min(self.actors[name].batch, len(box)))]
            # Where nothing dies, nothing comes twice.
            done = await self._store.processed(name, [one.id for one in batch]) if self.faults.on else set[str]()
            fresh = list({one.id: one for one in batch if one.id not in done}.values())
            if not fresh:
                continue
            try:
                if self.faults.strikes("store_away", 0.002):
                    raise DependencyUnavailable("disk full")
                result = await self.actors[name].handle(fresh)
            except DependencyUnavailable:
                box.extendleft(reversed(fresh))
                await self._wait(name)
                return
            except DaemonDied:
                await self._dies(name, fresh)
                return
            if self.faults.strikes("died_before_commit", 0.002):
                await self._dies(name, fresh)
                return
            if not await self._commit(name, [one.id for one in fresh], result):
                await self._dies(name, fresh)
                return

    async def _commit(self, name: str, inputs: list[str], result: Result) -> bool:
        """Write, publish, mark; False if the daemon died between writing and publishing."""
        outputs = [outgoing(output.subject, output.message) for output in result.outputs]
        assert await self._store.commit(name, inputs, tuple(result.records), outputs), "nobody else is at work"
        for record in result.records:
            self._recorded(record)
        if outputs and self.faults.strikes("died_before_publish", 0.004):
            if not inputs:
                await self._begin(name)
            return False
        for item in outputs:
            self._send(item)
        if outputs and self.faults.on:
            await self._store.published(name, [item.id for item in outputs])
        return True

    async def _dies(self, name: str, unacknowledged: list[Received]) -> None:
        for received in unacknowledged:
            self._arrive(name, received, REDELIVERED)
        await self._begin(name)

    async def _wait(self, name: str) -> None:
        self._away[name] = self._clock.now + AWAY
        self.look(self._away[name])
        try:
            await self.actors[name].start()
        except DependencyUnavailable:
            return
