"""What the tap hands to its recorder: a call as raw bytes, or feedback.

The tap only copies: understanding a response (merging a stream, reading token ids) takes time that an agent would wait
for, so it happens in the recorder, in `adapters.intake.tap`. These records touch no disk and travel on no stream.
"""

from functools import partial

import msgspec

from actors.messages.base import Message
from actors.messages.codec import decode_as
from actors.messages.traffic import Feedback, Hints, Source


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


_decoder: msgspec.msgpack.Decoder[RawExchange | Feedback] = msgspec.msgpack.Decoder(RawExchange | Feedback)
decode_raw = partial(decode_as, _decoder)
"""The record in some bytes."""
