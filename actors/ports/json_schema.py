"""Do a tool call's arguments fit the JSON schema (draft 2020-12) that the request gave for the tool?

An exotic or broken schema is judged mildly, never wrongly harsh: what is not known here constrains nothing.
"""

from typing import Any

from jsonschema import Draft202012Validator, validators

_NUMBER, _SCHEMA = (int, float), (bool, dict)
_KEYWORDS: dict[str, type | tuple[type, ...]] = {
    "type": (str, list), "enum": list, "const": object, "anyOf": list, "oneOf": list, "allOf": list,
    "properties": dict, "required": list, "additionalProperties": _SCHEMA, "items": _SCHEMA,
    "minimum": _NUMBER, "maximum": _NUMBER, "minLength": _NUMBER, "maxLength": _NUMBER, "minItems": _NUMBER,
    "maxItems": _NUMBER,
}  # fmt: skip
"""Those that tool lists use, with what their values must be. Not patterns: callers write them, and one that backtracks
would hang the process."""


def fits(value: Any, schema: Any) -> bool:
    """Whether `value`, as parsed from JSON, fits `schema`. `True`, `{}` and what is no schema allow everything."""
    try:
        return not isinstance(schema, _SCHEMA) or _Validator(schema).is_valid(value)
    except Exception:  # values and schemas come from outside and may be absurd: unknown types, without end
        return True


def _rule(name: str) -> Any:
    rule: Any = Draft202012Validator.VALIDATORS[name]

    def checked(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        patterns = name == "additionalProperties" and "patternProperties" in schema
        return rule(validator, wanted, value, schema) if isinstance(wanted, _KEYWORDS[name]) and not patterns else None

    return checked


_Validator: Any = validators.create(
    {}, {name: _rule(name) for name in _KEYWORDS}, type_checker=Draft202012Validator.TYPE_CHECKER
)
