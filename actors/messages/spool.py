"""What the tap writes to its spool: a call as raw bytes, or feedback.

The tap only copies: understanding a response (merging a stream, reading token ids) takes time that an agent would wait
for, so it happens in the daemon, in `adapters.intake.tap`. These records never travel on a stream.
"""

import msgspec

from actors.messages.base import Message
from actors.messages.codec import decode_as
from actors.messages.traffic import Feedback, Hints, Part, Source


class RawExchange(Message, frozen=True, kw_only=True, tag="raw_exchange"):
    """One call as it went over the wire, bodies de-chunked and otherwise untouched."""

    tenant: str = "default"
    engine: str = ""
    """Name of the upstream that answered."""
    path: str
    """Without the query."""
    request: bytes
    """Body as the client sent it."""
    tokens_requested: bool = False
    """The tap added the fields that ask for log-probs, token ids and weight versions, where the client had not."""
    status: int
    """What the client saw; 502 and 504 may be the tap's own."""
    response: bytes = b""
    """Body as far as it came."""
    content_type: str = ""
    content_encoding: str = ""
    received: float
    """Unix seconds when the request was complete."""
    finished: float
    """Unix seconds."""
    complete: bool = True
    """The whole response went by and the client was there to get it."""
    problem: str = ""
    """Why it is not complete: client_left, upstream_broke, timeout, response_too_large."""
    hints: Hints = Hints()
    """From the headers alone; the bodies are read later."""
    source: Source = "tap"
    """`mirror`: there is no response, `status` is 0."""
    caller: str = ""
    """Id of the agent key that the call came with, never the key."""
    redacted: tuple[Part, ...] = ()
    """Where something was taken out of the bodies."""
    finds: dict[str, int] = {}
    """How many finds of each kind were taken out."""


SpoolRecord = RawExchange | Feedback

_decoder: msgspec.msgpack.Decoder[SpoolRecord] = msgspec.msgpack.Decoder(SpoolRecord)


def decode_spooled(data: bytes) -> SpoolRecord:
    """The record in `data`."""
    return decode_as(_decoder, data)
