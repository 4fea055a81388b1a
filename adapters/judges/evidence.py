"""What a trajectory's text gives away: which calls were made, what failed, which values each result held.

The rules judge builds on this; nothing here knows any environment. Tools are assumed to speak JSON or lines of text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from actors.messages import Step
from actors.ports.answers import ParsedCall

_FAILED_WORDS = frozenset({"error", "failed", "failure", "fail", "denied", "refused", "unauthorized", "forbidden"})
_ERROR_KEYS = ("error", "errors", "exception", "error_message", "errorMessage", "traceback")
_STATUS_KEYS = ("status", "status_code", "statusCode", "http_status", "code")
_ERROR_TEXT = re.compile(
    r"""
      ^\s*Traceback\ \(most\ recent\ call\ last\)      # Python
    | ^\s*(?:[\w.]+\.)?\w*(?:Error|Exception)\b\s*:     # ValueError: ..., java.lang.Exception: ...
    | ^\s*(?:error|fatal|failed)\b\s*[:!]               # error: ...
    | \bHTTP(?:/\d(?:\.\d)?)?\s+[45]\d\d\b              # HTTP/1.1 404
    | ^\s*[45]\d\d\s+[A-Z][a-z]+                        # 404 Not Found
    | \bstatus(?:\s+code)?\s*[:=]?\s*[45]\d\d\b         # status code 503
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_WORD = re.compile(r"[\w@+-]+(?:[.:/][\w@+-]+)*")
_JOINT = re.compile(r"[.:/]")
_EMPTY_WORDS = frozenset(
    {"ok", "yes", "no", "none", "null", "nil", "true", "false", "done", "success", "on", "off", "n/a"}
)
"""Values that say how it went, not what was found: finding one in a later call shows nothing."""


def values_of(call: ParsedCall) -> set[str]:
    """The informative values among the arguments."""
    return set(_informative(call.arguments))


def documents(observation: str) -> list[Any]:
    """The results in an observation: one JSON value, one JSON value a line (parallel calls), or the text itself."""
    text = observation.strip()
    if not text or text == "{}":
        return []
    for parts in ([text], text.splitlines()):
        try:
            return [json.loads(part) for part in parts if part.strip()]
        except (ValueError, RecursionError):
            continue
    return [text]


def failed(document: Any) -> bool:
    """Whether a result says that the call failed.

    Counted as failures: an error member that is not empty, `isError`, `success: false`, a status that is a 4xx or 5xx
    or a word for failure, and text that looks like a traceback, an exception or an HTTP failure.
    """
    if isinstance(document, str):
        return _ERROR_TEXT.search(document) is not None
    if not isinstance(document, dict):
        return False
    if any(document.get(key) for key in _ERROR_KEYS) or document.get("isError") is True:
        return True
    if document.get("success") is False or document.get("ok") is False:
        return True
    for key in _STATUS_KEYS:
        value = document.get(key)
        if isinstance(value, str) and value.lower() in _FAILED_WORDS:
            return True
        number = int(value) if isinstance(value, str) and value.isdigit() else value
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
            return True
    return False


def failures(step: Step) -> tuple[int, int]:
    """(results that are failures, results) of `step`'s observation."""
    results = documents(step.observation)
    return sum(map(failed, results)), len(results)


def found_values(observation: str) -> set[str]:
    """The informative values that an observation holds: JSON leaves, and single words of any text."""
    values = set(_informative(documents(observation)))
    return values | {word for value in values for word in words(value)}


def words(text: str) -> set[str]:
    """Words of `text` that could be values: names, ids, numbers, dates, addresses."""
    found = _WORD.findall(text)
    parts = [part for word in found for part in _JOINT.split(word)]
    return {word for word in (*found, *parts) if _telling(word)}


def _informative(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for member in value.values():
            yield from _informative(member)
    elif isinstance(value, list):
        for member in value:
            yield from _informative(member)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        # Small numbers are counts and flags; they coincide by chance.
        if not isinstance(value, int) or abs(value) >= 10:
            yield str(value)
    elif isinstance(value, str) and _telling(value):
        yield value


def _telling(text: str) -> bool:
    return len(text) >= 2 and text.lower() not in _EMPTY_WORDS
