"""The copy of a call that the recorder gets.

Nothing in here understands a response: that is the recorder's work, in `adapters.intake.tap`. It takes time that an
agent would wait for.
"""

import random

import msgspec

from actors.messages import Exchange
from daemon.tap.admission import Visitor
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Request

MAX_CAPTURE_BYTES = 16 << 20
"""Of a request or a response in a record. A larger one passes all the same; its record comes without it."""
NO_REPLY = ReplyParser()
"""Of a call that has not reached an engine."""


def new_id(rng: random.Random) -> str:
    """A record id that no other process makes; `rng` is the system's once, and cheaper than the system each time."""
    return f"{rng.getrandbits(128):032x}"


def record(
    record_id: str,
    request: Request,
    visitor: Visitor,
    reply: ReplyParser,
    *,
    engine: str,
    status: int,
    finished: float,
    problem: str,
) -> Exchange:
    """The record of a call that has ended; `status` is what the client saw, 502 and 504 may be the tap's own."""
    body, pieces = request.body, reply.body
    if len(body) > MAX_CAPTURE_BYTES:
        body, problem = b"", problem or "request_too_large"
    if reply.overflow:
        problem = problem or "response_too_large"
    return Exchange(
        id=record_id,
        tenant=visitor.tenant,
        engine=engine,
        endpoint=request.path.decode("latin-1"),
        request=body,
        status=status,
        response=b"".join(pieces),
        streamed=reply.head.content_type[:17].lower() == "text/event-stream",
        started=request.received,
        duration=max(0.0, finished - request.received),
        complete=not problem,
        error=problem,
        hints=request.head.hints,
        caller=visitor.caller,
    )


def mirrored(record_id: str, request: Request, visitor: Visitor) -> Exchange:
    """The record of a request that a proxy has copied: nobody saw its answer."""
    made = record(record_id, request, visitor, NO_REPLY, engine="", status=0, finished=0.0, problem="")
    return msgspec.structs.replace(made, error="mirrored", source="mirror")
