"""The stream runner: drives an actor from its durable inputs to its published outputs, so that each record counts once.

    fetch -> decode -> drop what the ledger has -> handle -> one commit -> publish the outbox -> mark it -> ack

Whatever step dies, the record comes again and the ledger says how far it had got. Bad bytes are parked at once; a
record whose handler keeps failing is parked after `MAX_FAILURES`, counted from the start of the actor; an outage is
waited out with the batch in hand.
"""

import random
import traceback
from collections.abc import Sequence

import anyio

from actors.messages import AnyMessage, MessageError, decode
from actors.system.actor import Actor, Received, Result
from actors.system.backpressure import Backpressure
from actors.system.bus import Bus, Delivery, Subscription
from actors.system.errors import DependencyUnavailable
from actors.system.lifecycle import Lifecycle
from actors.system.metrics import SystemMetrics
from actors.system.outbox import Ledger, Outbox
from actors.system.outgoing import delivery_id
from actors.system.patience import FIRST_WAIT, Drained

MAX_FAILURES = 5
"""A record whose handler failed this often is parked."""
_COUNTED = 1024
"""Records whose failures are remembered."""
_MANY_DELIVERIES = 20
"""A record that was delivered this often may be what ends the process: it is handled alone, and parked if it fails."""
FETCH_SECONDS = 1.0
"""Longest wait for records; the heartbeat of an idle actor."""


async def drive(
    actor: Actor,
    bus: Bus,
    ledger: Ledger,
    lifecycle: Lifecycle,
    *,
    rng: random.Random,
    metrics: SystemMetrics | None = None,
    backpressure: Backpressure | None = None,
) -> None:
    """Drive `actor` until draining; raises what `start`, `tick`, `run` or the ledger do, but for outages."""
    outbox = Outbox(actor.name, bus.publish, ledger, lifecycle, rng=rng)
    await _Runner(actor, bus, outbox, metrics or SystemMetrics(), backpressure).run()


class _Item(Received, frozen=True):
    delivery: Delivery


class _Runner:
    """One incarnation of an actor."""

    def __init__(
        self, actor: Actor, bus: Bus, outbox: Outbox, metrics: SystemMetrics, backpressure: Backpressure | None
    ) -> None:
        self.actor, self.bus, self.outbox, self.metrics, self.backpressure = actor, bus, outbox, metrics, backpressure
        self.ledger, self.lifecycle = outbox.ledger, outbox.lifecycle
        self.edits = self.ledger.edits
        self.held: dict[int, Delivery] = {}
        """Deliveries in hand, by identity, to be kept in progress."""
        self.failures: dict[str, int] = {}
        """Of records in hand or put off, by input id."""
        self.inbox: Subscription | None = None

    async def run(self) -> None:
        actor = self.actor
        async with anyio.create_task_group() as group:
            try:
                if actor.inputs:
                    self.inbox = await self.outbox.insist(lambda: self.bus.subscribe(actor.name, actor.inputs))
                    group.start_soon(self._keep_in_progress, self.inbox)
                await self.outbox.begin(actor.start)
                if actor.inputs or actor.tick_seconds is not None:
                    await self._loop()
                else:
                    await actor.run(self.outbox)
            except Drained:
                self.outbox.log.info("drained_during_outage", in_hand=len(self.held))
            finally:
                group.cancel_scope.cancel()
                await self._leave()

    async def _loop(self) -> None:
        every = self.actor.tick_seconds
        due = anyio.current_time() if every is not None else float("inf")
        while not self.lifecycle.draining.is_set():
            self.lifecycle.beat()
            patience = max(0.0, min(FETCH_SECONDS, due - anyio.current_time()))
            batch: list[Delivery] = []
            if self.inbox is None:
                await self.lifecycle.pause(patience)
            else:
                with self.lifecycle.interruptible():
                    batch = await self._fetch(self.inbox, patience)
            if self.actor.renews and self.edits != self.ledger.edits:
                self.edits = self.ledger.edits
                await self.outbox.insist(self.actor.start)
            if batch:
                await self._take(batch)
            if every is not None and anyio.current_time() >= due and not self.lifecycle.draining.is_set():
                await self._tick()
                due = anyio.current_time() + every

    async def _fetch(self, inbox: Subscription, patience: float) -> list[Delivery]:
        if self.backpressure is not None and not self.actor.head:
            await self.backpressure.calm()
        batch = await inbox.fetch(self.actor.batch, patience)
        if self.backpressure is not None and self.actor.head:
            self.backpressure.note(full=len(batch) >= self.actor.batch)
        return batch

    async def _tick(self) -> None:
        try:
            result = await self.actor.tick()
        except DependencyUnavailable as error:
            # The next tick is the retry. One pause, so that a tick of 0 s does not spin.
            await self.outbox.wait_out(error, 0)
            await self.outbox.insist(self.actor.start)
            self.lifecycle.ready()
            return
        await self.outbox.emit(result)

    async def _take(self, batch: list[Delivery]) -> None:
        self.held = {id(delivery): delivery for delivery in batch}
        items: list[_Item] = []
        for delivery in batch:
            message = await self._open(delivery)
            if message is not None:
                items.append(_Item(delivery_id(delivery.subject, message), delivery.subject, message, delivery))
        fresh = await self._fresh(items)
        await self._handle([item for item in fresh if item.delivery.attempts < _MANY_DELIVERIES])
        for item in fresh:
            if item.delivery.attempts >= _MANY_DELIVERIES:
                await self._handle([item])

    async def _open(self, delivery: Delivery) -> AnyMessage | None:
        """The message, or None after parking what cannot be read."""
        problem = delivery.problem
        try:
            if not problem:
                return decode(delivery.data)
        except MessageError as error:
            problem = f"{type(error).__name__}: {error}"
        await self._park(delivery, delivery.id, problem)
        return None

    async def _fresh(self, items: Sequence[_Item]) -> list[_Item]:
        """Those not processed yet, once each. The others are acked, their outputs published first if need be."""
        if not items:
            return []
        seen = await self.outbox.insist(lambda: self.ledger.processed(self.actor.name, [item.id for item in items]))
        fresh: dict[str, _Item] = {}
        done: list[Delivery] = []
        for item in items:
            if item.id in seen:
                done.append(item.delivery)
            elif fresh.setdefault(item.id, item) is not item:
                # A second copy in one batch waits for the fate of the first.
                await self._put_off(item.delivery, FIRST_WAIT)
        if done:
            await self.outbox.flush()
            await self._ack(done)
        return list(fresh.values())

    async def _handle(self, items: list[_Item]) -> None:
        while items:
            try:
                result = await self._result(items)
            except Drained:
                raise  # the record's next handler is of another life
            except Exception as error:
                await self.outbox.insist(self.actor.start)
                self.lifecycle.ready()  # an outage before it is over
                if len(items) == 1:
                    await self._count_failure(items[0], error)
                    return
                self.outbox.log.warning("batch_failed", records=len(items), error=repr(error))
                for item in items:
                    await self._handle([item])
                return
            if await self.outbox.commit([item.id for item in items], result):
                self.metrics.handled.labels(self.actor.name).inc(len(items))
                for item in items:
                    self.failures.pop(item.id, None)
                await self._ack([item.delivery for item in items])
                return
            # Another holder of this durable was quicker with one of them: start over with the others.
            await self.outbox.insist(self.actor.start)
            items = await self._fresh(items)

    async def _result(self, items: Sequence[_Item]) -> Result:
        """What handling comes to, with a new memory after each outage."""
        tried = False

        async def handled() -> Result:
            nonlocal tried
            if tried:
                await self.actor.start()
            tried = True
            self.lifecycle.beat()
            return await self.actor.handle(items)

        return await self.outbox.insist(handled)

    async def _count_failure(self, item: _Item, error: Exception) -> None:
        count = self.failures.pop(item.id, 0) + 1
        self.metrics.failed.labels(self.actor.name).inc()
        self.outbox.log.warning("record_failed", input=item.id, failures=count, error=repr(error))
        if count >= MAX_FAILURES or item.delivery.attempts >= _MANY_DELIVERIES:
            await self._park(item.delivery, item.id, "".join(traceback.format_exception(error, limit=-6))[-4000:])
            return
        if len(self.failures) >= _COUNTED:
            del self.failures[next(iter(self.failures))]
        self.failures[item.id] = count
        await self._put_off(item.delivery, self.outbox.backoff(count - 1))

    async def _park(self, delivery: Delivery, key: str, error: str) -> None:
        """Give it up, unless it was done meanwhile."""
        name, subject, data = self.actor.name, delivery.subject, delivery.data
        if await self.outbox.insist(lambda: self.ledger.park(name, key, subject, data, error)):
            self.metrics.parked.labels(name).inc()
            self.outbox.log.error("record_parked", input=key, subject=subject, error=error[-300:])
        await self._ack([delivery])

    async def _ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.held.pop(id(delivery), None)
        if self.inbox is not None:
            await self.inbox.ack(deliveries)

    async def _put_off(self, delivery: Delivery, delay: float) -> None:
        self.held.pop(id(delivery), None)
        if self.inbox is not None:
            await self.inbox.nak([delivery], delay)

    async def _keep_in_progress(self, inbox: Subscription) -> None:
        """A judge may take minutes: what is in hand must not be delivered to somebody else meanwhile."""
        while True:
            await anyio.sleep(self.bus.ack_wait / 3)
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
