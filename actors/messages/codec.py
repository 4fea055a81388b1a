"""Messages to bytes and back: msgpack, one tagged union, errors that name the field."""

from collections.abc import Iterable

import msgspec

from actors.messages.base import SCHEMA, Message
from actors.messages.errors import MalformedMessage, MessageError, UnsupportedSchema
from actors.messages.experience import Experience, Task
from actors.messages.policy import BatchItem, BatchOrder, Candidate, Directive, Serving, Verdict
from actors.messages.traffic import Exchange, Feedback
from actors.messages.trajectory import Attributed, OutcomeChanged, Trajectory

AnyMessage = (
    Exchange | Feedback | Trajectory | Attributed | OutcomeChanged | Experience | Task
    | BatchOrder | Candidate | Verdict | Serving | Directive
)  # fmt: skip

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_items = msgspec.msgpack.Decoder(tuple[BatchItem, ...])


class _Envelope(msgspec.Struct):
    """What tells a message that is malformed from one of a newer schema."""

    type: str = "?"
    schema: int = 0


_envelope = msgspec.msgpack.Decoder(_Envelope)


def encode(message: Message) -> bytes:
    """`message` as msgpack."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """The message in `data`.

    Raises:
        MalformedMessage: no msgpack, an unknown type, or a field that is missing or of the wrong type.
        UnsupportedSchema: written by a newer schema than ours.
    """
    fault: Exception | None = None
    try:
        message = _decoder.decode(data)
        if message.schema <= SCHEMA:
            return message
    except _UNREADABLE as error:
        fault = error
    raise _explained(data, fault) from fault


def _explained(data: bytes, fault: Exception | None) -> MessageError:
    """A newer schema explains a failure better than the field that is at fault."""
    try:
        found = _envelope.decode(data)
    except _UNREADABLE:
        return MalformedMessage(f"no message: {fault}")
    if found.schema <= SCHEMA:
        return MalformedMessage(f"{found.type} message: {fault}")
    told = f"{found.type} message has schema {found.schema}, this process reads up to {SCHEMA}"
    return UnsupportedSchema(f"{told}: upgrade it before its peers")


def kind_of(data: bytes) -> str:
    """The tag of the message in `data`, "?" if it has none; the rest is skipped unread."""
    try:
        return _envelope.decode(data).type
    except _UNREADABLE:
        return "?"


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The content of a batch file."""
    return _encoder.encode(tuple(items))


def decode_batch(data: bytes) -> tuple[BatchItem, ...]:
    """The items of a batch file."""
    try:
        return _items.decode(data)
    except _UNREADABLE as error:
        raise MalformedMessage(f"batch file: {error}") from error
