"""Messages to bytes and back: msgpack, one tagged union, errors that name the field.

MessageError
├── MalformedMessage     bytes that are no message of ours, or one with a field out of its type
└── UnsupportedSchema    a message of a newer schema than this process understands
"""

from collections.abc import Iterable

import msgspec

from actors.messages.base import SCHEMA, Message
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


class MessageError(Exception):
    """Root of this module's errors."""


class MalformedMessage(MessageError):
    """The bytes cannot be decoded; the text names the message type and the field at fault."""


class UnsupportedSchema(MessageError):
    """The message was written by a newer version of evolved."""


class _Envelope(msgspec.Struct):
    """What tells messages apart; the rest is skipped unread."""

    type: str = "unknown"
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
    # A newer schema explains a failure better than the field that is at fault.
    kind, schema = _told(data)
    if schema <= SCHEMA:
        raise MalformedMessage(f"{kind} message: {fault}") from fault
    raise UnsupportedSchema(
        f"{kind} message has schema {schema}, this process reads up to {SCHEMA}: upgrade it before its peers"
    ) from fault


def kind_of(data: bytes) -> str:
    """The tag of the message in `data`, "unknown" if it has none."""
    return _told(data)[0]


def _told(data: bytes) -> tuple[str, int]:
    try:
        found = _envelope.decode(data)
    except _UNREADABLE:
        found = _Envelope()
    return found.type, found.schema


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The content of a batch file."""
    return _encoder.encode(tuple(items))


def decode_batch(data: bytes) -> tuple[BatchItem, ...]:
    """The items of a batch file."""
    try:
        return _items.decode(data)
    except _UNREADABLE as error:
        raise MalformedMessage(f"batch file: {error}") from error
