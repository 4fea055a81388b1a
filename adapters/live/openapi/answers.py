"""An HTTP answer to what an agent is told: text and JSON, what is wrong with it."""

import email.utils
import math
import re
from typing import Any

import msgspec

from actors.ports.errors import LiveApiUnavailable
from adapters.live import CallResult
from adapters.live.openapi.plans import Plan
from adapters.live.openapi.transport import Answer
from adapters.live.validation import Checker

_AWAY = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses that say something about the server and nothing about the call."""
_CHARSET = re.compile(r"charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_LONGEST_WAIT = 86_400.0


def told(plan: Plan, answer: Answer, checkers: dict[str, Checker], now: float) -> CallResult:
    """
    Args:
        checkers: those of the plan's answers, made when first needed.
        now: Unix seconds, for a `Retry-After` that is a date.
    """
    if answer.status in _AWAY:
        after = retry_after(answer.headers.get("retry-after", ""), now)
        raise LiveApiUnavailable(f"{plan.operation.name}: status {answer.status}", after)
    structured, text = _read(answer)
    failed = not 200 <= answer.status < 300
    if 300 <= answer.status < 400:
        text = "the server redirects, which is not followed to another host" + (f"\n{text}" if text else "")
    mismatch = "" if answer.cut else _mismatch(plan, answer, structured, checkers)
    if failed:
        text = f"HTTP {answer.status}: {text}" if text else f"HTTP {answer.status}"
    return CallResult(
        text=text or f"HTTP {answer.status}, no content",
        structured=structured,
        error=failed,
        truncated=answer.cut,
        status=answer.status,
        mismatch=mismatch,
    )


def retry_after(value: str, now: float) -> float:
    """Seconds (RFC 9110, 10.2.3): a number or a date; 0 if it is neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else 0.0


def _read(answer: Answer) -> tuple[Any, str]:
    """(JSON or None, text)."""
    if not answer.data:
        return None, ""
    kind = answer.headers.get("content-type", "").lower()
    plain = kind.partition(";")[0].strip()
    if not answer.cut and (plain.endswith("json") or not plain):
        try:
            structured = msgspec.json.decode(answer.data)
            return structured, structured if isinstance(structured, str) else _decoded(answer.data, kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    if (
        plain
        and not plain.startswith("text/")
        and not plain.endswith(("json", "xml", "yaml", "javascript", "form-urlencoded"))
    ):
        return None, f"({plain[:80]}, {len(answer.data):,} bytes{' or more' if answer.cut else ''}: not shown)"
    return None, _decoded(answer.data, kind)


def _decoded(data: bytes, kind: str) -> str:
    charset = _CHARSET.search(kind)
    try:
        text = data.decode(charset[1] if charset else "utf-8", "replace")
    except (LookupError, UnicodeError):
        text = data.decode("utf-8", "replace")
    return text.replace("\0", "")


def _mismatch(plan: Plan, answer: Answer, structured: Any, checkers: dict[str, Checker]) -> str:
    """Where the answer is not what the document says; empty if it is, or the document does not say."""
    status = str(answer.status)
    key = next((key for key in (status, f"{status[0]}XX", "default") if key in plan.answers), "")
    if not key:
        return ""
    if structured is None and answer.data != b"null":
        return f"status {status}: JSON is described, something else came"
    checker = checkers.get(key)
    if checker is None:
        checker = checkers[key] = Checker(plan.answers[key])
    return "; ".join(checker.complaints(structured))[:500]
