"""The loop in one process and without waiting, with what production does to it: records that are delayed, overtaken and
delivered twice, dependencies that are away for a while, commits that fail, and daemons that die at the worst moment,
one actor of them or all at once.

    events on a heap -> records on their way -> inboxes -> actor -> one commit in the real store (inputs, records,
    outbox) -> published -> marked -> acknowledged

It does what `actors.system.runner` does, in the same order, and the store's ledger decides what is new: a record comes
again after a death or a lost acknowledgement, and must count once all the same.
"""

import contextlib
import hashlib
import heapq
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

from actors.messages import BatchOrder, Candidate, Directive, Message, Verdict, decode
from actors.system.actor import Actor, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.outgoing import Outgoing, delivery_id, outgoing
from actors.system.runner import MAX_FAILURES
from tests.simulation.faults import DaemonDied

if TYPE_CHECKING:
    from tests.simulation.world import World

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
"""Seconds that an actor waits for what is away; twice as long each time, `_LONGEST` at most."""
_LONGEST = 160.0
GONE = 45.0
"""Seconds from the death of the whole daemon until it has come back."""
_DIES = 0.002
"""Share of the batches after whose handling, and before their commit, an actor dies."""
_ALL_DIE = 0.3
"""Of the deaths in mid-handling, those of the whole daemon; the others are of one actor, which is restarted."""
"""Failures of one record after which it is parked."""
_ROUNDS = 400
"""Of handing on what came of one event: beyond, two actors answer each other for ever."""
_SLOW = {
    "assembler": 5.0, "sentinel": GRID, "swapper": GRID / 2, "gatekeeper": GRID / 2, "curator": 10.0,
    "experiencer": GRID,
}  # fmt: skip
"""Seconds between two ticks at least: engines are well here, and what follows from a record follows in `handle`."""

Event = Callable[[], Awaitable[None]]


def gathered(when: float) -> float:
    return math.ceil(when / GATHER) * GATHER


class Loop:
    """Actors, store and bus around a heap of events."""

    def __init__(self, world: "World") -> None:
        self._world, self._names = world, world.parts.names
        self._store, self._clock, self.faults = world.store, world.clock, world.faults
        self.actors: dict[str, Actor] = {}
        self._events: list[tuple[float, int, Event]] = []
        self._number = count()
        self._boxes: dict[str, deque[Received]] = {name: deque() for name in self._names}
        self._away = dict.fromkeys(self._names, 0.0)
        self._ticked = dict.fromkeys(self._names, float("-inf"))
        self._published: set[str] = set()
        self._unstarted: set[str] = set()
        """Actors that could not start yet, or whose daemon is dead."""
        self._held: dict[str, tuple[list[Received], Result]] = {}
        """What an actor could not commit yet, and what it was made of: its runner insists."""
        self._attempts: Counter[str] = Counter()
        """At what is away, one after the other."""
        self._failures: Counter[tuple[str, str]] = Counter()
        self._awake = 0.0
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def waiting(self) -> dict[str, int]:
        return {name: len(box) for name, box in self._boxes.items()}

    async def start(self) -> None:
        for name in self._names:
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
            self._world.published(item.subject, message)
            received = Received(delivery_id(item.subject, message), item.subject, message)
            for name, actor in self.actors.items():
                if item.subject in actor.inputs:
                    delay = self.faults.delay()
                    self._arrive(name, received, delay)
                    if self.faults.strikes("twice", 0.02):
                        self._arrive(name, received, delay + REDELIVERED)
        if isinstance(message, BatchOrder | Candidate | Verdict | Directive):
            self._awake = self._clock.now + AWAKE

    def _arrive(self, name: str, received: Received, delay: float) -> None:
        if not delay:
            self._boxes[name].append(received)
            return

        async def arrives() -> None:
            self._boxes[name].append(received)

        self.at(gathered(self._clock.now + delay), arrives)

    async def _begin(self, name: str) -> None:
        """A new life: nothing but the store is left of the one before."""
        self._drop(name)
        self.actors[name] = self._world.parts.make(name)
        await self._started(name)

    def _drop(self, name: str) -> None:
        """What it held comes again."""
        if name in self._held:
            self._again(name, self._held.pop(name)[0])

    async def _started(self, name: str) -> bool:
        self._unstarted.add(name)
        try:
            await self.actors[name].start()
            await self._flush(name)
        except (DependencyUnavailable, OSError) as error:
            if isinstance(error, OSError):
                self.faults.count("crashed")
            self._wait(name)
            return False
        self._unstarted.discard(name)
        self._attempts.pop(name, None)
        return True

    @property
    def gone(self) -> bool:
        """Whether the whole daemon is: it says nothing then, and its queues only fill."""
        return len(self._unstarted) == len(self._names) and min(self._away.values()) > self._clock.now

    async def _restart(self, name: str) -> None:
        """`name` died, and with it perhaps all the others at once, in the middle of what they were at."""
        if not self.faults.strikes("all_died", _ALL_DIE):
            await self._begin(name)
            return
        self._world.parts.forget()
        for each in self._names:
            self._drop(each)
            self.actors[each] = self._world.parts.make(each)
            self._ticked[each] = float("-inf")
            self._unstarted.add(each)
            self._later(each, GONE)

    async def _flush(self, name: str) -> None:
        while items := await self._store.unpublished(name, 256):
            for item in items:
                self._send(item)
            await self._store.published(name, [item.id for item in items])

    async def _settle(self) -> None:
        """Hand on until nothing is left that can be, then tick who is due, until nothing comes of that either."""
        for _ in range(_ROUNDS):
            for name in self._names:
                await self._deliver(name)
            if self._deliverable():
                continue
            await self._tick()
            if not self._deliverable():
                return
        raise RuntimeError(f"what came of one event at {self._clock.now} does not end")

    def _deliverable(self) -> bool:
        return any(box and self._away[name] <= self._clock.now for name, box in self._boxes.items())

    async def _able(self, name: str) -> bool:
        """Whether `name` can work: it is there, has started, and what it did before is committed."""
        if self._away[name] > self._clock.now:
            return False
        if name in self._unstarted and not await self._started(name):
            return False
        return name not in self._held or await self._insist(name)

    async def _tick(self) -> None:
        for name in self._names:
            every = self.actors[name].tick_seconds
            due = every is not None and self._clock.now - self._ticked[name] >= max(every, _SLOW.get(name, 0.0))
            if not due and name not in self._held and name not in self._unstarted:
                continue
            if not await self._able(name) or not due:
                continue
            self._ticked[name] = self._clock.now
            try:
                result = await self.actors[name].tick()
            except DependencyUnavailable:
                self._wait(name)
                continue
            except DaemonDied:
                await self._restart(name)
                continue
            except OSError:
                await self._crash(name)
                continue
            if result.records or result.outputs:
                self._held[name] = [], result
                await self._insist(name)

    async def _deliver(self, name: str) -> None:
        box = self._boxes[name]
        while box and await self._able(name):
            batch = [box.popleft() for _ in range(min(self.actors[name].batch, len(box)))]
            # Where nothing dies, nothing comes twice.
            done = await self._store.processed(name, [one.id for one in batch]) if self.faults.on else set[str]()
            fresh = list({one.id: one for one in batch if one.id not in done}.values())
            if fresh:
                await self._handle(name, fresh)

    async def _handle(self, name: str, fresh: list[Received]) -> None:
        try:
            if self.faults.strikes("store_away", 0.002):
                raise DependencyUnavailable("disk full")
            result = await self.actors[name].handle(fresh)
        except DependencyUnavailable:
            self._boxes[name].extendleft(reversed(fresh))
            self._wait(name)
            return
        except DaemonDied:
            await self._dies(name, fresh)
            return
        except OSError as error:
            self._fail(name, fresh, error)
            await self._crash(name)
            return
        if self.faults.strikes("died_before_commit", _DIES):
            await self._dies(name, fresh)
            return
        self._held[name] = fresh, result
        if not await self._insist(name) and name not in self._held:
            self._again(name, fresh)

    async def _insist(self, name: str) -> bool:
        """Write, publish, mark what `name` holds. False if the store would not, and it holds it still; or if the daemon
        died between writing and publishing."""
        made_of, result = self._held[name]
        inputs = [one.id for one in made_of]
        outputs = [outgoing(output.subject, output.message) for output in result.outputs]
        try:
            written = await self._store.commit(name, inputs, tuple(result.records), outputs)
        except DependencyUnavailable:
            self._pause(name)
            return False
        self._held.pop(name)
        retried = self._attempts.pop(name, 0)
        if written is None:
            # It had been written, and only the answer was lost: the runner starts over with what is not in the ledger.
            await self._started(name)
            return True
        if written and self.faults.strikes("died_before_publish", 0.004):
            await self._restart(name)
            return False
        for item in written:
            self._send(item)
        if self.faults.on:
            with contextlib.suppress(DependencyUnavailable):  # they are sent again, and nobody counts them twice
                if written:
                    await self._store.published(name, [item.id for item in written])
                if retried:
                    await self._flush(name)
        return True

    def _fail(self, name: str, fresh: list[Received], error: OSError) -> None:
        """As the runner does, record by record: after so many failures it is parked, for a person to see."""
        for one in fresh:
            self._failures[name, one.id] += 1
            if self._failures[name, one.id] >= MAX_FAILURES:
                self._world.watcher.parked(name, f"{type(one.message).__name__}: {error}")
        self._again(name, fresh)

    async def _crash(self, name: str) -> None:
        """What no handler of the runner knows: the supervisor restarts the actor."""
        self.faults.count("crashed")
        await self._begin(name)
        self._pause(name)

    async def _dies(self, name: str, unacknowledged: list[Received]) -> None:
        self._again(name, unacknowledged)
        await self._restart(name)

    def _again(self, name: str, unacknowledged: list[Received]) -> None:
        for received in unacknowledged:
            self._arrive(name, received, REDELIVERED)

    def _wait(self, name: str) -> None:
        self._unstarted.add(name)
        self._pause(name)

    def _pause(self, name: str) -> None:
        self._later(name, min(_LONGEST, AWAY * 2.0 ** self._attempts[name]))
        self._attempts[name] += 1

    def _later(self, name: str, seconds: float) -> None:
        self._away[name] = self._clock.now + seconds
        self.look(self._away[name])
