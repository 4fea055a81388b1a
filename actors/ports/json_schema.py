"""Do a tool call's arguments fit the JSON schema (draft 2020-12) that the request gave for the tool?

An exotic or broken schema is judged mildly, never wrongly harsh: what is not known here constrains nothing. Schemas
come with traffic: none makes us fetch anything, or work without end.
"""

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from jsonschema import Draft202012Validator, validators
from referencing import Registry

_NUMBER, _SCHEMA = (int, float), (bool, dict)
_KEYWORDS: dict[str, type | tuple[type, ...]] = {
    "$ref": str, "type": (str, list), "enum": list, "const": object, "anyOf": list, "oneOf": list, "allOf": list,
    "properties": dict, "required": list, "additionalProperties": _SCHEMA, "items": _SCHEMA,
    "minimum": _NUMBER, "maximum": _NUMBER, "minLength": _NUMBER, "maxLength": _NUMBER, "minItems": _NUMBER,
    "maxItems": _NUMBER,
}  # fmt: skip
"""Those that tool lists use, with what their values must be. Not patterns: callers write them, and one that backtracks
would hang the process."""
_REFERENCES = 1_000
"""That are followed for one value: some that lead to each other twice would be followed 2^n times."""
_left: ContextVar[Iterator[int]] = ContextVar("references left")


def fits(value: Any, schema: Any) -> bool:
    """Whether `value`, as parsed from JSON, fits `schema`. `True`, `{}` and what is no schema allow everything."""
    if not isinstance(schema, _SCHEMA):
        return True
    _left.set(iter(range(_REFERENCES)))
    try:
        return _Validator(schema, registry=_NOWHERE).is_valid(value)
    except Exception:  # values and schemas come from outside and may be absurd: unknown types, without end
        return True


def _rule(name: str) -> Any:
    rule: Any = Draft202012Validator.VALIDATORS[name]

    def checked(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        if name == "$ref":
            next(_left.get())
        patterns = name == "additionalProperties" and "patternProperties" in schema
        return rule(validator, wanted, value, schema) if isinstance(wanted, _KEYWORDS[name]) and not patterns else None

    return checked


_NOWHERE: Any = Registry()
"""jsonschema's own would fetch what a reference names."""
_Validator: Any = validators.create(
    {}, {name: _rule(name) for name in _KEYWORDS}, type_checker=Draft202012Validator.TYPE_CHECKER
)
