"""The bus as actors see it: publish, fetch and ack in batches, at least once, with deduplication by id.

Implemented by `nats_bus.NatsBus` over JetStream, and in memory for tests on a mock clock; both pass
`tests/contract/test_bus.py`. Calls carry batches because a crossing of the bridge costs about 100 us.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from actors.messages import Message, encode


class Outgoing(msgspec.Struct, frozen=True):
    """A record on its way out. `id` becomes `Nats-Msg-Id`: publishing it again within the window is a no-op."""

    subject: str
    id: str
    data: bytes


class Delivery(msgspec.Struct, frozen=True):
    """A record as it came in."""

    subject: str
    id: str
    """`Nats-Msg-Id` of its publisher; `STREAM:sequence` if it set none."""
    data: bytes
    attempts: int
    """How many times the broker has delivered it to this durable, this time included."""
    token: object
    """The bus' own handle for ack and nak."""
    problem: str = ""
    """Why `data` could not be had (claim check without its file); empty if all is well."""


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """How far a durable is behind."""

    waiting: int
    """Records not yet delivered."""
    in_flight: int
    """Records delivered and not yet acked."""


class Tail(msgspec.Struct, frozen=True):
    """How far a stream was filled from here."""

    sequence: int = 0
    """The highest number that the broker confirmed; 0 before the first."""
    losses: int = 0
    """How often it then gave a number again: it had lost what it had confirmed (power failure, restored backup)."""


class Subscription(Protocol):
    """One durable consumer; several holders of the same durable share its records."""

    async def fetch(self, n: int, timeout: float) -> list[Delivery]:
        """Up to `n` records, as soon as there are any; empty after `timeout` seconds, or while the broker is away.

        May be cancelled at any moment; what had arrived by then comes with the next call.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are done. A lost ack means redelivery, so it is never worth a retry."""
        ...

    async def nak(self, deliveries: Sequence[Delivery], delay: float = 0.0) -> None:
        """Deliver these again in `delay` seconds."""
        ...

    async def in_progress(self, deliveries: Sequence[Delivery]) -> None:
        """These are being worked on: start their ack wait again."""
        ...

    async def aclose(self) -> None:
        """Stop receiving. The durable and its position stay."""
        ...


class Bus(Protocol):
    """Streams of records."""

    @property
    def ack_wait(self) -> float:
        """Seconds after which a record that was neither acked nor kept in progress is delivered again."""
        ...

    async def publish(self, items: Sequence[Outgoing]) -> None:
        """Returns when every item is stored by the broker, in order for items of one subject on the first attempt.

        Raises:
            StreamFull: a stream is at its limit. Some items may have been stored.
            BusUnavailable: not confirmed within the bounded retries. Some items may have been stored.
            BusMisconfigured: no stream has an item's subject.
        """
        ...

    def tail(self, subject: str) -> Tail:
        """Of the stream that takes `subject`, as of the last `publish`."""
        ...

    def remember(self, subject: str, sequence: int) -> None:
        """`sequence` was confirmed in an earlier life: a number that is given again is a loss."""
        ...

    async def subscribe(self, durable: str, subjects: Sequence[str]) -> Subscription:
        """Join the durable consumer `durable` on `subjects`, creating it at the streams' beginning if it is new.

        Raises:
            BusUnavailable: the broker does not answer.
            BusMisconfigured: no stream has a subject, or a work queue has another consumer on it.
        """
        ...

    async def depth(self) -> Mapping[str, Depth]:
        """By durable, for those that were subscribed to here; for metrics and the dashboard."""
        ...

    async def aclose(self) -> None:
        """Close within about a second; idempotent."""
        ...


def delivery_id(subject: str, message: Message) -> str:
    """The id under which `message` goes out on `subject`, and under which consumers remember having seen it.

    The record id alone would not do: a trajectory and its attribution share one, and a lesson keeps its id through its
    revisions.
    """
    revision: int | None = getattr(message, "revision", None)
    return f"{subject}:{message.id}" if revision is None else f"{subject}:{message.id}:{revision}"


def outgoing(subject: str, message: Message) -> Outgoing:
    """`message` encoded for `subject` under its deterministic id."""
    return Outgoing(subject, delivery_id(subject, message), encode(message))
