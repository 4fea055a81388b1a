"""A streamed response, merged into the object that the same call without `stream` would have given."""

import traceback
from typing import Any

import msgspec
import structlog

from actors.dialects import Dialect, parsed
from actors.dialects.conversation import DECODE_ERRORS

_DONE = b"[DONE]"
_LINE = b"data: "

log = structlog.get_logger(__name__)


def merge(body: bytes, dialect: Dialect | None) -> tuple[Any, str]:
    """The response in the server-sent events of `body`, the list of its events if they cannot be merged; and what is
    wrong with it."""
    events = _events(body)
    found, error = _merged(events, dialect)
    if found is not None:
        return found, error
    # One bad event (a cut end, a comment of a proxy as data) must not cost the others.
    whole = [event for event in events if parsed(event) is not None]
    if len(whole) < len(events):
        found, error = _merged(whole, dialect)
        if found is not None:
            return found, error or f"{len(events) - len(whole)} events that are no JSON"
    return [msgspec.Raw(event) for event in whole], error


def _merged(events: list[bytes], dialect: Dialect | None) -> tuple[Any, str]:
    """The response, or None; what is wrong with it, or why there is none."""
    if dialect is None:
        return None, ""
    try:
        return dialect.merge(events)
    except DECODE_ERRORS as error:
        return None, f"a stream that cannot be merged: {error}"
    except Exception as error:
        # A bug of ours in one dialect must not cost the answer. Its message may quote what is not redacted yet.
        log.error("stream_not_merged", error=type(error).__name__, where=traceback.format_tb(error.__traceback__)[-1])
        return None, f"a stream that cannot be merged: {type(error).__name__}"


def _events(body: bytes) -> list[bytes]:
    """The data of each event, but for the end mark and for data that is no object."""
    if b"\r\n" in body:
        body = body.replace(b"\r\n", b"\n")
    if body.startswith(_LINE):
        # As vLLM writes them: one line of data an event and nothing else. Most of the time goes into the others.
        lines = body[len(_LINE) :].split(b"\n\n" + _LINE)
        if body.count(b"\n") == 2 * len(lines) and body.endswith(b"\n\n"):
            lines[-1] = lines[-1][:-2]
            return [line for line in lines if line and line != _DONE]
    events: list[bytes] = []
    for block in body.split(b"\n\n"):
        if block.startswith(b"data:") and b"\n" not in block:
            data = block[5:].strip()
        else:
            lines = (line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
            data = b"\n".join(lines).strip()
        if data and data != _DONE:
            events.append(data)
    return events
