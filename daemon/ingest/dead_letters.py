"""Dead letters: those of processes without a store go into its table, where people see them; and the way back of all.

    dead.learner -> dead_letters -> work.train, traffic.exchange, traffic.feedback ...

Actors park theirs in the table themselves.
"""

from collections.abc import Sequence

import anyio
import msgspec
import structlog

from actors.store import Store
from actors.system.actor import DeadLetter
from actors.system.bus import Bus, Delivery
from actors.system.errors import DependencyUnavailable
from actors.system.lifecycle import Lifecycle
from actors.system.streams import DEAD
from daemon.errors import OrderRefused

log = structlog.get_logger(__name__)
NAME = "dead_letters"
_AT_A_TIME = 64
_FETCH_SECONDS = 1.0
_RETRY_SECONDS = 2.0


async def collect(bus: Bus, store: Store, lifecycle: Lifecycle) -> None:
    """As a supervised task: what was given up elsewhere goes into the table, and is acked then."""
    inbox = None
    try:
        while not lifecycle.draining.is_set():
            lifecycle.beat()
            try:
                inbox = inbox or await bus.subscribe(NAME, (f"{DEAD}.>",))
                found: list[Delivery] = []
                with lifecycle.interruptible():
                    found = await inbox.fetch(_AT_A_TIME, _FETCH_SECONDS)
                await _keep(store, found)
                await inbox.ack(found)
            except DependencyUnavailable as error:
                lifecycle.waiting(str(error))
                await lifecycle.pause(_RETRY_SECONDS)
            else:
                lifecycle.ready()
    finally:
        if inbox is not None:
            with anyio.CancelScope(shield=True):
                await inbox.aclose()


async def _keep(store: Store, deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        try:
            letter = msgspec.msgpack.decode(delivery.data, type=DeadLetter)
        except msgspec.DecodeError as error:
            who = delivery.subject.removeprefix(f"{DEAD}.")
            why = delivery.problem or f"no dead letter: {error}"
            letter = DeadLetter(actor=who, input_id=delivery.id, subject="", data=delivery.data, error=why)
        await store.park(letter.actor, letter.input_id, letter.subject, letter.data, letter.error)
        log.error("dead_letter", actor=letter.actor, input=letter.input_id, error=letter.error[-300:])


async def put_back(bus: Bus, store: Store, dead_id: str) -> bool:
    """Let a parked record be handled as if it had just come; False: there is none.

    Raises:
        OrderRefused: what was given up was no record, and came from nowhere.
    """
    item = await store.revive(dead_id)
    if item is None:
        return False
    if not item.subject:
        raise OrderRefused(409, "it says no subject that it came from, so nobody can take it in again")
    await bus.publish([item])
    await store.delete_dead_letter(dead_id)
    return True
