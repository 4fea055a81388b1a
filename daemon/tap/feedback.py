"""`POST /v1/feedback`: what somebody says of a call or a trajectory, taken by the tap and written to the spool.

    {"response_id": "chatcmpl-…", "outcome": 1}                    how it ended, by the last response's id
    {"custom_id": "order-4711", "outcome": true}                   by the id that the caller gave the call itself
    {"trajectory_id": "…", "outcome": 0.5, "final": false}         partial success, the trajectory goes on
    {"exchange_id": "…", "text": "wrong date"}                     words about one call
    {"response_id": "…", "kind": "step", "outcome": 0}             this one step was bad
    {"trajectory_id": "…", "step": 3, "outcome": 1}                so was the fourth one good

Answered with 202 and the record's id, once the disk has it for good. The same body is the same record however often it
is sent, so senders may retry; `id` tells two equal reports apart. A list of such objects is taken as a whole or refused
as a whole.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from actors.messages import Feedback, derived_id
from daemon.tap.admission import Visitor
from daemon.tap.errors import Refused
from daemon.tap.http import refusal_bytes, response_bytes
from daemon.tap.metrics import Counts
from daemon.tap.recorder import Recorder
from daemon.tap.request import Request

MAX_LIST = 1000
_MAX_STEP = 1_000_000
_MAX_BYTES = 262_144
"""Of a post: a full list of reports with short words."""

_Id = Annotated[str, msgspec.Meta(max_length=256)]
Kind = Literal["outcome", "rating", "comment", "step"]


class FeedbackBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One report."""

    id: _Id = ""
    trajectory_id: _Id = ""
    exchange_id: _Id = ""
    response_id: _Id = ""
    custom_id: _Id = ""
    step: Annotated[int, msgspec.Meta(ge=0, le=_MAX_STEP)] | None = None
    outcome: float | bool | None = None
    kind: Kind | None = None
    final: bool | None = None
    text: Annotated[str, msgspec.Meta(max_length=65_536)] = ""

    def __post_init__(self) -> None:
        """What no type says; a fault begins with the field's name."""
        one_call = self.exchange_id or self.response_id or self.custom_id
        if not (one_call or self.trajectory_id):
            raise ValueError("response_id: nothing says what the feedback is about")
        if self.outcome is not None and not 0 <= self.outcome <= 1:
            raise ValueError(f"outcome: {self.outcome:g} is out of range")
        if self.outcome is None and self.meant != "comment":
            raise ValueError(f"outcome: missing, and kind is {self.meant}")
        if self.meant == "comment" and not self.text.strip():
            raise ValueError("text: missing, and kind is comment")
        if self.meant == "step" and self.step is None and not one_call:
            raise ValueError("step: missing, and a trajectory has many")
        if self.step is not None and self.meant in ("outcome", "rating"):
            raise ValueError(f"kind: {self.meant} is of the whole, and step names one; leave one of them out")
        if self.final and (self.meant == "step" or self.step is not None):
            raise ValueError("final: what is said of one step ends nothing")

    @property
    def meant(self) -> Kind:
        """The kind, as told or as the other fields imply it."""
        if self.kind is not None:
            return self.kind
        if self.outcome is None and self.text.strip():
            return "comment"
        return "outcome" if self.step is None else "step"


_one = msgspec.json.Decoder(FeedbackBody)
_many = msgspec.json.Decoder(list[FeedbackBody])
_SAME = ("trajectory_id", "exchange_id", "response_id", "custom_id", "step", "text")
_NAMES = [field.name for field in msgspec.structs.fields(FeedbackBody)]
_AN_ID = (
    "give response_id (the id of the completion), custom_id, trajectory_id or exchange_id: "
    "an id as text of at most 256 characters"
)
_REMEDY = dict.fromkeys(_NAMES, _AN_ID) | {
    "body": 'send a JSON object such as {"response_id": "chatcmpl-1", "outcome": 1}, or a list of them',
    "step": "give the step's number from 0",
    "outcome": "give a number from 0 (failure) to 1 (success), or true or false",
    "kind": "give outcome, rating, comment or step",
    "final": "give true if the trajectory is over, else false",
    "text": "give text of at most 65536 characters",
}
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_FAULT = re.compile(r"(?:([a-z_]+): )?(.*?)(?: - at `\$(\[\d+\])?\.?([a-z_]*)`)?", re.DOTALL)
"""msgspec's errors, and ours within them: [FIELD: ]WHAT[ - at `$[NUMBER].FIELD`]."""


class FeedbackDesk:
    """Takes feedback."""

    def __init__(self, recorder: Recorder, counts: Counts, *, clock: Callable[[], float]) -> None:
        """
        Args:
            clock: unix seconds.
        """
        self._recorder, self._counts, self._clock = recorder, counts, clock

    def take(self, request: Request, visitor: Visitor, then: Callable[[bytes], bool]) -> None:
        """Write down what a post reports, and call `then` with the answer once it is known whether the disk has it:
        whoever is told that it was taken must find it again, whatever happens to the tap, its recorder or the power.
        `then` says whether somebody still waited for the answer; else the report comes again.
        """
        recorder, counts = self._recorder, self._counts
        try:
            told, listed = self._read(request, visitor)
        except Refused:
            counts.feedback["rejected"] += 1
            raise
        extra = {} if visitor.keep else {"kept": False}
        taken = [{"id": feedback.id, "object": "evolved.feedback", **extra} for feedback in told]
        data = response_bytes(202, msgspec.json.encode({"object": "list", "data": taken} if listed else taken[0]))

        def answer(safe: bool) -> None:
            heard = then(data if safe else refusal_bytes(_unavailable()))
            if heard:
                counts.requests["feedback", 202 if safe else 503] += 1
            counts.feedback["accepted" if safe and heard else "unavailable"] += len(told)

        *others, last = told
        if not visitor.keep:
            # Their client opts out of everything alike: that is no fault of theirs, and nothing of it is kept.
            counts.requests["feedback", 202] += 1
            counts.feedback["opted_out"] += len(told)
            then(data)
        elif not (recorder.taking and all(map(recorder.offer, others)) and recorder.offer(last, answer)):
            # Those before the one that was shed are written again when it is sent again: the same records.
            counts.feedback["unavailable"] += len(told)
            raise _unavailable()

    def _read(self, request: Request, visitor: Visitor) -> tuple[list[Feedback], bool]:
        if request.method != b"POST":
            raise Refused(405, "method_not_allowed", "feedback is posted", allow="POST")
        if visitor.why_not == "other_site":
            # It may post to every port of its machine.
            raise Refused(403, "other_site", "a web page must show an agent's key; make one with `evolved keys add`")
        kind = request.head.named.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            # All else a browser lets any page send anywhere without asking first (Fetch standard, CORS-safelisted).
            raise Refused(415, "content_type", "send it with content-type: application/json", param="content-type")
        if len(request.body) > _MAX_BYTES:
            raise Refused(413, "body_too_large", f"feedback above {_MAX_BYTES} bytes")
        return read_feedback(request.body, visitor.tenant, self._clock(), visitor.caller)


def _unavailable() -> Refused:
    return Refused(503, "spool_unavailable", "feedback cannot be written down now; send it again later")


def read_feedback(body: bytes, tenant: str, received: float, caller: str = "") -> tuple[list[Feedback], bool]:
    """The records that `body` asks for, and whether it is a list; a refusal names the field (`[3].outcome`)."""
    listed = body.lstrip()[:1] == b"["
    try:
        told = _many.decode(body) if listed else [_one.decode(body)]
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused("body", f"no JSON ({error})") from error
    if not 1 <= len(told) <= MAX_LIST:
        raise _refused("body", f"a list of {len(told)}; from 1 to {MAX_LIST} are taken at once")
    return [_record(one, tenant, received, caller) for one in told], listed


def _record(told: FeedbackBody, tenant: str, received: float, caller: str) -> Feedback:
    outcome, kind = None if told.outcome is None else float(told.outcome), told.meant
    # Only an outcome ends a trajectory unless its sender says otherwise.
    final = kind == "outcome" if told.final is None else told.final
    about = (told.trajectory_id, told.exchange_id, told.response_id)
    # Only where they are told: what senders repeat after an upgrade keeps its id.
    more = (told.custom_id, told.step) if told.custom_id or told.step is not None else ()
    same: dict[str, Any] = {name: getattr(told, name) for name in _SAME}
    return Feedback(
        id=derived_id("feedback", tenant, told.id, *about, outcome, kind, final, told.text, *more),
        received=received,
        tenant=tenant,
        outcome=outcome,
        kind=kind,
        final=final,
        caller=caller,
        **same,
    )


def _explained(text: str) -> Refused:
    """The fault in a report, with the field in front and a remedy behind."""
    found = _FAULT.fullmatch(text)
    named, what, place, field = found.groups("") if found else ("", text, "", "")
    if unknown := _UNKNOWN.fullmatch(what):
        return _refused(unknown[1][:100], f"unknown field; known are {', '.join(_NAMES)}", place)
    return _refused(named or field or "body", what[0].lower() + what[1:], place)


def _refused(field: str, what: str, place: str = "") -> Refused:
    param = f"{place}.{field}" if place and field != "body" else field
    remedy = f"; {_REMEDY[field]}" if field in _REMEDY else ""
    return Refused(422, "invalid_feedback", f"{param}: {what}{remedy}", param=param)
