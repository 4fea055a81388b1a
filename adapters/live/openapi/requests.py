"""Arguments of a tool to an HTTP request: path, query, headers and body as the plan says."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from adapters.live.openapi import styles
from adapters.live.openapi.plans import Body, Parameter, Plan

_MAX_URL = 16_384
_FORM = "application/x-www-form-urlencoded"


class Mistake(Exception):
    """An argument that cannot be sent; the message names it."""


class Prepared(msgspec.Struct, kw_only=True):
    """A request, but for where to and who asks."""

    method: str
    path: str
    """Percent-encoded."""
    query: str
    """Percent-encoded, without the question mark."""
    headers: dict[str, str]
    cookies: dict[str, str]
    content: bytes | None = None


def prepare(plan: Plan, arguments: Mapping[str, Any]) -> Prepared:
    """
    Raises:
        Mistake: an argument that has no place in a URL or a header.
    """
    path = plan.path
    query: list[tuple[str, str, bool]] = []
    headers: dict[str, str] = {}
    cookies: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for one in plan.parameters:
        if one.argument not in arguments:
            continue
        value = arguments[one.argument]
        if one.place == "body":
            fields[one.name] = value
            continue
        if one.as_json:
            value = msgspec.json.encode(value).decode()
        if one.place == "path":
            path = path.replace("{" + one.name + "}", _in_path(one, value))
        elif one.place == "query":
            query += ((n, text, one.reserved) for n, text in styles.pairs(one.name, value, one.style, one.explode))
        elif one.place == "header":
            headers[one.name] = _line(one, styles.in_header(value, one.explode))
        else:
            cookies |= {n: _cookie(one, text) for n, text in styles.pairs(one.name, value, "form", one.explode)}
    # An operation must not become another one: servers and proxies resolve dots, some of them encoded slashes as well.
    plain = unquote(path).replace("\\", "/")
    if any(part in (".", "..") for part in plain.split("/")) or "\0" in plain:
        named = ", ".join(one.argument for one in plan.parameters if one.place == "path")
        raise Mistake(f"{named}: part of the path, where . and .. cannot be between slashes")
    prepared = Prepared(method=plan.method, path=path, query=styles.query(query), headers=headers, cookies=cookies)
    if len(prepared.path) + len(prepared.query) > _MAX_URL:
        raise Mistake(f"arguments: together they make a URL of more than {_MAX_URL:,} characters")
    if plan.body is not None:
        _add_body(prepared, plan.body, fields, arguments)
    return prepared


def _add_body(prepared: Prepared, body: Body, fields: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    if body.whole:
        if body.whole not in arguments:
            return
        value = arguments[body.whole]
    elif fields or body.required:
        value = fields
    else:
        return
    plain = body.media_type.partition(";")[0].strip().lower()
    prepared.headers["content-type"] = body.media_type if plain != "*/*" else "application/json"
    if plain == _FORM:
        if not isinstance(value, Mapping):
            raise Mistake(f"{body.whole}: an object is wanted")
        prepared.content = _form(value, body.encodings).encode()
    elif plain == "text/plain":
        prepared.content = (value if isinstance(value, str) else styles.text_of(value)).encode("utf-8", "replace")
    else:
        try:
            prepared.content = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
            raise Mistake(f"arguments: no JSON can be made of them: {type(error).__name__}") from None


def _form(fields: Mapping[str, Any], encodings: Mapping[str, Mapping[str, Any]]) -> str:
    found: list[tuple[str, str, bool]] = []
    for name, value in fields.items():
        told = encodings.get(name, {})
        style = str(told.get("style", "form"))
        if "style" not in told and "explode" not in told and isinstance(value, Mapping):
            found.append((name, styles.text_of(value), False))  # OpenAPI 3.1, 4.8.15: an object is JSON
            continue
        explode = told.get("explode", style == "form") is True
        found += ((n, text, False) for n, text in styles.pairs(name, value, style, explode))
    return styles.query(found)


def _in_path(parameter: Parameter, value: Any) -> str:
    text = styles.in_path(value, parameter.explode)
    if not text:
        raise Mistake(f"{parameter.argument}: it is part of the path and cannot be empty")
    return text


def _line(parameter: Parameter, text: str) -> str:
    if not text.isprintable() or not text.isascii():
        raise Mistake(f"{parameter.argument}: it goes into a header, where one line of ASCII is taken")
    return text


def _cookie(parameter: Parameter, text: str) -> str:
    if not text.isprintable() or not text.isascii() or any(c in ' ",;\\' for c in text):
        raise Mistake(f"{parameter.argument}: it goes into a cookie, which takes no spaces, quotes, commas, semicolons")
    return text
