"""`Plan`: one operation of a document, as a tool and as what it takes to call it."""

from typing import Any, Literal

import msgspec

from adapters.live import Operation

Place = Literal["path", "query", "header", "cookie", "body"]
SkipReason = Literal[
    "remote_reference", "dangling_reference", "bad_schema", "bad_parameter", "media_type", "method", "other_server",
    "too_many", "too_large", "malformed",
]  # fmt: skip


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is not offered, and why."""

    where: str
    """Method and path."""
    reason: SkipReason
    detail: str = ""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """Where an argument goes."""

    argument: str
    """Its name among the tool's arguments."""
    name: str
    """What the document calls it."""
    place: Place
    style: str = "form"
    explode: bool = False
    reserved: bool = False
    """Reserved characters are sent as they are."""
    as_json: bool = False
    """Its value is written as JSON (`content` in place of `schema`)."""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """How a request's body is made."""

    media_type: str
    required: bool
    whole: str = ""
    """The argument that is the body as a whole; empty: it is an object of the arguments in place `body`."""
    encodings: dict[str, dict[str, Any]] = {}
    """Of a form's fields: style and explode."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One operation."""

    operation: Operation
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[tuple[str, ...], ...]
    """Alternatives, each of schemes that are needed together; empty: nothing is needed."""
    answers: dict[str, dict[str, Any]]
    """Schemas of JSON answers by status, `2XX` or `default`."""
