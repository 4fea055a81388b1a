"""What tool search reads of an operation: its fields, and one text for the embedder."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from actors.ports.search.words import parts
from adapters.live import Operation

_DEEP, _MANY = 4, 200
"""Levels and number of parameters that are looked at: a schema from outside may be of any size."""
_EMBEDDED = 1000
"""Characters of a description that are embedded: models read their first few hundred words anyway."""


class Unreadable(ValueError):
    """Not an operation, and not a function tool.

    Attributes:
        reason: a stable short word to count by.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as it is searched."""

    api: str
    operation: Operation
    """Its description no longer than is looked at."""
    name: str
    title: str
    tags: str
    description: str
    parameters: str
    text: str
    """What is embedded."""


def read(given: Operation | Mapping[str, Any], api: str, most: int) -> Document:
    """The document of `given`, an operation or a function tool in OpenAI's form.

    Args:
        most: characters of the description, and of all parameters together.

    Raises:
        Unreadable: no name, or fields of the wrong kind.
    """
    operation = given if isinstance(given, Operation) else operation_of(given)
    if not operation.name.strip():
        raise Unreadable("no name")
    if len(operation.description) > most:
        operation = msgspec.structs.replace(operation, description=f"{operation.description[: most - 1]}…")
    told = [part for parameter in _parameters(operation.parameters) for part in parameter]
    # Whole words: a model that knows what words mean does not know their stems.
    name = " ".join(parts(f"{api} {operation.name}"))
    text = f"{name} {operation.title}: {operation.description[:_EMBEDDED]}"
    return Document(
        api=api,
        operation=operation,
        name=operation.name,
        title=operation.title,
        tags=" ".join((api, *operation.tags)),
        description=operation.description,
        parameters=" ".join(told)[:most],
        text=" ".join(text.split()),
    )


def operation_of(tool: Mapping[str, Any]) -> Operation:
    """The operation in a function tool of the chat API (`{"type": "function", "function": {...}}`) or of the responses
    API (the same fields without the inner object).

    Raises:
        Unreadable: it is neither.
    """
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise Unreadable("no function")
    name, description, parameters = function.get("name"), function.get("description"), function.get("parameters")
    if not isinstance(name, str):
        raise Unreadable("no name")
    return Operation(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=dict(parameters) if isinstance(parameters, Mapping) else {},
    )


def function_tool(operation: Operation, name: str = "") -> dict[str, Any]:
    """`operation` as a function tool of the chat API, under `name` if one is given."""
    return {
        "type": "function",
        "function": {
            "name": name or operation.name,
            "description": operation.description or operation.title,
            "parameters": operation.parameters or {"type": "object", "properties": {}},
        },
    }


def _parameters(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, description) of parameters, also of those inside of others."""
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    seen = 0
    while waiting and seen < _MANY:
        node, depth = waiting.pop(0)
        properties = node.get("properties") if isinstance(node, Mapping) else None
        for name, inner in properties.items() if isinstance(properties, Mapping) else ():
            seen += 1
            if seen > _MANY:
                return
            told = inner.get("description") if isinstance(inner, Mapping) else ""
            yield str(name), told if isinstance(told, str) else ""
            if depth < _DEEP and isinstance(inner, Mapping):
                waiting.append((inner.get("items", inner), depth + 1))
