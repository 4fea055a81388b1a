"""A record on its way to the bus, apart from it: who only keeps or makes records needs no NATS."""

import msgspec

from actors.messages import Message, encode


class Outgoing(msgspec.Struct, frozen=True):
    """A record on its way out. `id` becomes `Nats-Msg-Id`: publishing it again within the window is a no-op."""

    subject: str
    id: str
    data: bytes


def delivery_id(subject: str, message: Message) -> str:
    """The id under which `message` goes out on `subject`, and under which consumers remember having seen it: a
    trajectory and its attribution share the record's own, and a lesson keeps it through its revisions."""
    revision: int | None = getattr(message, "revision", None)
    return f"{subject}:{message.id}" if revision is None else f"{subject}:{message.id}:{revision}"


def outgoing(subject: str, message: Message) -> Outgoing:
    """`message` encoded for `subject` under its deterministic id."""
    return Outgoing(subject, delivery_id(subject, message), encode(message))
