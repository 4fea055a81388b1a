"""Messages to bytes and back: msgpack, one tagged union, errors that name the field."""

from collections.abc import Iterable

import msgspec

from actors.messages.base import SCHEMA, Message
from actors.messages.errors import MalformedMessage, UnsupportedSchema
from actors.messages.experience import Experience, Task
from actors.messages.policy import BatchItem, BatchOrder, Candidate, Directive, Serving, Verdict
from actors.messages.traffic import Exchange, Feedback
from actors.messages.trajectory import Attributed, Trajectory

AnyMessage = (
    Exchange | Feedback | Trajectory | Attributed | Experience | Task
    | BatchOrder | Candidate | Verdict | Serving | Directive
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_items = msgspec.msgpack.Decoder(tuple[BatchItem, ...])


class Envelope(msgspec.Struct):
    """What tells a message that is malformed from one of a newer schema."""

    type: str = "?"
    schema: int = 0


_envelope = msgspec.msgpack.Decoder(Envelope)


def encode(message: Message) -> bytes:
    """`message` as msgpack."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """The message in `data`.

    Raises:
        MalformedMessage: no msgpack, an unknown type, or a field that is missing or of the wrong type.
        UnsupportedSchema: written by a newer schema than ours.
    """
    try:
        envelope = _envelope.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"no message: {error}") from error
    if envelope.schema > SCHEMA:
        raise UnsupportedSchema(envelope.type, envelope.schema, SCHEMA)
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"{envelope.type} message: {error}") from error


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The content of a batch file."""
    return _encoder.encode(tuple(items))


def decode_batch(data: bytes) -> tuple[BatchItem, ...]:
    """The items of a batch file.

    Raises:
        MalformedMessage: the file is truncated or is no batch.
    """
    try:
        return _items.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"batch file: {error}") from error
