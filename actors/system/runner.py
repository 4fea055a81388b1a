"""The stream runner: drives an actor from its durable inputs to its published outputs, so that each record counts once.

    fetch -> decode -> drop what the ledger has -> handle -> one commit -> publish the outbox -> mark it -> ack

Whatever step dies, the record comes again and the ledger says how far it had got. Bad bytes are parked at once; a
record whose handler keeps failing is parked after `MAX_FAILURES`, counted from the start of the actor; an outage is
waited out with the batch in hand.
"""

import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
import msgspec
from prometheus_client import CollectorRegistry

from actors.messages import AnyMessage, MessageError, decode
from actors.system.actor import Actor, Producer, Received, Result
from actors.system.backpressure import Backpressure
from actors.system.bus import Bus, Delivery, Subscription
from actors.system.cache_invalidation import CacheInvalidation
from actors.system.errors import DependencyUnavailable
from actors.system.ledger import Ledger
from actors.system.lifecycle import Lifecycle
from actors.system.metrics import SystemMetrics
from actors.system.outbox import Drained, Outbox, RunnerSettings
from actors.system.outgoing import delivery_id

T = TypeVar("T")

MAX_FAILURES = 5
"""A record whose handler failed this often is parked."""
_COUNTED = 1024
"""Records whose failures are remembered."""
_MANY_DELIVERIES = 20
"""A record that was delivered this often may be what ends the process: it is handled alone, and parked if it fails."""


class _Item(msgspec.Struct, frozen=True):
    delivery: Delivery
    received: Received


class _ActorRunner:
    """One incarnation of an actor."""

    def __init__(
        self,
        actor: Actor,
        line: Outbox,
        backpressure: Backpressure | None,
        leads: bool,
        invalidation: CacheInvalidation | None,
    ) -> None:
        self.actor, self.line, self.backpressure, self.leads = actor, line, backpressure, leads
        self.invalidation = invalidation or CacheInvalidation()
        self.renewed = self.invalidation.asked
        self.held: dict[int, Delivery] = {}
        """Deliveries in hand, by identity, to be kept in progress."""
        self.failures: dict[str, int] = {}
        """Of records in hand or put off, by input id."""
        self.inbox: Subscription | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            try:
                if self.actor.inputs:
                    self.inbox = await self.line.insist(
                        lambda: self.line.bus.subscribe(self.actor.name, self.actor.inputs)
                    )
                    group.start_soon(self._keep_in_progress, self.inbox)
                await self.line.insist(self.actor.start)
                await self.line.flush()
                self.line.begin()
                await self._loop()
            except Drained:
                self.line.log.info("drained_during_outage", in_hand=len(self.held))
            finally:
                group.cancel_scope.cancel()
                await self._leave()

    async def _loop(self) -> None:
        lifecycle, every = self.line.lifecycle, self.actor.tick_seconds
        due = anyio.current_time() if every is not None else float("inf")
        while not lifecycle.draining.is_set():
            lifecycle.beat()
            patience = max(0.0, min(self.line.settings.fetch_seconds, due - anyio.current_time()))
            batch: list[Delivery] = []
            if self.inbox is None:
                await lifecycle.pause(patience)
            else:
                with lifecycle.interruptible():
                    batch = await self._fetch(self.inbox, patience)
            if self.renewed != self.invalidation.asked:
                self.renewed = self.invalidation.asked
                await self.line.insist(self.actor.start)
            if batch:
                await self._take(batch)
            if every is not None and anyio.current_time() >= due and not lifecycle.draining.is_set():
                await self._tick()
                due = anyio.current_time() + every

    async def _fetch(self, inbox: Subscription, patience: float) -> list[Delivery]:
        if self.backpressure is not None and not self.leads:
            await self.backpressure.calm()
        batch = await inbox.fetch(self.actor.batch, patience)
        if self.backpressure is not None and self.leads:
            self.backpressure.note(full=len(batch) >= self.actor.batch)
        return batch

    async def _tick(self) -> None:
        try:
            result = await self.actor.tick()
        except DependencyUnavailable as error:
            # The next tick is the retry. One pause, so that a tick of 0 s does not spin.
            await self.line.wait_out(error, 0)
            await self.line.insist(self.actor.start)
            self.line.lifecycle.ready()
            return
        await self.line.commit((), result)

    async def _take(self, batch: list[Delivery]) -> None:
        self.held = {id(delivery): delivery for delivery in batch}
        items: list[_Item] = []
        for delivery in batch:
            message = await self._open(delivery)
            if message is not None:
                key = delivery_id(delivery.subject, message)
                items.append(_Item(delivery, Received(key, delivery.subject, message)))
        fresh = await self._fresh(items)
        await self._handle([item for item in fresh if item.delivery.attempts < _MANY_DELIVERIES])
        for item in fresh:
            if item.delivery.attempts >= _MANY_DELIVERIES:
                await self._handle([item])

    async def _open(self, delivery: Delivery) -> AnyMessage | None:
        """The message, or None after parking what cannot be read."""
        if delivery.problem:
            await self._park(delivery, delivery.id, delivery.problem)
            return None
        try:
            return decode(delivery.data)
        except MessageError as error:
            await self._park(delivery, delivery.id, f"{type(error).__name__}: {error}")
            return None

    async def _fresh(self, items: Sequence[_Item]) -> list[_Item]:
        """Those not processed yet, once each. The others are acked, their outputs published first if need be."""
        if not items:
            return []
        keys = [item.received.id for item in items]
        seen = await self.line.insist(lambda: self.line.ledger.processed(self.actor.name, keys))
        fresh: dict[str, _Item] = {}
        done: list[Delivery] = []
        for item in items:
            if item.received.id in seen:
                done.append(item.delivery)
            elif fresh.setdefault(item.received.id, item) is not item:
                # A second copy in one batch waits for the fate of the first.
                await self._put_off([item.delivery], self.line.settings.first_wait)
        if done:
            await self.line.flush()
            self.line.metrics.dropped.labels(self.actor.name, "duplicate").inc(len(done))
            await self._ack(done)
        return list(fresh.values())

    async def _handle(self, items: list[_Item]) -> None:
        outages = 0
        while items:
            self.line.lifecycle.beat()
            try:
                with self.line.metrics.handle_seconds.labels(self.actor.name).time():
                    result = await self.actor.handle([item.received for item in items])
            except DependencyUnavailable as error:
                await self.line.wait_out(error, outages)
                outages += 1
                await self.line.insist(self.actor.start)
                continue
            except Exception as error:
                await self.line.insist(self.actor.start)
                if len(items) == 1:
                    await self._count_failure(items[0], error)
                    return
                self.line.log.warning("batch_failed", records=len(items), error=repr(error))
                for item in items:
                    await self._handle([item])
                return
            if outages:
                self.line.back(outages)
                outages = 0
            if await self.line.commit([item.received.id for item in items], result):
                self.line.metrics.handled.labels(self.actor.name).inc(len(items))
                for item in items:
                    self.failures.pop(item.received.id, None)
                await self._ack([item.delivery for item in items])
                return
            # Another holder of this durable was quicker with one of them: start over with the others.
            await self.line.insist(self.actor.start)
            items = await self._fresh(items)

    async def _count_failure(self, item: _Item, error: Exception) -> None:
        text = "".join(traceback.format_exception(error, limit=-6))[-4000:]
        key = item.received.id
        count = self.failures.pop(key, 0) + 1
        self.line.metrics.failed.labels(self.actor.name).inc()
        self.line.log.warning("record_failed", input=key, failures=count, error=repr(error))
        if count >= MAX_FAILURES or item.delivery.attempts >= _MANY_DELIVERIES:
            await self._park(item.delivery, key, text)
        else:
            if len(self.failures) >= _COUNTED:
                del self.failures[next(iter(self.failures))]
            self.failures[key] = count
            await self._put_off([item.delivery], self.line.backoff(count - 1))

    async def _park(self, delivery: Delivery, key: str, error: str) -> None:
        name = self.actor.name
        if await self.line.insist(lambda: self.line.ledger.processed(name, [key])):
            await self._ack([delivery])
            return
        await self.line.insist(lambda: self.line.ledger.park(name, key, delivery.subject, delivery.data, error))
        self.line.metrics.parked.labels(name).inc()
        self.line.log.error("record_parked", input=key, subject=delivery.subject, error=error[-300:])
        await self._ack([delivery])

    async def _ack(self, deliveries: Sequence[Delivery]) -> None:
        self._release(deliveries)
        if self.inbox is not None:
            await self.inbox.ack(deliveries)

    async def _put_off(self, deliveries: Sequence[Delivery], delay: float) -> None:
        self._release(deliveries)
        if self.inbox is not None:
            await self.inbox.nak(deliveries, delay)

    def _release(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.held.pop(id(delivery), None)

    async def _keep_in_progress(self, inbox: Subscription) -> None:
        """A judge may take minutes: what is in hand must not be delivered to somebody else meanwhile."""
        while True:
            await anyio.sleep(self.line.bus.ack_wait / 3)
            if self.held:
                await inbox.in_progress(list(self.held.values()))

    async def _leave(self) -> None:
        """Hand back what is unfinished, so that it need not wait for the ack wait."""
        if self.inbox is None:
            return
        with anyio.move_on_after(1.0, shield=True):
            if self.held:
                await self.inbox.nak(list(self.held.values()))
            await self.inbox.aclose()


class _Producing:
    """The `Context` of a producer."""

    def __init__(self, line: Outbox) -> None:
        self._line = line

    @property
    def draining(self) -> anyio.Event:
        return self._line.lifecycle.draining

    def beat(self) -> None:
        self._line.lifecycle.beat()

    async def pause(self, seconds: float) -> bool:
        return await self._line.lifecycle.pause(seconds)

    async def insist(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await self._line.insist(operation)

    async def emit(self, result: Result) -> None:
        await self._line.commit((), result)


async def run_actor(
    actor: Actor,
    bus: Bus,
    ledger: Ledger,
    lifecycle: Lifecycle,
    *,
    rng: random.Random,
    settings: RunnerSettings | None = None,
    metrics: SystemMetrics | None = None,
    backpressure: Backpressure | None = None,
    leads: bool = False,
    invalidation: CacheInvalidation | None = None,
) -> None:
    """Drive `actor` until draining; to be given to `Supervisor.add` in a lambda or partial.

    Args:
        backpressure: shared by the actors of a flow; none: each goes as fast as it can.
        leads: the actor is the head of that flow, which the others make room for.
        invalidation: tells when the actor is to rebuild what it keeps in memory; none: never.

    Raises:
        Exception: what `start` or `tick` raised, or the ledger (other than `DependencyUnavailable`).
    """
    line = _line(actor.name, bus, ledger, lifecycle, settings, metrics, rng)
    await _ActorRunner(actor, line, backpressure, leads, invalidation).run()


async def run_producer(
    producer: Producer,
    bus: Bus,
    ledger: Ledger,
    lifecycle: Lifecycle,
    *,
    rng: random.Random,
    settings: RunnerSettings | None = None,
    metrics: SystemMetrics | None = None,
) -> None:
    """Drive `producer` until draining; what an earlier life left in the outbox goes out first."""
    line = _line(producer.name, bus, ledger, lifecycle, settings, metrics, rng)
    try:
        await line.insist(producer.start)
        await line.flush()
        line.begin()
        await producer.run(_Producing(line))
    except Drained:
        line.log.info("drained_during_outage")


def _line(
    name: str, bus: Bus, ledger: Ledger, lifecycle: Lifecycle, settings: RunnerSettings | None,
    metrics: SystemMetrics | None, rng: random.Random,
) -> Outbox:  # fmt: skip
    own = metrics or SystemMetrics(CollectorRegistry())
    return Outbox(name, bus, ledger, lifecycle, settings or RunnerSettings(), own, rng)


__all__ = ["RunnerSettings", "run_actor", "run_producer"]
