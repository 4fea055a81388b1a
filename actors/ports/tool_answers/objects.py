"""Whether a JSON answer tells that the call failed: members that say so, wrappers around the answer, results by item.

Read are the shapes of error objects in use: a member `error` that is not empty, `success: false`, `isError` (MCP), a
status of 400 or more (RFC 9457 problem details), `errors` beside no `data` (GraphQL, JSON:API), `__type` (AWS),
Google's, Stripe's, Slack's and Kubernetes' objects, exit codes, and messages in words. What only has a member that
mentions errors is data.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from actors.ports.tool_answers.texts import NO

Verdict = Literal["ok", "failed", "unknown"]


_DEPTH = 4
"""Wrappers within wrappers that are opened."""
_ITEMS = 200
"""Results of a list that are read."""
_ERROR_KEY = re.compile(
    r"(?:err|error|exception|fault|failure)"
    r"(?:s|code|codes|number|no|message|messages|msg|summary|description|detail|details|info|type|name|text|reason|reasons|"
    r"key|cause|causes|title|body|string|response|list)?$|traceback$|stacktrace$|exceptions$|"
    r"(?:validation|field|form|nonfield|request|input|api|parameter)errors?$|modelstate$|violations$|invalidparams$|"
    r"(?:fehler|fehlermeldung|erreurs?|errore|errori|erros?|fout|foutmelding|fel|feil|fejl|błąd|hata|chyba|ошибка)$"
)
"""Members that hold what went wrong, in lower case without separators."""
_SEVERAL = re.compile(r"(?:errors|errordetails|errorlist|failures|exceptions|\w{3,20}errors)$")
"""Those that may stand beside what went well."""
_TRUE_IS_BAD = frozenset({"iserror", "haserror", "haserrors", "error", "errors", "failed", "failure", "errored"})
_FALSE_IS_BAD = frozenset({"success", "ok", "succeeded", "successful", "issuccess", "issuccessful", "acknowledged"})
_NOT_DONE = frozenset(
    {"accepted", "applied", "booked", "cancelled", "canceled", "charged", "completed", "created", "done", "executed",
     "handled", "performed", "placed", "processed", "refunded", "saved", "sent", "submitted"}
)  # fmt: skip
"""Members by which a call says that it did not do what it was to do, if they are false and a reason stands beside."""
_STATUS = ("cod", "status", "statuscode", "httpstatus", "httpstatuscode", "httpcode", "responsecode")
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
_COMPLAINT = frozenset({*_SAYS, "code", "type", "field", "path", "source", "parameter", "loc", "location"}) - {"text"}
"""Members of one complaint in a list of them."""
_WRAPPERS = (
    "content", "result", "output", "returnvalue", "toolresult", "structuredcontent", "response", "data", "text",
    "value", "contents", "body", "stdout", "observation",
)  # fmt: skip
_BESIDE = frozenset(
    {"tooluseid", "toolcallid", "id", "status", "type", "meta", "iserror", "role", "name", "isfinal", "annotations"}
)
"""Members that a wrapper may have beside what it wraps."""
_ERROR_NAME = re.compile(
    r"(?:^|[a-z#.])(?:Error|Exception|Fault)(?::|$)|^[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+$|^E[A-Z]{4,12}$"
)
"""`FooError`, `NOT_FOUND`, `ECONNREFUSED`."""
_SEPARATORS = re.compile(r"[_\-. $@]")


def read_object(value: Any, text: Callable[[str], Verdict], depth: int = 0) -> Verdict:
    """How the call went that was answered with `value`, a decoded JSON value; `text` reads what stands in words."""
    if depth > _DEPTH:
        return "ok"
    if isinstance(value, str):
        return text(value)
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return _mapping(value, text, depth) if value else "unknown"
    if isinstance(value, list):
        return _list(value, text, depth)
    return "ok"


def _mapping(answer: Mapping[Any, Any], text: Callable[[str], Verdict], depth: int) -> Verdict:
    members = {_SEPARATORS.sub("", str(key)[:64]).lower(): member for key, member in answer.items()}
    if _flags(members):
        return "failed"
    if isinstance(answer.get("__type"), str):  # AWS names the shape of an error, and of nothing else
        return "failed"
    code = next((members[key] for key in _EXITS if _is_number(members.get(key))), None)
    if code is not None and len(members) <= 12:
        if code == NO and not members.get("stderr"):
            return "unknown"
        return "failed" if code else "ok"
    error, whole = _error(members)
    if error:
        partly = not whole and _holds_data(members)
        partly = partly or any(members.get(key) is True for key in _FALSE_IS_BAD)
        return "unknown" if partly else "failed"
    status = _status(members)
    if status is not None:
        return status
    if any(members.get(key) is True for key in _FALSE_IS_BAD):
        return "unknown" if _some_failed(members) else "ok"
    wrapped = _wrapped(members)
    if wrapped is not None:
        return read_object(wrapped, text, depth + 1)
    return _by_item(members, text, depth) or _told(members, text) or "ok"


def _flags(members: Mapping[str, Any]) -> bool:
    for key in sorted(members.keys() & _TRUE_IS_BAD):
        if members[key] is True and not (key == "errors" and _mixed(members)):
            return True
    why = any(isinstance(members.get(key), str) and members[key] for key in (*_SAYS, "why", "cause", "note"))
    for key in sorted(members.keys() & _FALSE_IS_BAD):
        value = members[key]
        if value is False or (why and value == 0) or (isinstance(value, str) and value.lower() == "false"):
            return True
    for key in sorted(members.keys() & _NOT_DONE):
        if members[key] is False and why and len(members) <= 4:
            return True
    return members.get("response") == "False"


def _error(members: Mapping[str, Any]) -> tuple[bool, bool]:
    """(whether a member for errors holds one, whether it speaks of the call as a whole)"""
    kind = members.get("type", members.get("object"))
    if isinstance(kind, str) and _plain(kind).removesuffix("list").endswith(("error", "exception")):
        return True, True
    wrong = [key for key, value in members.items() if _ERROR_KEY.match(key) and _is_wrong(value)]
    return bool(wrong), any(not _SEVERAL.match(key) for key in wrong)


def _is_wrong(value: Any) -> bool:
    """Whether the value of a member for errors says that there was one."""
    if isinstance(value, bool) or value is None:
        return value is True
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, str):
        return _plain(value) not in _GOOD
    if isinstance(value, Mapping):
        count = value.get("count", value.get("total"))
        return count > 0 if _is_number(count) else any(_is_wrong(member) for member in value.values())
    return any(_is_wrong(item) for item in value) if isinstance(value, list) else True


def _status(members: Mapping[str, Any]) -> Verdict | None:
    """What status, code or type say; None if nothing."""
    resource = "id" in members and len(members) > 4
    for key in _STATUS:
        value = members.get(key)
        number = _number(value)
        if number is not None and (400 <= number < 600 or (number >= 400 and {"title", "type"} <= members.keys())):
            return "failed"
        if isinstance(value, str) and _plain(value) in _WORDS:
            return "unknown" if resource else "failed"
    for key in ("result", "outcome"):
        value = members.get(key)
        if isinstance(value, str) and _plain(value) in _WORDS:
            return "failed"
    for key in ("errcode", "errno", "ret", "retcode", "resultcode"):
        if _is_number(members.get(key)) and members[key] != 0:
            return "failed"
    code = members.get("code")
    told = next((members[key] for key in _SAYS[:4] if isinstance(members.get(key), str)), None)
    if isinstance(code, str) and _ERROR_NAME.search(code) and (told is not None or len(members) == 1):
        return "failed"
    number = _number(code)
    if number is None or number == 0 or 200 <= number < 300:
        return None
    if told is None:
        return "failed" if len(members) == 1 and 400 <= number < 600 else None
    return "failed" if _plain(told) not in _GOOD else None


def _holds_data(members: Mapping[str, Any]) -> bool:
    """Whether something was returned beside the errors."""
    for key, value in members.items():
        if (
            key.startswith(("err", "exception", "fault", "cause"))
            or key in _TELLING
            or key in ("extensions", "locations", "jsonapi", "meta", "links")
        ):
            continue
        if key == "data" and isinstance(value, Mapping):
            if any(member is not None for member in value.values()):
                return True
        elif isinstance(value, list | Mapping) and value:
            return True
    return False


def _some_failed(members: Mapping[str, Any]) -> bool:
    return any(
        isinstance(members.get(key), list | Mapping) and members[key]
        for key in ("failed", "failures", "rejected", "notfound")
    ) or any(_is_number(members.get(key)) and members[key] > 0 for key in ("failed", "failedcount", "errorcount"))


def _mixed(members: Mapping[str, Any]) -> bool:
    """Whether `errors: true` stands over results by item, some of which went well (Elasticsearch's bulk)."""
    items = members.get("items")
    if not isinstance(items, list) or not items:
        return False
    wrong = sum("error" in str(item)[:2_000] for item in items[:_ITEMS])
    return 0 < wrong < min(len(items), _ITEMS)


def _wrapped(members: Mapping[str, Any]) -> Any:
    """What an object holds that only wraps another answer; None if it does not."""
    for key in _WRAPPERS:
        if key in members and all(other == key or other in _BESIDE or other in _WRAPPERS for other in members):
            value = members[key]
            if isinstance(value, str | list | Mapping) and value:
                return value
    return None


def _by_item(members: Mapping[str, Any], text: Callable[[str], Verdict], depth: int) -> Verdict | None:
    """What lists of results say: all failed, some, or none of them (None)."""
    count = {
        key: members.get(key)
        for key in ("failed", "failures", "errorcount", "succeeded", "successful", "updated", "deleted")
    }
    sizes = {key: _size(value) for key, value in count.items()}
    bad = sizes["failed"] + sizes["failures"] + sizes["errorcount"]
    good = sizes["succeeded"] + sizes["successful"] + sizes["updated"] + sizes["deleted"]
    lists = {key: value for key, value in members.items() if isinstance(value, list) and value}
    if bad:
        others = [
            key for key in lists if key not in ("failed", "failures", "errordetails", "nodefailures", "taskfailures")
        ]
        if good or others:
            return "unknown"
        return "failed" if len(members) <= 6 and ("succeeded" in members or "successful" in members) else None
    if len(lists) == 1 and len(members) <= 4:
        key, value = next(iter(lists.items()))
        if key in ("results", "items", "responses") or len(members) == 1:
            reading = _list(value, text, depth + 1)
            return reading if reading != "ok" else None
    return None


def _told(members: Mapping[str, Any], text: Callable[[str], Verdict]) -> Verdict | None:
    """What an object says in words that holds nothing else; and complaints about fields."""
    if members.keys() <= _TELLING and len(members) <= 6:
        for key in _SAYS:
            told = members.get(key)
            if isinstance(told, list) and told and all(isinstance(item, Mapping) and "msg" in item for item in told):
                return "failed"
            if isinstance(told, str):
                reading = text(told)
                if reading == "failed":
                    return reading
    if members and len(members) <= 12 and all(isinstance(value, list) and value for value in members.values()):
        told = [item for value in members.values() for item in value]
        if all(isinstance(item, str) and len(item) < 200 and text(item) == "failed" for item in told[:20]):
            return "failed"
    return None


def _list(answer: list[Any], text: Callable[[str], Verdict], depth: int) -> Verdict:
    """Parts of one answer, or results by item."""
    if answer and all(
        isinstance(part, Mapping) and part.get("type") in ("text", "output_text", "input_text") for part in answer
    ):
        said = "\n".join(str(part.get("text", "")) for part in answer[:_ITEMS])
        return text(said)
    if len(answer) == 2 and isinstance(answer[1], bool) and isinstance(answer[0], str | list):
        return "failed" if answer[1] else read_object(answer[0], text, depth + 1)
    objects = [item for item in answer[:_ITEMS] if isinstance(item, Mapping)]
    if not objects or len(objects) < min(len(answer), _ITEMS):
        return "ok"
    wrong = sum(_item_failed(item, text) for item in objects)
    if not wrong:
        return "ok"
    return "failed" if wrong == len(objects) else "unknown"


def _item_failed(item: Mapping[Any, Any], text: Callable[[str], Verdict]) -> bool:
    """Whether an item of a list is the result of something that failed, not a record that tells of a failure."""
    members = {_SEPARATORS.sub("", str(key)[:64]).lower(): member for key, member in item.items()}
    if len(members) == 1:
        inner = next(iter(members.values()))
        if isinstance(inner, Mapping):
            return _is_wrong(inner.get("error"))
    if _flags(members) or _kind(members) == "error":
        return True
    if members.keys() <= _COMPLAINT and len(members) >= 2:
        return any(isinstance(told, str) and text(told) == "failed" for told in members.values())
    record = "timestamp" in members or "level" in members or "severity" in members or "createdat" in members
    return (
        not record
        and len(members) <= 8
        and any(_is_wrong(members.get(key)) for key in ("error", "errors", "exception"))
    )


def _kind(members: Mapping[str, Any]) -> str:
    kind = members.get("type")
    return _plain(kind) if isinstance(kind, str) else ""


def _size(value: Any) -> int:
    if isinstance(value, list | Mapping):
        return len(value)
    return int(value) if _is_number(value) and value > 0 else 0


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
