"""`Inliner`: schemas of a document as JSON Schema (2020-12) without references, of bounded size.

A reference inside of itself is cut, and so is what is deeper or larger than allowed: there anything is accepted, and
the place says so. OpenAPI 3.0's dialect (`nullable`, boolean `exclusiveMinimum`) is translated. `pattern`s are kept for
the reader and not enforced: they are ECMA's, not Python's, and one that backtracks would hang the process.
"""

from typing import Any, Literal

import msgspec

from adapters.live.openapi.document import DanglingReference, Document, RemoteReference

Direction = Literal["request", "response"]
_MAPS = frozenset({"properties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONE = frozenset({"items", "not", "additionalProperties", "if", "then", "else", "contains", "propertyNames"})
_ANNOTATIONS = frozenset({"title", "description", "default", "deprecated", "examples", "readOnly", "writeOnly"})
_PLAIN = frozenset(
    {
        "type", "enum", "const", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
        "maxProperties", "required", "dependentRequired", "minContains", "maxContains", *_ANNOTATIONS,
    }
)  # fmt: skip
_MAX_DESCRIPTION, _MAX_EXAMPLE, _MAX_NODES = 600, 300, 3000
_COUNTS = frozenset(
    {
        "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
        "maxContains",
    }
)  # fmt: skip
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_SHAPES = ("object", "array", "string", "integer", "number", "boolean")


class BadSchema(Exception):
    """A keyword with a value that it cannot have."""


class Inliner:
    """One schema's inlining; make one for each operation, its room is shared by what it inlines.

    Args:
        depth: levels.
        nodes: schemas, all in all.
    """

    def __init__(self, document: Document, depth: int, nodes: int = _MAX_NODES) -> None:
        self._document, self._depth, self._left = document, depth, nodes
        self.cut: set[str] = set()
        """Names of what was cut, for the description."""

    def inlined(self, schema: Any, direction: Direction) -> dict[str, Any]:
        """`schema` in full.

        Args:
            direction: what a property that is read-only or write-only is left out of.

        Raises:
            RemoteReference: it refers to another document.
            DanglingReference: it refers to nothing, or is no schema.
            BadSchema: a keyword has a value that it cannot have.
        """
        return self._schema(schema, direction, (), 0)

    def _schema(self, schema: Any, direction: Direction, inside: tuple[str, ...], level: int) -> dict[str, Any]:
        if schema is True:
            return {}
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, dict):
            raise DanglingReference("a schema is an object")
        self._left -= 1
        reference = schema.get("$ref")
        if reference is not None:
            return self._referred(schema, reference, direction, inside, level)
        if level >= self._depth or self._left <= 0:
            self.cut.add(str(schema.get("title") or "inner parts")[:60])
            return _shape(schema)
        made: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _MAPS and isinstance(value, dict):
                made[key] = {
                    str(name): self._schema(inner, direction, inside, level + 1)
                    for name, inner in value.items()
                    if not _hidden(inner, direction)
                }
            elif key in _LISTS and isinstance(value, list):
                made[key] = [self._schema(inner, direction, inside, level + 1) for inner in value]
            elif key in _ONE and isinstance(value, dict | bool):
                made[key] = value if isinstance(value, bool) else self._schema(value, direction, inside, level + 1)
            elif key in _PLAIN:
                _require_sound(key, value)
                made[key] = value
            elif key == "example" and "examples" not in schema:
                made["examples"] = [value]
        return self._tidied(made, schema, direction)

    def _referred(
        self, schema: dict[str, Any], reference: Any, direction: Direction, inside: tuple[str, ...], level: int
    ) -> dict[str, Any]:
        target = self._document.resolve(reference)
        name = str(reference).rpartition("/")[2][:60]
        if reference in inside:
            self.cut.add(name)
            return {**_shape(target), "description": f"{name}, as around it; not described again"}
        found = self._schema(target, direction, (*inside, reference), level)
        beside = {} if self._document.old else {key: value for key, value in schema.items() if key != "$ref"}
        notes = {key: value for key, value in beside.items() if key in _ANNOTATIONS}
        found = {**found, **_notes(notes)}
        if len(notes) < len(beside):
            rest = {key: value for key, value in beside.items() if key not in notes}
            found = {"allOf": [found, self._schema(rest, direction, inside, level + 1)]}
        return found

    def _tidied(self, made: dict[str, Any], schema: dict[str, Any], direction: Direction) -> dict[str, Any]:
        if "patternProperties" in schema and made.get("additionalProperties") is False:
            del made["additionalProperties"]  # what those allow is not known here
        required = made.get("required")
        if isinstance(required, list):
            hidden = {
                name for name, inner in _properties(schema).items() if _hidden(inner, direction)
            }  # a property that is not sent cannot be asked for
            kept = [name for name in required if isinstance(name, str) and name not in hidden]
            made["required"] = list(dict.fromkeys(kept))
        elif required is not None:
            del made["required"]
        _modernised(made, schema)  # in documents of 3.1 as well: people go on writing it
        return _notes(made)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _hidden(schema: Any, direction: Direction) -> bool:
    if not isinstance(schema, dict):
        return False
    return schema.get("readOnly" if direction == "request" else "writeOnly") is True


def _require_sound(key: str, value: Any) -> None:
    """The metaschema's part that a validator would stumble over. jsonschema's own check takes 1.3 ms for each keyword's
    schema, minutes for a large document.
    """
    if key == "type":
        kinds = value if isinstance(value, list) else [value]
        fine = bool(kinds) and all(kind in (*_SHAPES, "null") for kind in kinds)
    elif key == "enum":
        fine = isinstance(value, list) and bool(value)
    elif key in _COUNTS:
        fine = _is_number(value) and value >= 0 and value == int(value)
    elif key in _BOUNDS:
        # OpenAPI 3.0 has booleans there, which are translated.
        fine = _is_number(value) or (key.startswith("exclusive") and isinstance(value, bool))
        fine = fine and (key != "multipleOf" or value > 0)
    elif key == "dependentRequired":
        fine = isinstance(value, dict) and all(isinstance(names, list) for names in value.values())
    else:
        fine = True
    if not fine:
        raise BadSchema(f"{key}: {str(value)[:60]!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _shape(schema: Any) -> dict[str, Any]:
    """What is left of a schema where it is cut: its type."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    return {"type": kind} if kind in _SHAPES else {}


def _notes(made: dict[str, Any]) -> dict[str, Any]:
    """`made` with notes of bounded size."""
    for key in ("title", "description"):
        if key in made:
            made[key] = str(made[key])[:_MAX_DESCRIPTION]
    for key in ("default", "examples"):
        if key in made and not _small(made[key]):
            del made[key]
    if not isinstance(made.get("examples", []), list):
        del made["examples"]
    return made


def _small(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= _MAX_EXAMPLE
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        return False


def _modernised(made: dict[str, Any], schema: dict[str, Any]) -> None:
    """OpenAPI 3.0's own keywords, in place (its specification, 4.7.24, against JSON Schema 2020-12)."""
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(strict), bool) and made.pop(strict) and bound in made:
            made[strict] = made.pop(bound)
    if schema.get("nullable") is not True:
        return
    if isinstance(made.get("enum"), list) and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    else:
        parts = {key: made.pop(key) for key in list(made) if key in _LISTS}
        if parts:
            made["anyOf"] = [parts, {"type": "null"}]


__all__ = ["BadSchema", "DanglingReference", "Direction", "Inliner", "RemoteReference"]
