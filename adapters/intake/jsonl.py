"""Records as lines of JSON: written by `evolved export`, read by `evolved import`; the format is in docs/reference.md.

    {"type": "trajectory" | "attributed" | "exchange" | "feedback", ...}      ours, field for field
    {"messages": [...], "tools": [...], "outcome": 1.0}     a conversation, as fine-tuning takes it

Arrays (token ids, log-probs, versions) are base64 of their bytes. Bodies of calls stand in the line as the JSON that
they are.
"""

import base64
import binascii
from typing import Any

import msgspec
import numpy as np

from actors.messages import (
    SCHEMA,
    Attributed,
    Exchange,
    Feedback,
    Hints,
    Sampling,
    Trajectory,
    derived_id,
)
from actors.ports.errors import AdapterError

Record = Trajectory | Attributed | Exchange | Feedback
_BODIES = ("request", "response")
_ARRAYS = ("prompt_ids", "response_ids", "logprobs")
_BASE64 = "_base64"
_KINDS: dict[str, type[Record]] = {
    "trajectory": Trajectory, "attributed": Attributed, "exchange": Exchange, "feedback": Feedback,
}  # fmt: skip
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class InvalidLine(AdapterError):
    """A line that is no record: says what is wrong with it."""


def to_line(record: Record) -> bytes:
    """`record` as one line, without its end."""
    plain = msgspec.to_builtins(record)
    if isinstance(record, Exchange):
        for name in _BODIES:
            _put_body(plain, name, getattr(record, name))
    elif isinstance(record, Trajectory):
        _put_body(plain, "tools", record.tools)
    elif isinstance(record, Attributed):
        _put_body(plain["trajectory"], "tools", record.trajectory.tools)
    return msgspec.json.encode(plain)


def from_line(line: bytes) -> Record:
    """The record in a line that `to_line` made.

    Raises:
        InvalidLine: there is none.
    """
    fields = _object(line)
    named = _plain(fields.get("type", msgspec.Raw(b"null")))
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise InvalidLine(f"type is none of {', '.join(_KINDS)}")
    schema = _plain(fields.get("schema", msgspec.Raw(b"1")))
    if not isinstance(schema, int) or schema > SCHEMA:
        raise InvalidLine(f"schema {schema}: written by a newer evolved; upgrade this one")
    try:
        plain = _in(kind, fields)
        record = msgspec.convert(plain, kind)
    except (msgspec.ValidationError, OverflowError, ValueError, TypeError, binascii.Error) as error:
        raise InvalidLine(str(error)) from error
    _check(record)
    return record


def from_chat(line: bytes, *, tenant: str, now: float) -> list[Exchange | Feedback]:
    """A conversation as the calls that it must have been made of: each answer of the assistant is one.

    The last record says that it is over, and how it ended if the line has an `outcome`. The same line always gives the
    same ids, so importing it twice is importing it once. Raises InvalidLine if nobody answered in it.
    """
    try:
        body = msgspec.json.decode(line, type=_Chat)
    except _DECODE_ERRORS as error:
        raise InvalidLine(str(error)) from error
    answers = [number for number, message in enumerate(body.messages) if message.get("role") == "assistant"]
    if not answers or not answers[0]:
        raise InvalidLine("messages: an assistant must answer what somebody said before")
    key = derived_id("chat line", tenant, line)
    asked = {"tools": body.tools or body.functions} if body.tools or body.functions else {}
    records: list[Exchange | Feedback] = []
    for order, number in enumerate(answers):
        answer = {name: value for name, value in body.messages[number].items() if name != "weight"}
        response = {"choices": [{"index": 0, "message": answer}], "model": body.model}
        request = {"model": body.model, "messages": body.messages[:number], **asked}
        records.append(
            Exchange(
                id=derived_id("chat call", key, number),
                tenant=tenant,
                endpoint="/v1/chat/completions",
                model=body.model,
                started=now + order * 1e-3,
                duration=0.0,
                status=200,
                request=msgspec.json.encode(request),
                response=msgspec.json.encode(response),
                why_no_tokens="imported",
                sampling=Sampling(),
                hints=Hints(trajectory_id=key),
                source="import",
            )
        )
    told = derived_id("chat end", key)
    records.append(Feedback(id=told, received=now, tenant=tenant, trajectory_id=key, outcome=body.outcome))
    return records


class _Chat(msgspec.Struct):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    functions: list[dict[str, Any]] = []
    outcome: float | None = None
    model: str = ""


def kind_of(line: bytes) -> str:
    """ "trajectories", "exchanges", "feedback" or "chat", by what the line has in it.

    Raises:
        InvalidLine: none of them.
    """
    fields = _object(line)
    if "type" in fields:
        kind = _plain(fields["type"])
        names = {"trajectory": "trajectories", "attributed": "trajectories", "exchange": "exchanges"}
        if isinstance(kind, str) and (kind in names or kind == "feedback"):
            return names.get(kind, kind)
        raise InvalidLine(f"type {str(kind)[:40]!r} is none of {', '.join(_KINDS)}")
    if "messages" in fields:
        return "chat"
    raise InvalidLine("neither `type` nor `messages`: no record and no conversation")


def _object(line: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _fields.decode(line)
    except _DECODE_ERRORS as error:
        raise InvalidLine(f"no JSON object: {error}") from error


def _plain(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except _DECODE_ERRORS as error:
        raise InvalidLine(f"no JSON: {error}") from error


def _put_body(plain: dict[str, Any], name: str, body: bytes) -> None:
    """JSON as it is, which may not hold an end of line; what is no JSON in base64; nothing if it is empty."""
    del plain[name]
    if not body:
        return
    try:
        msgspec.json.decode(body)
        # Strict JSON has these between tokens alone, where a blank is as good.
        plain[name] = msgspec.Raw(body.replace(b"\n", b" ").replace(b"\r", b" "))
    except _DECODE_ERRORS:
        plain[name + _BASE64] = base64.b64encode(body).decode()


def _in(kind: type[Record], fields: dict[str, msgspec.Raw]) -> dict[str, Any]:
    if kind is Attributed:
        if "trajectory" not in fields:
            raise ValueError("an attributed record without its trajectory")
        plain = {name: _plain(raw) for name, raw in fields.items() if name != "trajectory"}
        return {**plain, "trajectory": _in(Trajectory, _object(fields["trajectory"]))}
    bodies = _BODIES if kind is Exchange else ("tools",) if kind is Trajectory else ()
    plain = {name: _plain(raw) for name, raw in fields.items() if name.removesuffix(_BASE64) not in bodies}
    for name in bodies:
        if name in fields:
            plain[name] = bytes(fields[name])
        elif name + _BASE64 in fields:
            plain[name] = base64.b64decode(_plain(fields[name + _BASE64]), validate=True)
        else:
            plain[name] = b""
    return plain


def _check(record: Record) -> None:
    """What no type says: a trainer must not meet rows that contradict their steps.

    Raises:
        InvalidLine: names the row, or the step.
    """
    if isinstance(record, Exchange) and any(len(getattr(record, name)) % 4 for name in _ARRAYS):
        raise InvalidLine(f"{', '.join(_ARRAYS)}: four bytes a token are expected")
    run = record.trajectory if isinstance(record, Attributed) else record
    if not isinstance(run, Trajectory):
        return
    if not run.steps:
        raise InvalidLine("a trajectory without steps")
    for number, row in enumerate(run.rows):
        size = len(row.ids)
        if size % 4 or any(other != size for other in (2 * len(row.step), len(row.logprobs), len(row.versions))):
            raise InvalidLine(f"rows[{number}]: ids, steps, log-probs and versions are not of as many tokens")
        steps = np.frombuffer(row.step, dtype="<i2")
        if steps.size and (steps.min() < -1 or steps.max() >= len(run.steps)):
            raise InvalidLine(f"rows[{number}].step: names a step that is not there")
        if not 0 <= row.hint[0] <= row.hint[1] <= steps.size:
            raise InvalidLine(f"rows[{number}].hint: not a span of the row")
    for number, step in enumerate(run.steps):
        if not -1 <= step.row < len(run.rows):
            raise InvalidLine(f"steps[{number}].row: names a row that is not there")
