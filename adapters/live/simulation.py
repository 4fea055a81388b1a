"""An answer made up from a schema: the smallest one that fits, with the call's own arguments where the names agree.

For shadow runs, where nothing was executed and nothing is recorded. It is marked as what it is wherever it goes.
"""

from collections.abc import Mapping
from typing import Any

from adapters.live.validation import Checker

_DEEPEST, _MOST = 8, 40
_FORMATS = {
    "date": "2000-01-01", "date-time": "2000-01-01T00:00:00Z", "time": "00:00:00Z", "email": "someone@example.com",
    "uri": "https://example.com/", "uuid": "00000000-0000-4000-8000-000000000000", "ipv4": "192.0.2.1",
}  # fmt: skip


def simulated(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """A value for `schema`; None if none was found that fits, which only odd schemas lead to.

    Args:
        arguments: a field of one's name takes its value, if that fits.
    """
    value = _value(schema, arguments, "", 0)
    return value if not Checker(schema).complaints(value) else None


def _value(schema: Any, arguments: Mapping[str, Any], name: str, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if name in arguments and schema and not Checker(schema).complaints(arguments[name]):
        return arguments[name]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _value(schema[key][0], arguments, name, depth + 1)
    if schema.get("allOf"):
        parts = [_value(part, arguments, name, depth + 1) for part in (*schema["allOf"], _rest(schema)) if part]
        objects = [part for part in parts if isinstance(part, dict)]
        return {key: value for part in objects for key, value in part.items()} if objects else parts[0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind == "object" or "properties" in schema:
        fields = list((schema.get("properties") or {}).items())[:_MOST]
        return {key: _value(inner, arguments, key, depth + 1) for key, inner in fields}
    if kind == "array":
        count = max(1, min(int(schema.get("minItems", 1)), _MOST)) if schema.get("maxItems") != 0 else 0
        return [_value(schema.get("items", {}), {}, "", depth + 1) for _ in range(count)]
    return _plain(schema, kind, name)


def _rest(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "allOf"}


def _plain(schema: Mapping[str, Any], kind: Any, name: str) -> Any:
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        number = low + 1 if high is None or low + 1 <= high else low
        return int(number) if kind == "integer" else number
    if kind == "boolean":
        return True
    if kind == "string":
        text = _FORMATS.get(str(schema.get("format")), name or "text")
        least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 20)
        return (text + "x" * min(max(0, least - len(text)), 10_000))[: int(most)]
    return None
