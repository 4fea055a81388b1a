"""The policy loop in one process and without waiting: an event happens, all that follows from it is handed on, and the
clock goes to the next event.

    arrivals, closings, late feedback, trained candidates, thaws -> [heap] -> actors -> store and bus -> actors ...

Records are saved before outputs are handed on, as the runtime does. Actors tick when their time has come: at events,
and once a minute for a while after something was decided.
"""

import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from actors.messages import BatchOrder, Candidate, Directive, Message, Verdict
from actors.store import Store
from actors.system.actor import Actor, Received, Result
from actors.system.bus import delivery_id
from actors.system.errors import DependencyUnavailable
from actors.system.streams import POLICY_CANDIDATE, POLICY_DIRECTIVE, WORK_TRAIN
from tests.benchmarks.standstill.learner import BACK_SECONDS, TRAIN_SECONDS, SimulatedLearner
from tests.benchmarks.standstill.world import Clock

GRID = 60.0
"""Seconds between two looks of the actors at the clock while nothing happens."""
_AWAKE = 900.0
"""Seconds after a decision in which they look; then only at events. Deadlines that count are shorter, or such that
traffic decides them."""
_ROUNDS = 200
"""Of handing on what came of one event: beyond, two actors answer each other for ever."""
_SLOW = {"sentinel": GRID / 2}
"""Its tick looks at engines, which are always well here, and saves its state; what it finds it finds in `handle`."""
_ATTEMPTS = 3
"""At a batch whose handler says that something is away; nothing is, here."""

Event = Callable[[], Awaitable[None]]


class Loop:
    """Actors, store and learner around a heap of events."""

    def __init__(
        self,
        actors: Sequence[Actor],
        *,
        store: Store,
        learner: SimulatedLearner,
        clock: Clock,
        seen: Callable[[Message], None],
        recorded: Callable[[Message], None],
    ) -> None:
        """
        Args:
            seen: told of everything that goes over the bus.
            recorded: told of everything that actors have written.
        """
        self._actors, self._store, self._learner = actors, store, learner
        self._clock, self._seen, self._recorded = clock, seen, recorded
        self._events: list[tuple[float, int, Event]] = []
        self._number = count()
        self._inboxes: dict[str, deque[Received]] = {actor.name: deque() for actor in actors}
        self._ticked = {actor.name: float("-inf") for actor in actors}
        self._handled: dict[str, set[str]] = {actor.name: set() for actor in actors}
        self._busy = 0.0
        """Until when the learner works on what it has."""
        self._awake = 0.0

    async def start(self) -> None:
        """Start the actors and let them look round."""
        for actor in self._actors:
            await actor.start()
        await self._settle()

    def at(self, when: float, event: Event) -> None:
        """Let `event` happen at `when`, unix seconds; in the order of the calls where times are equal."""
        heapq.heappush(self._events, (when, next(self._number), event))

    async def step(self) -> None:
        """The next event, and all that comes of it."""
        when = self._events[0][0]
        if self._clock.now < self._awake and when > self._clock.now + GRID:
            self._clock.advance(self._clock.now + GRID)
        else:
            self._clock.advance(when)
            await self._tick()  # what was due by now was due before the event
            _, _, event = heapq.heappop(self._events)
            await event()
        await self._settle()

    async def say(self, subject: str, *messages: Message, record: bool = True) -> None:
        """Save `messages` and hand them on."""
        if record:
            await self._store.save(messages)
        for message in messages:
            self._publish(subject, message)

    def _publish(self, subject: str, message: Message) -> None:
        self._seen(message)
        if isinstance(message, BatchOrder | Candidate | Verdict | Directive):
            self._awake = self._clock.now + _AWAKE
        key = delivery_id(subject, message)
        for actor in self._actors:
            if subject in actor.inputs and key not in self._handled[actor.name]:
                self._handled[actor.name].add(key)
                self._inboxes[actor.name].append(Received(key, subject, message))
        if subject in (WORK_TRAIN, POLICY_DIRECTIVE) and isinstance(message, BatchOrder | Directive):
            seconds = TRAIN_SECONDS if isinstance(message, BatchOrder) else BACK_SECONDS
            self._busy = max(self._busy, self._clock.now) + seconds
            self.at(self._busy, lambda: self._answer(message))

    async def _answer(self, message: BatchOrder | Directive) -> None:
        found = self._learner.answer(message)
        if found is not None:
            # Curator and gatekeeper save it.
            await self.say(POLICY_CANDIDATE, found, record=False)

    async def _settle(self) -> None:
        """Hand on until nothing is left, then tick who is due, until nothing comes of that either."""
        for _ in range(_ROUNDS):
            for actor in self._actors:
                await self._deliver(actor)
            if any(self._inboxes.values()):
                continue
            await self._tick()
            if not any(self._inboxes.values()):
                return
        raise RuntimeError(f"what came of one event at {self._clock.now} does not end")

    async def _tick(self) -> None:
        for actor in self._actors:
            every = actor.tick_seconds
            if every is None:
                continue
            if self._clock.now - self._ticked[actor.name] >= max(every, _SLOW.get(actor.name, 0.0)):
                await self._commit(await actor.tick())
                self._ticked[actor.name] = self._clock.now

    async def _deliver(self, actor: Actor) -> None:
        inbox = self._inboxes[actor.name]
        while inbox:
            batch = [inbox.popleft() for _ in range(min(actor.batch, len(inbox)))]
            for attempt in range(_ATTEMPTS):
                try:
                    result = await actor.handle(batch)
                    break
                except DependencyUnavailable:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    await actor.start()
            await self._commit(result)

    async def _commit(self, result: Result) -> None:
        if result.records:
            await self._store.save(result.records)
        for record in result.records:
            self._recorded(record)
        for output in result.outputs:
            self._publish(output.subject, output.message)
