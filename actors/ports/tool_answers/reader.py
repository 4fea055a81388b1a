"""THE reader of tool answers: did the call fail? Monitors, canary, experience, judges and tasks ask it.

Tools have no common form for a mistake: an agent's wrong call is answered like any other. There are customs, though,
of APIs, MCP servers, agent frameworks, languages' runtimes and shells. Objects are read here: a member `error` that is
not empty, `success: false`, `isError` (MCP), a status of 400 or more (RFC 9457 problem details), `errors` beside no
`data` (GraphQL, JSON:API), `__type` (AWS), Google's, Stripe's, Slack's and Kubernetes' objects, exit codes; wrappers
around another answer are opened, and of results by item all must have failed. Words are read by `texts`. What follows
no custom did not fail. Read is the answer alone: not the tool, not the arguments, not what the agent made of it.

Never raises; bounded in time whatever comes: JSON of up to `_JSON` characters is decoded, of anything else the two
ends are read.
"""

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec

from actors.ports.tool_answers.texts import NO, says_failed

_JSON = 2_000_000
"""Characters of JSON that are decoded: what is longer is data, and its beginning says what it is."""
_LITERAL = 20_000
"""Characters of what could be a Python literal: `str(dict)` is how many tools answer."""
_LINES = 64
"""Results, a line each, that one observation may hold."""
_DEPTH = 6
"""Wrappers within wrappers that are opened."""
_ITEMS = 200
"""Results of a list that are read."""
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_CUT_BAD = re.compile(
    r"[\[{]\s*\"(?:(?:error|errors|exception|error_message)\"\s*:\s*(?:\"[^\"]|\{\s*\"|\[\s*[\"{]|true|[1-9])"
    r"|(?:success|ok)\"\s*:\s*false|is_?[eE]rror\"\s*:\s*true)"
)
"""The beginning of a cut-off object whose first member says that the call failed."""
_FLAG = "[the call failed] "
_EMPTY = frozenset({"", "null", "None", "undefined", "nil", '""', "''"})

_ERROR_KEY = re.compile(
    r"(?:(?:is|has)?errors?|errored)$|(?:err|error|exception|fault|failure)"
    r"(?:s|code|codes|number|no|message|messages|msg|summary|description|detail|details|info|type|name|text|reason|reasons|"
    r"key|cause|causes|title|body|string|response|list)?$|traceback$|stacktrace$|exceptions$|"
    r"(?:validation|field|form|nonfield|request|input|api|parameter)errors?$|modelstate$|violations$|invalidparams$|"
    r"(?:fehler|fehlermeldung|erreurs?|errore|errori|erros?|fout|foutmelding|fel|feil|fejl|błąd|hata|chyba|ошибка)$"
)
"""Members that hold what went wrong, in lower case without separators."""
_SEVERAL = re.compile(r"(?:errors|errordetails|errorlist|failures|exceptions|(?!has)\w{3,20}errors)$")
"""Those that may stand beside what went well."""
_FALSE_IS_BAD = frozenset({"success", "ok", "succeeded", "successful", "issuccess", "issuccessful", "acknowledged"})
_NOT_DONE = frozenset(
    {"accepted", "applied", "booked", "cancelled", "canceled", "charged", "completed", "created", "done", "executed",
     "handled", "performed", "placed", "processed", "refunded", "saved", "sent", "submitted"}
)  # fmt: skip
"""Members by which a call says that it did not do what it was to do, if they are false and a reason stands beside."""
_STATUS = ("cod", "status", "statuscode", "httpstatus", "httpstatuscode", "httpcode", "responsecode")
_ENDED = ("result", "outcome")
_CODES = ("ret", "retcode", "resultcode")
_WORDS = frozenset(
    {"error", "failed", "failure", "fail", "denied", "unauthorized", "unauthenticated", "forbidden", "timeout",
     "exception", "notfound", "permissiondenied", "invalidargument", "badrequest", "internalerror", "fatal",
     "nok", "rejected", "declined", "refused", "aborted"}
)  # fmt: skip
"""Values of a status that say failure, in lower case without separators."""
_GOOD = frozenset({"", "0", "ok", "success", "none", "null", "nil", "false", "noerror", "noerrors", "00000", "n/a"})
_EXITS = ("exitcode", "exitstatus", "returncode")
_SAYS = ("message", "msg", "errmsg", "detail", "details", "title", "reason", "description", "text", "info")
_TELLING = frozenset(
    {*_SAYS, "code", "id", "type", "status", "requestid", "documentationurl", "moreinfo", "instance", "timestamp",
     "path", "link", "helpurl", "traceid", "name", "hint"}
)  # fmt: skip
"""Members of an object that does nothing but tell something."""
_BESIDE_ERRORS = frozenset({*_TELLING, "extensions", "locations", "jsonapi", "meta", "links"})
"""Members beside errors that are no data."""
_COMPLAINT = frozenset({*_SAYS, "code", "type", "field", "path", "source", "parameter", "loc", "location"}) - {"text"}
"""Members of one complaint in a list of them."""
_PARTS = ("text", "output_text", "input_text")
_WRAPPERS = (
    "content", "result", "output", "returnvalue", "toolresult", "structuredcontent", "response", "data", "text",
    "value", "contents", "body", "stdout", "observation", "answer", "reply",
)  # fmt: skip
_BESIDE = frozenset(
    {"tooluseid", "toolcallid", "id", "status", "type", "meta", "iserror", "role", "name", "isfinal", "annotations",
     "statuscode", "headers"}
)  # fmt: skip
"""Members that a wrapper may have beside what it wraps."""
_ERROR_NAME = re.compile(
    r"(?:^|[a-z#.])(?:Error|Exception|Fault)(?::|$)|^[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+$|^E[A-Z]{4,12}$"
)
"""`FooError`, `NOT_FOUND`, `ECONNREFUSED`."""
_SEPARATORS = re.compile(r"[_\-. $@]")

Members = Mapping[str, Any]
"""Of an object, by their names in lower case without separators."""


def failed(answer: Any) -> bool:
    """Whether `answer` (text, bytes, content parts or any decoded JSON value) says that the call failed, or every
    result in it does; what says nothing, and what failed in part, did not."""
    if isinstance(answer, bytes | bytearray | memoryview):
        answer = bytes(answer[: 4 * _JSON]).decode("utf-8", "replace")
    try:
        return _failed(answer, 0)
    except RecursionError:
        return False


def flagged(text: str, error: bool) -> str:
    """`text` of an answer that came with a flag for failure (MCP's `isError`, Anthropic's `is_error`), which is kept as
    words where the text itself does not say so: what is passed on is the text."""
    return text if not error or failed(text) else _FLAG + text


def parsed(text: str) -> Any:
    """`text` as JSON, or itself if it is none."""
    found = _decoded(text)
    return found[0] if found else text


def documents(observation: str) -> list[Any]:
    """The results in an observation: one JSON value, one JSON value a line (parallel calls), or the text itself."""
    text = observation.strip()
    if not text or text == "{}":
        return []
    whole = _decoded(text)
    if whole:
        return whole
    lines = [line for line in text.splitlines() if line.strip()] if len(text) <= _JSON else []
    if 1 < len(lines) <= _LINES and all(line.lstrip()[0] in "{[" for line in lines):
        values = [_decoded(line) for line in lines]
        if all(values):
            return [value[0] for value in values]
    return [text]


def _decoded(text: str) -> list[Any]:
    """The JSON value in `text`; none if there is none."""
    try:
        return [msgspec.json.decode(text)] if len(text) <= _JSON else []
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []


def _failed(answer: Any, depth: int) -> bool:
    if depth > _DEPTH:
        return False
    if isinstance(answer, str):
        return _text(answer[: _JSON + 1].strip(), depth)
    if isinstance(answer, Mapping):
        return _object(answer, depth)
    return isinstance(answer, list) and _list(answer, depth)


def _text(text: str, depth: int) -> bool:
    """A text, which may be JSON, a line of it for each call, a Python literal, or a fence around it."""
    if text in _EMPTY or text.startswith(_FLAG.strip()):
        return text not in _EMPTY
    if text[0] in '{["':
        results = documents(text)
        if results != [text]:
            return bool(results) and all(_failed(result, depth + 1) for result in results)
        value = _literal(text)
        if value:
            return _failed(value, depth + 1)
        if text[0] == "{" or text[:2] in ("[{", '["'):
            return _CUT_BAD.match(text[:400]) is not None
    fenced = _FENCE.match(text[:_LITERAL])
    if fenced and fenced.end() >= len(text) - 1 and (inner := _decoded(fenced.group(1))):
        return _failed(inner[0], depth + 1)
    return says_failed(text)


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


def _object(answer: Mapping[Any, Any], depth: int) -> bool:
    members = _members(answer)
    # AWS names the shape of an error by `__type`, and of nothing else.
    if _undone(members) or isinstance(answer.get("__type"), str):
        return True
    held = {**_members(beside), **members} if isinstance(beside := answer.get("metadata"), Mapping) else members
    code = next((held[key] for key in _EXITS if _is_number(held.get(key))), None)
    if code is not None and len(members) <= 12 and (code != NO or members.get("stderr")):
        return code != 0
    fine = any(members.get(key) is True for key in _FALSE_IS_BAD)
    kind = members.get("type", members.get("object"))
    whole = isinstance(kind, str) and _plain(kind).removesuffix("list").endswith(("error", "exception"))
    wrong = _errors(members)
    if whole or wrong:
        return not fine and (whole or not all(map(_SEVERAL.match, wrong)) or not _holds_data(members, depth))
    status = _status(members)
    if status is not None or fine:
        return bool(status)
    wrapped = _wrapped(members)
    if wrapped is not None:
        return _failed(wrapped, depth + 1)
    return _by_item(members, depth) or _told(members, depth)


def _members(answer: Mapping[Any, Any]) -> Members:
    return {_SEPARATORS.sub("", str(key)[:64]).lower(): member for key, member in answer.items()}


def _undone(members: Members) -> bool:
    """Whether a flag says that it did not succeed."""
    why = any(isinstance(members.get(key), str) and members[key] for key in (*_SAYS, "why", "cause", "note"))
    for key in members.keys() & _FALSE_IS_BAD:
        value = members[key]
        if value is False or (why and value == 0) or (isinstance(value, str) and value.lower() == "false"):
            return True
    undone = any(members[key] is False for key in members.keys() & _NOT_DONE)
    return undone and why and len(members) <= 4


def _errors(members: Members) -> list[str]:
    """The members that say that something went wrong; a record with a state of its own tells of its own failure."""
    record = "id" in members and len(members) > 4
    return [
        key for key, value in members.items()
        if (value is True if key == "failed" else _ERROR_KEY.match(key) and _is_wrong(value))
        and not (record and key.startswith("failure"))
    ]  # fmt: skip


def _is_wrong(value: Any) -> bool:
    """Whether the value of a member for errors says that there was one."""
    if isinstance(value, str):
        return _plain(value) not in _GOOD
    if isinstance(value, Mapping):
        count = value.get("count", value.get("total"))
        return count > 0 if _is_number(count) else any(map(_is_wrong, value.values()))
    return any(map(_is_wrong, value)) if isinstance(value, list) else bool(value)


def _status(members: Members) -> bool | None:
    """What status, code or type say; None if nothing."""
    most = 1000 if {"title", "type"} <= members.keys() else 600
    if any(400 <= (_number(members.get(key)) or 0) < most for key in _STATUS):
        return True
    bad = [key for key in (*_STATUS, *_ENDED) if isinstance(said := members.get(key), str) and _plain(said) in _WORDS]
    if bad:  # but for a thing that has a state of its own
        return bad[-1] in _ENDED or not ("id" in members and len(members) > 4)
    if any(_is_number(members.get(key)) and members[key] for key in _CODES):
        return True
    code = members.get("code")
    told = next((members[key] for key in _SAYS[:4] if isinstance(members.get(key), str)), None)
    if isinstance(code, str) and _ERROR_NAME.search(code) and (told is not None or len(members) == 1):
        return True
    number = _number(code)
    if not number or 200 <= number < 300:
        return None
    return (len(members) == 1 and 400 <= number < 600 if told is None else _plain(told) not in _GOOD) or None


def _holds_data(members: Members, depth: int) -> bool:
    """Whether something was returned beside the errors; of Elasticsearch's bulk, whether some items went well."""
    if members.get("errors") is True:
        items = members.get("items")
        return isinstance(items, list) and bool(items) and not _list(items, depth)
    for key, value in members.items():
        if key.startswith(("err", "exception", "fault", "cause")) or key in _BESIDE_ERRORS:
            continue
        if key == "data" and isinstance(value, Mapping):
            value = [member for member in value.values() if member is not None]
        if isinstance(value, list | Mapping) and value:
            return True
    return False


def _wrapped(members: Members) -> Any:
    """What an object holds that only wraps another answer; None if it does not."""
    for key in _WRAPPERS:
        if key in members and all(other == key or other in _BESIDE or other in _WRAPPERS for other in members):
            value = members[key]
            if isinstance(value, str | list | Mapping) and value:
                return value
    return None


def _by_item(members: Members, depth: int) -> bool:
    """Whether lists of results, or the counts of them, say that all failed."""
    lists = [key for key, value in members.items() if isinstance(value, list) and value]
    if any(map(_size, map(members.get, ("failed", "failures", "errorcount")))):
        good = any(map(_size, map(members.get, ("succeeded", "successful", "updated", "deleted"))))
        others = set(lists) - {"failed", "failures", "errordetails", "nodefailures", "taskfailures"}
        counted = "succeeded" in members or "successful" in members
        return counted and not good and not others and len(members) <= 6
    if len(lists) != 1 or len(members) > 4:
        return False
    (key,) = lists
    return (key in ("results", "items", "responses") or len(members) == 1) and _list(members[key], depth + 1)


def _told(members: Members, depth: int) -> bool:
    """Whether an object that holds nothing else says so in words; and complaints about fields."""
    if members.keys() <= _TELLING and len(members) <= 6:
        for key in _SAYS:
            told = members.get(key)
            if isinstance(told, list) and told and all(isinstance(item, Mapping) and "msg" in item for item in told):
                return True
            if isinstance(told, str) and _failed(told, depth + 1):
                return True
    if not 0 < len(members) <= 12 or not all(isinstance(value, list) and value for value in members.values()):
        return False
    said = [item for value in members.values() for item in value][:20]
    return all(isinstance(item, str) and len(item) < 200 and _failed(item, depth + 1) for item in said)


def _list(answer: list[Any], depth: int) -> bool:
    """Whether parts of one answer say so together, or every result of a list does."""
    items = answer[:_ITEMS]
    if items and all(isinstance(part, Mapping) and part.get("type") in _PARTS for part in answer):
        return _failed("\n".join(str(part.get("text", "")) for part in items), depth)
    return bool(items) and all(isinstance(item, Mapping) and _item(_members(item), depth) for item in items)


def _item(members: Members, depth: int) -> bool:
    """Whether an item of a list is the result of something that failed, not a record that tells of a failure."""
    if len(members) == 1 and isinstance(inner := next(iter(members.values())), Mapping):
        return _is_wrong(inner.get("error"))
    kind = members.get("type")
    if _undone(members) or (isinstance(kind, str) and _plain(kind) == "error"):
        return True
    if members.keys() <= _COMPLAINT and len(members) >= 2:
        return any(isinstance(told, str) and _failed(told, depth + 1) for told in members.values())
    record = members.keys() & {"timestamp", "level", "severity", "createdat"}
    return bool(_errors(members)) and not record and len(members) <= 8


def _size(value: Any) -> int:
    if isinstance(value, list | Mapping):
        return len(value)
    return max(value, 0) if _is_number(value) else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> int | None:
    """The whole number that `value` is or spells."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if len(value) < 12 and digits.isascii() and digits.isdigit() else None
    return value if _is_number(value) else None


def _plain(text: str) -> str:
    return _SEPARATORS.sub("", text[:64]).strip().lower()
