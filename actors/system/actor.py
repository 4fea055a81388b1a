"""What an actor is: a name, durable inputs, a handler of batches, perhaps a tick.

    fetch -> decode -> drop what the ledger has -> `handle` -> one commit -> publish -> ack        (`runner.py`)

Actors get their clock, random source, store and adapters as constructor arguments and own no globals. They let errors
that they cannot handle escape; an outage of something outside is `DependencyUnavailable`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
import msgspec

from actors.messages import Message

T = TypeVar("T")


class Received(msgspec.Struct, frozen=True):
    """An input, decoded and seen for the first time."""

    id: str
    """`outgoing.delivery_id(subject, message)`, the id that the ledger knows it by."""
    subject: str
    message: Message


class Output(msgspec.Struct, frozen=True):
    """A message to publish once the result is committed."""

    subject: str
    message: Message


class Result(msgspec.Struct, frozen=True):
    """What handling a batch, or a tick, came to."""

    records: Sequence[Message] = ()
    """To be saved by the store, in the same transaction as the outputs and the marks of the inputs."""
    outputs: Sequence[Output] = ()


class Actor(Protocol):
    """A consumer of streams. Attributes may be plain class or instance attributes."""

    @property
    def name(self) -> str:
        """Unique in the system; also the durable's name: letters, digits, `-` and `_`."""
        ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """Subjects to consume; may span streams; empty for one that lives by ticks alone."""
        ...

    @property
    def batch(self) -> int:
        """How many records to take at most at a time."""
        ...

    @property
    def tick_seconds(self) -> float | None:
        """Seconds from the end of one tick to the next; None for none."""
        ...

    async def start(self) -> None:
        """Rebuild the state in memory from the store.

        Called before the first batch and again after every `handle` or `tick` that raised: state may then be half
        changed, and the store is what counts.
        """
        ...

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Handle `batch` as one unit.

        If it raises, the records are handled one by one; one that keeps failing is parked with its error.
        `DependencyUnavailable` is waited out instead and counts for nothing.
        """
        ...

    async def tick(self) -> Result:
        """What is due by time. Never runs beside `handle`. An error restarts the actor."""
        ...


class Context(Protocol):
    """What a producer gets from the system."""

    @property
    def draining(self) -> anyio.Event:
        """Set when the process is to end: finish what is in hand and return."""
        ...

    def beat(self) -> None:
        """A sign of life; owed at least once per stall time of the restart policy."""
        ...

    async def pause(self, seconds: float) -> bool:
        """Sleep; True if the full time passed, False as soon as draining begins."""
        ...

    async def insist(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat `operation` until nothing that it needs is away; what else the producer has under way goes on."""
        ...

    async def emit(self, result: Result) -> None:
        """Commit `result` and publish its outputs, with the guarantees that a handler's result has.

        Returns when the bus has the outputs; waits out outages. When draining begins during an outage it raises an
        error that ends the producer quietly: let it pass. What was committed goes out after the next start.
        Repeating a message id is a no-op.
        """
        ...


class Producer(Protocol):
    """A source of records without an input."""

    @property
    def name(self) -> str:
        """Unique in the system."""
        ...

    async def start(self) -> None:
        """Rebuild the state in memory from the store."""
        ...

    async def run(self, context: Context) -> None:
        """Produce until `context.draining`. An error restarts the producer, `start` first."""
        ...


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a record on `dead.<actor>` (msgpack): what a process without a store gave up."""

    actor: str
    input_id: str
    subject: str
    data: bytes
    """The original payload, to be published on `subject` again; without one it is a record of the spool."""
    error: str
