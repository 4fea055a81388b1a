"""What an actor is: a name, durable inputs, a handler of batches, perhaps a tick.

    fetch -> decode -> drop what the ledger has -> `handle` -> one commit -> publish -> ack        (`runner.py`)

Actors get their clock, random source, store and adapters as constructor arguments and own no globals. They let errors
that they cannot handle escape; an outage of something outside is `DependencyUnavailable`.
"""

from collections.abc import Sequence

import msgspec

from actors.messages import Message
from actors.system.outbox import Outbox, Output, Result


class Received(msgspec.Struct, frozen=True):
    """An input, decoded and seen for the first time."""

    id: str
    """`outgoing.delivery_id(subject, message)`, the id that the ledger knows it by."""
    subject: str
    message: Message


class Actor:
    """A consumer of streams, or a source of records; each overrides what it needs."""

    name: str
    """Unique in the system; also the durable's name: letters, digits, `-` and `_`."""
    inputs: tuple[str, ...] = ()
    """Subjects to consume; may span streams. One without inputs and ticks lives in `run`."""
    batch: int = 64
    """How many records to take at most at a time."""
    tick_seconds: float | None = None
    """Seconds from the end of one tick to the next; None for none."""
    head: bool = False
    """Of the flow: the others go slowly while it has more than it can take."""
    renews: bool = False
    """Keeps in memory what people may forget or revise in the store: it starts again when they do (`Ledger.edits`)."""

    async def start(self) -> None:
        """Rebuild the state in memory from the store: before the first batch, and after every `handle` or `tick` that
        raised and may have left it half changed."""

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Handle `batch` as one unit. If it raises, the records are handled one by one; one that keeps failing is
        parked with its error. `DependencyUnavailable` is waited out and counts for nothing."""
        return Result()

    async def tick(self) -> Result:
        """What is due by time. Never runs beside `handle`. An error restarts the actor."""
        return Result()

    async def run(self, outbox: Outbox) -> None:
        """Produce until `outbox.lifecycle.draining`, with a sign of life (`beat`) within the time that the task may be
        silent. An error restarts it, `start` first."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a record on `dead.<actor>` (msgpack): what a process without a store gave up."""

    actor: str
    input_id: str
    subject: str
    data: bytes
    """The original payload, to be published on `subject` again; without one it is a record of the spool."""
    error: str


__all__ = ["Actor", "DeadLetter", "Output", "Received", "Result"]
