"""How a parameter's value is written into a URL, a header or a cookie (OpenAPI 3.1, 4.8.12.6, "Style Values").

A value is text, a number, a list or an object; what goes into a URL is percent-encoded.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_RESERVED = ":/?#[]@!$&'()*+,;="


def text_of(value: Any) -> str:
    """A primitive, as it is written."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def encoded(text: str, reserved: bool = False) -> str:
    """`text` percent-encoded; with `reserved`, RFC 3986's reserved characters but those that end a query stay."""
    return quote(text, safe=_RESERVED.replace("#", "").replace("&", "") if reserved else "", encoding="utf-8")


def in_path(value: Any, explode: bool) -> str:
    """`value` for a path: simple."""
    if isinstance(value, Mapping):
        joint = "=" if explode else ","
        return ",".join(f"{encoded(str(key))}{joint}{encoded(text_of(inner))}" for key, inner in value.items())
    if isinstance(value, list):
        return ",".join(encoded(text_of(item)) for item in value)
    return encoded(text_of(value))


def pairs(name: str, value: Any, style: str, explode: bool) -> list[tuple[str, str]]:
    """`value` for a query, a cookie or a form, as (name, text) without encoding.

    Args:
        style: form, spaceDelimited, pipeDelimited or deepObject.
    """
    if style == "deepObject" and isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in _deep(f"{name}[{key}]", inner)]
    if isinstance(value, Mapping):
        if style == "form" and explode:
            return [(str(key), text_of(inner)) for key, inner in value.items()]
        return [(name, _joint(style).join(part for key, v in value.items() for part in (str(key), text_of(v))))]
    if isinstance(value, list):
        if explode or style == "deepObject":
            return [(name, text_of(item)) for item in value]
        return [(name, _joint(style).join(text_of(item) for item in value))]
    return [(name, text_of(value))]


def query(found: list[tuple[str, str, bool]]) -> str:
    """A query of (name, text, reserved characters stay), percent-encoded.

    A comma between the items of a list stays one (RFC 6570's form expansion), which costs the difference to a comma in
    an item: who needs that asks for `explode`.
    """
    return "&".join(f"{encoded(name)}={encoded(text, reserved).replace('%2C', ',')}" for name, text, reserved in found)


def in_header(value: Any, explode: bool) -> str:
    """`value` for a header: simple."""
    if isinstance(value, Mapping):
        joint = "=" if explode else ","
        return ",".join(f"{key}{joint}{text_of(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ",".join(text_of(item) for item in value)
    return text_of(value)


def _joint(style: str) -> str:
    return {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")


def _deep(name: str, value: Any) -> list[tuple[str, str]]:
    """Objects in objects: the specification leaves them open; `a[b][c]=1` is what servers read."""
    if isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in _deep(f"{name}[{key}]", inner)]
    if isinstance(value, list):
        return [(name, text_of(item)) for item in value]
    return [(name, text_of(value))]
