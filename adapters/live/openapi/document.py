"""`Document`: an OpenAPI document as it was found, with its references looked up but never followed elsewhere.

    file or URL -> bytes -> Document -> operations.read

JSON or YAML. Of YAML what the specification asks for (OpenAPI 3.1, 4.3: the JSON schema ruleset of YAML 1.2): no dates,
no `yes` for true, and no merge keys, with which a page of YAML becomes a gigabyte.
"""

import re
from typing import Any
from urllib.parse import unquote

import msgspec
import yaml

from actors.ports.errors import LiveApiMalformed

_VERSION = re.compile(r"3\.[01]\.\d+(?:-\S+)?")
_POINTER_STEPS = 64
_DEEPEST = 200


class RemoteReference(Exception):
    """A reference to another document, which is not fetched."""


class DanglingReference(Exception):
    """A reference to nothing."""


class Document:
    """One parsed document.

    Args:
        root: its top object.
        url: where it was fetched from; empty for a file.
    """

    def __init__(self, root: dict[str, Any], url: str = "") -> None:
        self.root, self.url = root, url
        self.old = str(root["openapi"]).startswith("3.0")
        """OpenAPI 3.0, whose schemas are a dialect of their own."""

    def resolve(self, reference: Any) -> Any:
        """What a local `reference` (`#/components/...`) points at.

        Raises:
            RemoteReference: it points elsewhere.
            DanglingReference: there is nothing there.
        """
        if not isinstance(reference, str):
            raise DanglingReference(repr(reference)[:100])
        if not reference.startswith("#"):
            raise RemoteReference(reference[:100])
        found: Any = self.root
        steps = reference[1:].split("/")[1:]
        if len(steps) > _POINTER_STEPS or (reference != "#" and not reference.startswith("#/")):
            raise DanglingReference(reference[:100])
        for step in steps:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise DanglingReference(reference[:100])
        return found

    def at(self, thing: Any) -> dict[str, Any]:
        """`thing`, or what it refers to, an object; for parameters, bodies, responses and path items.

        Raises:
            RemoteReference: as `resolve`.
            DanglingReference: as `resolve`; or no object, or references without an end.
        """
        for _ in range(16):
            if not isinstance(thing, dict):
                raise DanglingReference("an object is wanted")
            if "$ref" not in thing:
                return thing
            thing = self.resolve(thing["$ref"])
        raise DanglingReference("references without an end")


def parse(data: bytes, url: str = "") -> Document:
    """
    Raises:
        LiveApiMalformed: neither JSON nor YAML, or no OpenAPI 3.0 or 3.1.
    """
    try:
        root = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            _require_shallow(data)
            root = _as_json(yaml.load(data, Loader=_loader()), 0)  # noqa: S506  # safe constructors, fewer resolvers
        except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
            raise LiveApiMalformed(f"the document is neither JSON nor YAML: {str(error)[:200]}") from None
    except RecursionError:
        raise LiveApiMalformed("the document is nested too deep") from None
    if not isinstance(root, dict):
        raise LiveApiMalformed("the document is no object")
    version = root.get("openapi", root.get("swagger"))
    if not isinstance(version, str | float) or not _VERSION.fullmatch(str(version)):
        raise LiveApiMalformed(
            f"the document is of version {str(version)[:20]!r}; OpenAPI 3.0 and 3.1 are read (convert older ones)"
        )
    if not isinstance(root.get("paths", {}), dict):
        raise LiveApiMalformed("paths of the document is no object")
    return Document(root, url)


def _require_shallow(data: bytes) -> None:
    """libyaml composes by recursion in C without a limit: 100 KB of brackets would end the process."""
    depth = 0
    for event in yaml.parse(data, Loader=_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise RecursionError("nested too deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _loader() -> Any:
    """A loader of YAML as JSON has it."""

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it was built in
    loader: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    for tag, form, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+", list("-+0123456789")),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ):
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{form})$"), first)
    return loader


def _as_json(value: Any, depth: int, seen: dict[int, Any] | None = None) -> Any:
    """`value` with text for keys (`200:` is a number in YAML) and JSON's types alone; what is shared stays shared."""
    if depth > _DEEPEST:
        raise RecursionError("nested too deep")
    seen = {} if seen is None else seen
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, dict):
        made: Any = {}
        seen[id(value)] = made
        for key, inner in value.items():
            made[key if isinstance(key, str) else _text(key)] = _as_json(inner, depth + 1, seen)
        return made
    if isinstance(value, list):
        made = []
        seen[id(value)] = made
        made.extend(_as_json(inner, depth + 1, seen) for inner in value)
        return made
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else "null" if key is None else str(key)
