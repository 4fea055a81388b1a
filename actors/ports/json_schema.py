"""Do a tool call's arguments fit the JSON schema that the request gave for the tool?

The part of JSON Schema (draft 2020-12) that tool lists use: type, properties, required, additionalProperties, items,
enum, const, anyOf, oneOf, allOf, minimum, maximum, minLength, maxLength, minItems, maxItems. A keyword that is not
known here constrains nothing, so an exotic schema is judged mildly, never wrongly harsh.
"""

from collections.abc import Mapping
from typing import Any

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "integer": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_DEPTH = 32
"""Levels that are looked at; deeper ones are taken as fitting."""


def fits(value: Any, schema: Any, depth: int = _DEPTH) -> bool:
    """Whether `value`, as parsed from JSON, fits `schema`. `True`, `{}` and what is no schema allow everything."""
    if schema is False:
        return False
    if not isinstance(schema, dict) or depth <= 0:
        return True
    if "const" in schema and value != schema["const"]:
        return False
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        return False
    if not _of_type(value, schema.get("type")) or not _in_bounds(value, schema):
        return False
    return _combined(value, schema, depth) and _members(value, schema, depth) and _elements(value, schema, depth)


def _of_type(value: Any, wanted: Any) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    names = [name for name in names if name in _KINDS]
    return not names or any(_is(value, name) for name in names)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[name])


def _in_bounds(value: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _between(value, schema.get("minimum"), schema.get("maximum"))
    if isinstance(value, str):
        return _between(len(value), schema.get("minLength"), schema.get("maxLength"))
    if isinstance(value, list):
        return _between(len(value), schema.get("minItems"), schema.get("maxItems"))
    return True


def _between(size: float, least: Any, most: Any) -> bool:
    return not ((isinstance(least, (int, float)) and size < least) or (isinstance(most, (int, float)) and size > most))


def _combined(value: Any, schema: Mapping[str, Any], depth: int) -> bool:
    for keyword, enough in (("anyOf", any), ("allOf", all), ("oneOf", lambda found: sum(found) == 1)):
        parts = schema.get(keyword)
        if isinstance(parts, list) and parts and not enough([fits(value, part, depth - 1) for part in parts]):
            return False
    return True


def _members(value: Any, schema: Mapping[str, Any], depth: int) -> bool:
    if not isinstance(value, dict):
        return True
    required = schema.get("required")
    if isinstance(required, list) and any(name not in value for name in required):
        return False
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    others = schema.get("additionalProperties", True)
    return all(fits(member, known.get(name, others), depth - 1) for name, member in value.items())


def _elements(value: Any, schema: Mapping[str, Any], depth: int) -> bool:
    return not isinstance(value, list) or all(fits(element, schema.get("items"), depth - 1) for element in value)
