"""Arguments and answers against their schemas, with complaints that an agent can act on."""

import difflib
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UndefinedTypeCheck
from jsonschema.protocols import Validator

_MAX_COMPLAINTS, _MAX_COMPLAINT = 5, 300


class Checker:
    """One schema's.

    Args:
        schema: JSON Schema (2020-12) without references.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator = _validator(schema)

    def complaints(self, value: Any) -> list[str]:
        """What is wrong with `value`, each with the place; empty if nothing is."""
        found: list[str] = []
        try:
            for error in self._validator.iter_errors(value):
                found.append(self._told(error)[:_MAX_COMPLAINT])
                if len(found) >= _MAX_COMPLAINTS:
                    break
        except (RecursionError, OverflowError, UndefinedTypeCheck):
            # Values and schemas may be absurd; what cannot be checked is the API's to judge.
            return []
        return found

    def arguments(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """`given` without nulls that stand for "not given", and the complaints about what is left."""
        properties = self._schema.get("properties") or {}
        required = self._schema.get("required") or ()
        kept = {
            name: value
            for name, value in given.items()
            if value is not None or name in required or self._takes_null(properties.get(name, True))
        }
        return kept, self.complaints(kept)

    def _takes_null(self, schema: Any) -> bool:
        try:
            return self._validator.evolve(schema=schema).is_valid(None)
        except RecursionError:
            return False

    def _told(self, error: Any) -> str:
        place = ".".join(map(str, error.absolute_path))
        if error.validator == "additionalProperties" and not place and isinstance(error.instance, Mapping):
            known = list(self._schema.get("properties") or {})
            unknown = [name for name in error.instance if name not in known]
            if unknown:
                near = difflib.get_close_matches(str(unknown[0]), known, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known[:20]) or 'none'}"
                return f"{unknown[0]}: no such argument; {hint}"
        return f"{place or 'arguments'}: {error.message}"


def _validator(schema: Mapping[str, Any]) -> Validator:
    """Draft 2020-12 without `pattern`: those are ECMA's, and one that backtracks would hang the process."""
    draft: Any = validators.extend(Draft202012Validator, {"pattern": _ignored})
    return draft(schema)


def _ignored(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    """A keyword that is not enforced."""
