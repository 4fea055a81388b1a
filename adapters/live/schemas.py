"""JSON Schemas without references: what `$ref` points to is put in its place, down to a depth.

Chat APIs differ in what they take of `$ref`, and a prompt cannot follow one. A schema that holds itself (a tree, say)
is written out a few times and then left open. Anything that points out of the document is left open too: nothing is
fetched.
"""

from collections.abc import Mapping
from typing import Any

_DEPTH = 3
"""Times that one definition is written out inside of itself."""
_NODES = 20_000
"""Parts of one schema after which the rest is left open: references can double a schema at every level."""
_DEFINITIONS = ("$defs", "definitions")
_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_DATA = ("const", "enum", "default", "examples", "example", "required")


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with its local references (`#/...`) written out, and without the definitions."""
    expanded = _Expansion(schema).of(schema, {})
    return expanded if isinstance(expanded, dict) else {}


def parameters(schema: Any) -> dict[str, Any]:
    """`schema` as the parameters of a tool: an object without references, whatever it was."""
    found = without_references(schema) if isinstance(schema, Mapping) else {}
    return found | {"type": "object", "properties": found.get("properties") or {}}


class _Expansion:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, _NODES

    def of(self, value: Any, within: Mapping[str, int]) -> Any:
        """`value` written out; `within` counts the references on the way here."""
        self._left -= 1
        if self._left < 0:
            return {}
        if isinstance(value, list):
            return [self.of(item, within) for item in value]
        if not isinstance(value, Mapping):
            return value
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return {key: self._under(key, item, within) for key, item in value.items() if key not in _DEFINITIONS}
        target = self._target(reference)
        if target is None or within.get(reference, 0) >= _DEPTH:
            return {key: item for key, item in value.items() if key in ("description", "title")}
        written = self.of(target, {**within, reference: within.get(reference, 0) + 1})
        if not isinstance(written, dict):
            return written
        beside = {key: item for key, item in value.items() if key != "$ref"}
        return {**written, **(self.of(beside, within) if beside else {})}

    def _under(self, key: str, item: Any, within: Mapping[str, int]) -> Any:
        if key in _DATA:
            return item
        if key in _BY_NAME and isinstance(item, Mapping):
            # Keys are names here: a property may well be called "$ref" or "definitions".
            return {name: self.of(inner, within) for name, inner in item.items()}
        return self.of(item, within)

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for part in filter(None, reference[1:].split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found
