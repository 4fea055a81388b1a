"""A streamed response, merged into the object that the same call without `stream` would have given."""

import re
import traceback
from typing import Any

import msgspec
import structlog

from actors.dialects import Dialect, parsed
from actors.dialects.conversation import DECODE_ERRORS

_DATA = re.compile(rb"^data:(.*)$", re.MULTILINE)

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
    """The data of each event that has some, but for the end mark."""
    body = body.replace(b"\r\n", b"\n").rstrip()
    events = body.removeprefix(b"data:").split(b"\n\ndata:")
    if not body.startswith(b"data:") or body.count(b"\n") != 2 * len(events) - 2:
        # Not as vLLM writes them: one line of data an event, and nothing else.
        events = [b"\n".join(_DATA.findall(block)) for block in body.split(b"\n\n")]
    return [data for data in map(bytes.strip, events) if data and data != b"[DONE]"]
