"""Reads a document's operations into plans; one that cannot be offered is skipped, with its reason; the rest goes on.

    Document -> [(path, method)] -> Draft -> names -> Plan

Parameters of path, query, header and cookie and the fields of the body become the properties of one object: a chat API
takes nothing else. Where two have one name, the later is called after its place (`body_id`).
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from adapters.live import Operation
from adapters.live.openapi.document import DanglingReference, Document, RemoteReference
from adapters.live.openapi.naming import argument_name, tool_names
from adapters.live.openapi.plans import Body, Parameter, Place, Plan, Skipped, SkipReason
from adapters.live.openapi.schemas import BadSchema, Inliner
from adapters.live.openapi.settings import OpenApiSettings

_DEPTH = 12
"""Levels of a schema; what is deeper is described as anything."""
_METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
_SAFE = frozenset({"get", "head", "options"})
"""RFC 9110, 9.2.1."""
_FORM = "application/x-www-form-urlencoded"
_PLACES: tuple[Place, ...] = ("path", "query", "header", "cookie")
_STYLES = {
    "path": {"simple"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
    "cookie": {"form"},
}
_OURS = frozenset({"accept", "content-type", "authorization"})
"""Headers that a parameter cannot set (OpenAPI 3.1, 4.8.12.2)."""
_FLAT = frozenset({"type", "properties", "required", "title", "description", "default", "examples", "deprecated"})
_MAX_DESCRIPTION, _MAX_SCHEMA = 2000, 200_000


class _Unfit(Exception):
    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: SkipReason = reason


class _Draft(msgspec.Struct):
    """An operation before it has a name."""

    method: str
    path: str
    item: dict[str, Any]
    operation: dict[str, Any]


def read(document: Document, settings: OpenApiSettings, provided: frozenset[tuple[str, str]] = frozenset()) -> tuple[
    list[Plan], list[Skipped]
]:  # fmt: skip
    """The operations of `document` in its order, and what was left out.

    Args:
        provided: (place, name) of what authentication sends, which an agent has no say in.
    """
    drafts: list[_Draft] = []
    skipped: list[Skipped] = []
    for path, item in (document.root.get("paths") or {}).items():
        if str(path).startswith("x-"):
            continue
        try:
            drafts += _drafts(document, str(path), item)
        except (RemoteReference, DanglingReference, BadSchema, _Unfit) as error:
            skipped.append(_skipped(f"* {path}", error))
    for draft in drafts[settings.max_operations :]:
        skipped.append(_skipped(_where(draft), _Unfit("too_many", f"max_operations = {settings.max_operations}")))
    drafts = drafts[: settings.max_operations]
    names = tool_names([(_operation_id(draft), draft.method, draft.path) for draft in drafts])
    plans: list[Plan] = []
    for draft, name in zip(drafts, names, strict=True):
        wanted = any(fnmatchcase(name, pattern) for pattern in settings.include)
        if not wanted or any(fnmatchcase(name, pattern) for pattern in settings.exclude):
            continue
        try:
            plans.append(_plan(document, draft, name, settings, provided))
        except (RemoteReference, DanglingReference, BadSchema, _Unfit) as error:
            skipped.append(_skipped(_where(draft), error))
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
            # A document may be anything at any place: what stands where something else belongs is not worth a branch.
            skipped.append(Skipped(where=_where(draft), reason="malformed", detail=str(error)[:200]))
    return plans, skipped


def _where(draft: _Draft) -> str:
    return f"{draft.method.upper()} {draft.path}"[:300]


def _skipped(where: str, error: Exception) -> Skipped:
    if isinstance(error, _Unfit):
        return Skipped(where=where, reason=error.reason, detail=str(error)[:200])
    reason: SkipReason = "dangling_reference"
    if isinstance(error, RemoteReference):
        reason = "remote_reference"
    elif isinstance(error, BadSchema):
        reason = "bad_schema"
    return Skipped(where=where, reason=reason, detail=str(error)[:200])


def _operation_id(draft: _Draft) -> str:
    found = draft.operation.get("operationId")
    return found if isinstance(found, str) else ""


def _drafts(document: Document, path: str, item: Any) -> list[_Draft]:
    if not path.startswith("/"):
        raise _Unfit("malformed", "a path starts with /")
    found = document.at(item)
    drafts: list[_Draft] = []
    for method in _METHODS:
        if isinstance(found.get(method), dict):
            drafts.append(_Draft(method, path, found, found[method]))
    return drafts


def _plan(
    document: Document, draft: _Draft, name: str, settings: OpenApiSettings, provided: frozenset[tuple[str, str]]
) -> Plan:
    operation = draft.operation
    if operation.get("servers") or draft.item.get("servers"):
        raise _Unfit("other_server", "it has servers of its own; register them as an API of their own")
    inliner = Inliner(document, _DEPTH)
    properties: dict[str, Any] = {}
    required: list[str] = []
    parameters: list[Parameter] = []
    for place, found in _declared(document, draft):
        if (place, found["name"].lower() if place == "header" else found["name"]) in provided:
            continue
        parameter, schema = _parameter(inliner, place, found, properties)
        parameters.append(parameter)
        properties[parameter.argument] = schema
        if found.get("required") is True or place == "path":
            required.append(parameter.argument)
    body = _body(document, inliner, draft, parameters, properties, required)
    answers = _answers(document, inliner, operation)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    returns = next((answers[key] for key in sorted(answers) if key.startswith("2")), None)
    _checked(schema)
    return Plan(
        operation=Operation(
            name=name,
            title=_title(draft, name),
            description=_description(draft, inliner.cut),
            parameters=schema,
            returns=returns,
            claims_read_only=draft.method in _SAFE,
            tags=tuple(str(tag)[:100] for tag in operation.get("tags") or ())[:10],
        ),
        method=draft.method.upper(),
        path=draft.path,
        parameters=tuple(parameters),
        body=body,
        security=_security(document, operation),
        answers=answers,
    )


def _declared(document: Document, draft: _Draft) -> list[tuple[Place, dict[str, Any]]]:
    """The operation's parameters, those of its path included, by place; what it declares itself wins."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for raw in (*(draft.item.get("parameters") or ()), *(draft.operation.get("parameters") or ())):
        parameter = document.at(raw)
        name, place = parameter.get("name"), parameter.get("in")
        if not isinstance(name, str) or not name or place not in _PLACES:
            raise _Unfit("bad_parameter", f"name {str(name)[:60]!r} in {str(place)[:60]!r}")
        if place != "header" or name.lower() not in _OURS:
            found[place, name] = parameter
    in_path = {name for place, name in found if place == "path"}
    for name in _template(draft.path) - in_path:
        found["path", name] = {"name": name, "in": "path", "schema": {"type": "string"}}
    return [(place, found[key]) for place in _PLACES for key in found if key[0] == place]


def _template(path: str) -> set[str]:
    parts = path.split("{")[1:]
    if any("}" not in part or part.startswith("}") for part in parts):
        raise _Unfit("malformed", "braces of the path")
    return {part.split("}")[0] for part in parts}


def _parameter(
    inliner: Inliner, place: Place, found: dict[str, Any], taken: Mapping[str, Any]
) -> tuple[Parameter, dict[str, Any]]:
    content = found.get("content")
    if content:
        media_type = next(iter(content))
        if not _is_json(media_type):
            raise _Unfit("media_type", f"{media_type} of the parameter {found['name'][:60]}")
        schema = inliner.inlined(content[media_type].get("schema", True), "request")
    else:
        schema = inliner.inlined(found.get("schema", True), "request")
    default = "form" if place in ("query", "cookie") else "simple"
    style = found.get("style", default)
    if style not in _STYLES[place]:
        raise _Unfit("bad_parameter", f"style {str(style)[:40]!r} of {found['name'][:60]} in {place}")
    argument = argument_name(found["name"], place, taken)
    if found.get("description"):
        schema = {**schema, "description": str(found["description"])[:600]}
    if argument != found["name"]:
        schema = {**schema, "title": found["name"][:200]}
    parameter = Parameter(
        argument=argument,
        name=found["name"],
        place=place,
        style=style,
        explode=found.get("explode", style == "form") is True,
        reserved=found.get("allowReserved") is True,
        as_json=bool(content),
    )
    return parameter, schema


def _body(
    document: Document,
    inliner: Inliner,
    draft: _Draft,
    parameters: list[Parameter],
    properties: dict[str, Any],
    required: list[str],
) -> Body | None:
    """How the body is made; its fields are added to `parameters`, `properties` and `required`."""
    if not draft.operation.get("requestBody"):
        return None
    found = document.at(draft.operation["requestBody"])
    content = found.get("content") or {}
    needed = found.get("required") is True
    media_type = _preferred(content)
    if not media_type:
        if not needed:
            return None
        raise _Unfit("media_type", ", ".join(map(str, content))[:200] or "a body of no type")
    media = content[media_type] or {}
    schema = _merged(inliner.inlined(media.get("schema", True), "request"))
    encodings = {str(key): value for key, value in (media.get("encoding") or {}).items() if isinstance(value, dict)}
    plain = "form" if media_type.partition(";")[0].strip() == _FORM else "json" if _is_json(media_type) else "text"
    fields = schema.get("properties")
    closed = schema.keys() <= _FLAT or (
        schema.keys() <= _FLAT | {"additionalProperties"} and schema["additionalProperties"] is False
    )
    if plain != "text" and isinstance(fields, dict) and fields and closed:
        for name, inner in fields.items():
            argument = argument_name(name, "body", properties)
            properties[argument] = inner if argument == name else {**inner, "title": name[:200]}
            parameters.append(Parameter(argument=argument, name=name, place="body"))
            if needed and name in (schema.get("required") or ()):
                required.append(argument)
        return Body(media_type=media_type, required=needed, encodings=encodings)
    whole = argument_name("body", "body", properties)
    properties[whole] = schema if plain != "text" or schema else {"type": "string"}
    if needed:
        required.append(whole)
    return Body(media_type=media_type, required=needed, whole=whole, encodings=encodings)


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """An `allOf` of plain objects as one, which is how documents write inheritance; else `schema` as it is."""
    parts = schema.get("allOf")
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    if not isinstance(parts, list) or not all(part.keys() <= _FLAT for part in (rest, *parts)):
        return schema
    made: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for part in (*parts, rest):
        made["properties"] |= part.get("properties") or {}
        made["required"] += part.get("required") or ()
        made |= {key: part[key] for key in ("title", "description") if key in part}
    return made


def _preferred(content: Mapping[str, Any]) -> str:
    """The first of these kinds that there is: JSON, something like JSON, a form, text."""
    plain = {str(key).partition(";")[0].strip().lower(): str(key) for key in reversed(list(content))}
    for fits in (lambda key: key == "application/json", _is_json, lambda key: key == _FORM,
                 lambda key: key == "text/plain", lambda key: key == "*/*"):  # fmt: skip
        for key in reversed(list(plain)):
            if fits(key):
                return plain[key]
    return ""


def _is_json(media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return plain == "application/json" or plain.endswith("+json")


def _answers(document: Document, inliner: Inliner, operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Schemas of answers; one that cannot be read is not checked against, the operation works without."""
    found: dict[str, dict[str, Any]] = {}
    for status, raw in (operation.get("responses") or {}).items():
        try:
            content = document.at(raw).get("content") or {}
            media_type = next((key for key in content if _is_json(key)), None)
            if media_type is None or "schema" not in (content[media_type] or {}):
                continue
            schema = inliner.inlined(content[media_type]["schema"], "response")
            _checked(schema)
        except (RemoteReference, DanglingReference, BadSchema, _Unfit, AttributeError, TypeError):
            continue
        if schema:
            found[str(status).upper() if str(status).lower() != "default" else "default"] = schema
    return found


def _checked(schema: dict[str, Any]) -> None:
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise _Unfit("bad_schema", str(error)[:100]) from None
    if size > _MAX_SCHEMA:
        raise _Unfit("too_large", f"its schema has {size:,} bytes")


def _security(document: Document, operation: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    wanted = operation.get("security", document.root.get("security")) or ()
    return tuple(tuple(str(name) for name in one) for one in wanted if isinstance(one, dict))


def _title(draft: _Draft, name: str) -> str:
    original = _operation_id(draft) or f"{draft.method.upper()} {draft.path}"
    return "" if original == name else original[:300]


def _description(draft: _Draft, cut: set[str]) -> str:
    operation = draft.operation
    summary, told = str(operation.get("summary") or ""), str(operation.get("description") or "")
    parts = [summary] if summary.rstrip(".") not in told else []
    parts.append(told or ("" if summary else f"{draft.method.upper()} {draft.path}"))
    text = "\n".join(part for part in parts if part)[:_MAX_DESCRIPTION]
    notes = ["Deprecated."] if operation.get("deprecated") is True else []
    if cut:
        named = ", ".join(sorted(cut)[:5])
        notes.append(f"Not described in full, for it holds itself or is very deep: {named}.")
    return "\n".join((text, *notes)) if text else "\n".join(notes)
