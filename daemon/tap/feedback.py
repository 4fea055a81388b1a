"""`POST /v1/feedback`: what somebody says of a call or a trajectory, taken by the tap and written to the spool.

    {"response_id": "chatcmpl-…", "outcome": 1}                       how it ended, by the last response's id
    {"trajectory_id": "…", "outcome": 0.5, "final": false}            partial success, the trajectory goes on
    {"exchange_id": "…", "kind": "comment", "text": "wrong date"}     words about one call

Answered with 202 and the record's id. The same body is the same record however often it is sent, so senders may retry;
`id` tells two equal reports apart.
"""

import difflib
import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from actors.messages import Feedback, derived_id
from daemon.tap.capture import tenant
from daemon.tap.errors import Refused
from daemon.tap.http import Request, response_bytes
from daemon.tap.metrics import Counts
from daemon.tap.spool import SpoolWriter

_Id = Annotated[str, msgspec.Meta(max_length=256)]


class FeedbackBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of the post."""

    id: _Id = ""
    trajectory_id: _Id = ""
    exchange_id: _Id = ""
    response_id: _Id = ""
    outcome: float | bool | None = None
    kind: Literal["outcome", "rating", "comment"] = "outcome"
    final: bool | None = None
    text: Annotated[str, msgspec.Meta(max_length=65_536)] = ""


_decoder = msgspec.json.Decoder(FeedbackBody)
_NAMES = [field.encode_name for field in msgspec.structs.fields(FeedbackBody)]
_REMEDY = {
    "body": 'send a JSON object such as {"response_id": "chatcmpl-1", "outcome": 1}',
    "outcome": "give a number from 0 (failure) to 1 (success), or true or false",
    "kind": "give outcome, rating or comment",
    "final": "give true if the trajectory is over, else false",
    "text": "give text of at most 65536 characters",
}
_REMEDY |= dict.fromkeys(_NAMES[:4], "give an id as text of at most 256 characters")


class FeedbackDesk:
    """Takes feedback."""

    def __init__(self, spool: SpoolWriter, counts: Counts, *, max_bytes: int, clock: Callable[[], float]) -> None:
        """
        Args:
            max_bytes: of a body.
            clock: unix seconds.
        """
        self._spool, self._counts, self._max_bytes, self._clock = spool, counts, max_bytes, clock

    def answer(self, request: Request) -> bytes:
        """The response to a post.

        Raises:
            Refused: 405, 413, 422 with the field at fault, or 503 while the spool takes nothing.
        """
        try:
            if request.method != b"POST":
                raise Refused(405, "method_not_allowed", "feedback is posted", allow="POST")
            if len(request.body) > self._max_bytes:
                raise Refused(413, "body_too_large", f"feedback above {self._max_bytes} bytes")
            feedback = read_feedback(request.body, tenant(request), self._clock())
        except Refused:
            self._counts.feedback["rejected"] += 1
            raise
        if not (self._spool.taking and self._spool.offer(feedback)):
            self._counts.feedback["unavailable"] += 1
            raise Refused(503, "spool_unavailable", "feedback cannot be written down now; send it again later")
        self._counts.feedback["accepted"] += 1
        return response_bytes(202, msgspec.json.encode({"id": feedback.id, "object": "evolved.feedback"}))


def read_feedback(body: bytes, tenant: str, received: float) -> Feedback:
    """The record that `body` asks for.

    Raises:
        Refused: 422, with `param` naming the field.
    """
    try:
        told = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused("body", f"no JSON ({error})") from error
    if not (told.trajectory_id or told.exchange_id or told.response_id):
        raise Refused(
            422,
            "invalid_feedback",
            "response_id: nothing says what the feedback is about; give response_id (the id of the completion), "
            "trajectory_id or exchange_id",
            param="response_id",
        )
    outcome = None if told.outcome is None else float(told.outcome)
    if outcome is not None and not 0.0 <= outcome <= 1.0:
        raise _refused("outcome", f"{outcome:g} is out of range")
    if outcome is None and told.kind != "comment":
        raise _refused("outcome", f"missing, and kind is {told.kind}")
    if told.kind == "comment" and not told.text.strip():
        raise _refused("text", "missing, and kind is comment")
    # Only an outcome ends a trajectory unless its sender says otherwise.
    final = told.kind == "outcome" if told.final is None else told.final
    about = (told.trajectory_id, told.exchange_id, told.response_id)
    return Feedback(
        id=derived_id("feedback", tenant, told.id, *about, outcome, told.kind, final, told.text),
        received=received,
        tenant=tenant,
        trajectory_id=told.trajectory_id,
        exchange_id=told.exchange_id,
        response_id=told.response_id,
        outcome=outcome,
        kind=told.kind,
        final=final,
        text=told.text,
    )


def _explained(text: str) -> Refused:
    """msgspec's error with the field in front and a remedy behind."""
    unknown = re.search(r"unknown field `(.+)`", text)
    if unknown:
        name = unknown[1][:100]
        near = difflib.get_close_matches(name, _NAMES, 1, 0.5)
        meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(_NAMES)}"
        return Refused(422, "invalid_feedback", f"{name}: unknown field; {meant}", param=name)
    what, _, where = text.partition(" - at ")
    return _refused(where.strip("`").removeprefix("$").strip(".") or "body", what[0].lower() + what[1:])


def _refused(field: str, what: str) -> Refused:
    return Refused(422, "invalid_feedback", f"{field}: {what}; {_REMEDY.get(field, _REMEDY['body'])}", param=field)
