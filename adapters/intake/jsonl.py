"""Records as lines of JSON: written by `evolved export`, read by `evolved import`; the format is in docs/reference.md.

    {"type": "trajectory" | "attributed" | "exchange" | "feedback", ...}      ours, field for field
    {"messages": [...], "tools": [...], "outcome": 1.0}     a conversation, as fine-tuning takes it

Arrays (token ids, log-probs, versions) are base64 of their bytes. Bodies of calls that are a JSON object or array stand
in the line as the JSON that they are, others in base64 too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np

from actors.dialects import parsed
from actors.dialects.conversation import DECODE_ERRORS
from actors.dialects.form import FIELDS
from actors.messages import SCHEMA, Attributed, Exchange, Feedback, Hints, Trajectory, derived_id
from actors.ports.errors import AdapterError

T = TypeVar("T")
Record = Trajectory | Attributed | Exchange | Feedback
_BODIES = ("request", "response", "tools")
_ARRAYS = ("prompt_ids", "response_ids", "logprobs")
_KINDS = {"trajectory": "trajectories", "attributed": "trajectories", "exchange": "exchanges", "feedback": "feedback"}
_records = msgspec.json.Decoder[Record](Record)


class InvalidLine(AdapterError):
    """A line that is no record: says what is wrong with it."""


class _Head(msgspec.Struct):
    """What tells lines apart."""

    type: str = ""
    schema: int = SCHEMA
    messages: Any = None


class _Chat(msgspec.Struct):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    functions: list[dict[str, Any]] = []
    outcome: float | None = None
    model: str = ""


_heads = msgspec.json.Decoder(_Head)
_chats = msgspec.json.Decoder(_Chat)


def to_line(record: Record) -> bytes:
    """`record` as one line, without its end."""
    return _with_bodies(msgspec.json.encode(record), _opened)


def from_line(line: bytes, *, tenant: str, now: float, kind: str = "auto") -> list[Record]:
    """The record in a line that `to_line` made; of a conversation, the calls that it must have been made of.

    Args:
        tenant: whose a conversation is.
        now: when it began, unix seconds.
        kind: "trajectories", "exchanges", "feedback" or "chat": any other line is refused.

    Raises:
        InvalidLine: says what is wrong with it.
    """
    head = _read(_heads, line)
    found = "chat" if head.messages is not None and not head.type else _KINDS.get(head.type)
    if found is None:
        raise InvalidLine(f"type {head.type[:40]!r} is none of {', '.join(_KINDS)}, or no `messages`")
    if kind not in ("auto", found):
        raise InvalidLine(f"holds {found}, and --kind {kind} was asked for")
    if found == "chat":
        return _calls(_read(_chats, line), derived_id("chat line", tenant, line), tenant, now)
    if head.schema > SCHEMA:
        raise InvalidLine(f"schema {head.schema}: written by a newer evolved; upgrade this one")
    record = _read(_records, _with_bodies(line, _packed))
    _check(record)
    return [record]


def _with_bodies(record: bytes | msgspec.Raw, change: Callable[[msgspec.Raw], bytes | msgspec.Raw]) -> bytes:
    """The JSON of a record, `change` made to that of each of its bodies."""
    members = _read(FIELDS, record)
    if "trajectory" in members:
        members["trajectory"] = msgspec.Raw(_with_bodies(members["trajectory"], change))
    for name in _BODIES:
        if name in members:
            members[name] = msgspec.Raw(change(members[name]))
    return msgspec.json.encode(members)


def _opened(body: msgspec.Raw) -> bytes | msgspec.Raw:
    """A body as the JSON that it holds in base64, if that is an object or a list."""
    data = msgspec.json.decode(body, type=bytes)
    # Strict JSON has ends of lines between tokens alone, where a blank is as good.
    return data.replace(b"\n", b" ").replace(b"\r", b" ") if isinstance(parsed(data), dict | list) else body


def _packed(body: msgspec.Raw) -> bytes | msgspec.Raw:
    data = bytes(body)
    return msgspec.json.encode(data) if data[:1] in (b"{", b"[") else body


def _read(decoder: msgspec.json.Decoder[T], line: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(line)
    except DECODE_ERRORS as error:
        raise InvalidLine(str(error)) from error


def _calls(body: _Chat, key: str, tenant: str, now: float) -> list[Record]:
    """Each answer of the assistant is a call. The last record says that it is over, and how it ended if the line has an
    `outcome`. The same `key` always gives the same ids, so importing a line twice is importing it once.
    """
    answers = [number for number, message in enumerate(body.messages) if message.get("role") == "assistant"]
    if not answers or not answers[0]:
        raise InvalidLine("messages: an assistant must answer what somebody said before")
    asked = {"tools": body.tools or body.functions} if body.tools or body.functions else {}
    records: list[Record] = []
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
                hints=Hints(trajectory_id=key),
                source="import",
            )
        )
    told = derived_id("chat end", key)
    records.append(Feedback(id=told, received=now, tenant=tenant, trajectory_id=key, outcome=body.outcome))
    return records


def _check(record: Record) -> None:
    """What no type says: a trainer must not meet rows that contradict their steps."""
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
