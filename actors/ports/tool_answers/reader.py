"""THE reader of tool answers: ok, failed or unknown. Monitors, canary, experience, judges and tasks ask it.

Tools have no common form for a mistake: an agent's wrong call is answered like any other. There are customs, though,
of APIs, MCP servers, agent frameworks, languages' runtimes and shells; `objects` and `texts` know them. What follows
none of them is ok. Read is the answer alone: not the tool, not the arguments, not what the agent made of it.

Never raises; bounded in time whatever comes: JSON of up to `_JSON` characters is decoded, of anything else the two
ends are read.
"""

import ast
import re
import warnings
from typing import Any

import msgspec

from actors.ports.tool_answers.objects import Verdict, read_object
from actors.ports.tool_answers.texts import says_failed, unclear

_JSON = 2_000_000
"""Characters of JSON that are decoded: what is longer is data, and its beginning says what it is."""
_LITERAL = 20_000
"""Characters of what could be a Python literal: `str(dict)` is how many tools answer."""
_LINES = 64
"""Results, a line each, that one observation may hold."""
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_CUT_BAD = re.compile(
    r"[\[{]\s*\"(?:(?:error|errors|exception|error_message)\"\s*:\s*(?:\"[^\"]|\{\s*\"|\[\s*[\"{]|true|[1-9])"
    r"|(?:success|ok)\"\s*:\s*false|is_?[eE]rror\"\s*:\s*true)"
)
"""The beginning of a cut-off object whose first member says that the call failed."""
_FLAG = "[the call failed] "
_EMPTY = frozenset({"null", "None", "undefined", "nil", '""', "''"})


def read(answer: Any) -> Verdict:
    """How the call went that was answered with `answer`: text, bytes, content parts or any decoded JSON value."""
    if isinstance(answer, bytes | bytearray | memoryview):
        answer = bytes(answer[: 4 * _JSON]).decode("utf-8", "replace")
    try:
        return _text(answer) if isinstance(answer, str) else read_object(answer, _text)
    except RecursionError:
        return "unknown"


def failed(answer: Any) -> bool:
    """Whether `answer` says that the call failed, or every result in it does."""
    return read(answer) == "failed"


def flagged(text: str, error: bool) -> str:
    """`text` of an answer that came with a flag for failure (MCP's `isError`, Anthropic's `is_error`), which is kept as
    words where the text itself does not say so: what is passed on is the text."""
    return text if not error or failed(text) else _FLAG + text


def parsed(text: str) -> Any:
    """`text` as JSON, or itself if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text


def documents(observation: str) -> list[Any]:
    """The results in an observation: one JSON value, one JSON value a line (parallel calls), or the text itself."""
    text = observation.strip()
    if not text or text == "{}":
        return []
    whole = _decoded(text)
    if whole is not None:
        return whole
    lines = [line for line in text.splitlines() if line.strip()] if len(text) <= _JSON else []
    if 1 < len(lines) <= _LINES and all(line.lstrip()[0] in "{[" for line in lines):
        values = [_decoded(line) for line in lines]
        if all(value is not None for value in values):
            return [value[0] for value in values if value]
    return [text]


def _text(text: str) -> Verdict:
    """How the call went that was answered with `text`, JSON or words."""
    stripped = text[: _JSON + 1].strip()
    if not stripped:
        return "unknown"
    if stripped.startswith(_FLAG.strip()):
        return "failed"
    if stripped in _EMPTY:
        return "unknown"
    results = documents(stripped) if stripped[0] in '{["' else [stripped]
    if len(results) > 1:
        bad = sum(read_object(result, _words) == "failed" for result in results)
        if not bad:
            return "ok"
        return "failed" if bad == len(results) else "unknown"
    if not results:
        return "unknown"
    if not isinstance(results[0], str):
        return read_object(results[0], _inner)
    return _words(results[0])


def _inner(text: str) -> Verdict:
    """A text inside of JSON, which may be JSON again (MCP's content parts)."""
    stripped = text[: _JSON + 1].strip()
    again = _decoded(stripped) if stripped[:1] in ("{", "[") else None
    return read_object(again[0], _words, 1) if again else _words(stripped)


def _words(text: str) -> Verdict:
    stripped = text.strip()
    if not stripped:
        return "unknown"
    if stripped[0] in "{[":
        value = _literal(stripped)
        if value is not None:
            return read_object(value, _said)
        if stripped[0] == "{" or stripped[:2] in ("[{", '["'):
            if _CUT_BAD.match(stripped[:400]):
                return "failed"
            return "unknown" if stripped[-1] not in "}]" else "ok"
    fenced = _FENCE.match(stripped[:_LITERAL])
    if fenced and fenced.end() >= len(stripped) - 1:
        value = _decoded(fenced.group(1))
        if value:
            return read_object(value[0], _said)
    return _said(stripped)


def _said(text: str) -> Verdict:
    if says_failed(text):
        return "failed"
    return "unknown" if unclear(text) else "ok"


def _decoded(text: str) -> list[Any] | None:
    """The JSON value in `text` in a list, None if there is none."""
    if len(text) > _JSON:
        return None
    try:
        return [msgspec.json.decode(text)]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _literal(text: str) -> Any:
    """The value of a Python literal, `str(dict)`; None if it is none."""
    if len(text) > _LITERAL or text[-1] not in "}]" or text.count("{") + text.count("[") > 400:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that are none: it is an answer, not our source
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
