"""The control API's OpenAPI 3.1 document, at `GET /api/openapi.json`: a hand-kept table, rendered.

A route that is not in the table, or a line of it that has no route, fails a test. What is served decides what is in the
document; bodies are described by the Structs that read them.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec
from starlette.routing import BaseRoute, Route

from actors.messages import ExperienceKind, ExperienceState
from actors.store.browsing import SOURCES, Outcome
from daemon.api.experience import ForgetBody, ImportBody, LessonBody, SearchBody, StateBody
from daemon.api.orders import Order
from daemon.live.orders import AddOrder, CallOrder

_ERROR = "Error"
_TEXT = {"/metrics": "text/plain", "/api/experience/export": "application/jsonl"}
"""What is no JSON."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One route and method."""

    method: str
    path: str
    summary: str
    query: dict[str, dict[str, Any]] = {}
    """JSON Schema by name; none is needed."""
    body: type[msgspec.Struct] | None = None
    answer: Literal["object", "array", "text"] = "object"
    refuses: tuple[int, ...] = ()
    """Statuses with an error of its own, besides those that every route has."""


_LIMIT = {"type": "integer", "minimum": 1}
_STATE = {"type": "string", "enum": [*get_args(ExperienceState), ""]}
_KIND = {"type": "string", "enum": [*get_args(ExperienceKind), ""]}
_FILTERS = {"tenant": {"type": "string"}, "state": _STATE, "kind": _KIND}
_E, _A = "/api/experience", "/api/adapters"
DESCRIBED: tuple[Described, ...] = (
    Described(method="GET", path="/api/openapi.json", summary="This document"),
    Described(method="GET", path="/api/status", summary="What runs, what serves, what was counted"),
    Described(
        method="GET",
        path="/api/success",
        summary="Success over time, swaps and gate measurements",
        query={"limit": _LIMIT},
        refuses=(422,),
    ),
    Described(
        method="GET",
        path="/api/trajectories",
        summary="Trajectories with the credit of their steps, newest first, a page",
        query={
            "source": {"type": "string", "enum": [*SOURCES, ""]},
            "outcome": {"type": "string", "enum": [*get_args(Outcome)]},
            "tenant": {"type": "string"},
            "q": {"type": "string"},
            "version": {"type": "integer", "minimum": 0},
            "limit": _LIMIT,
            "after": {"type": "string", "pattern": r"^(\d+(\.\d+)?:.*)?$"},
        },
        refuses=(422, 503),
    ),
    Described(
        method="GET",
        path="/api/trajectories/{id}",
        summary="One, with credit and tokens of its steps, experience used, and its lineage",
        refuses=(404, 503),
    ),
    Described(
        method="GET",
        path="/api/versions",
        summary="Every version of the weights: its verdict, where it served, what went wrong",
        query={"limit": _LIMIT},
        refuses=(422, 503),
    ),
    Described(
        method="GET",
        path="/api/versions/{version}",
        summary="Where a version comes from, and why it served or did not",
        refuses=(404, 503),
    ),
    Described(
        method="GET",
        path="/api/why/{name}",
        summary="What was reported of a run, by any id of it, and what each report came to",
        refuses=(404, 503),
    ),
    Described(method="GET", path="/api/judge", summary="What the judge did, cost, and is worth"),
    Described(method="GET", path="/api/dead", summary="Parked messages with their errors", answer="array"),
    Described(
        method="POST",
        path="/api/dead/{id}/retry",
        summary="Put a parked message back on its stream",
        refuses=(404, 409),
    ),
    Described(method="POST", path="/api/freeze", summary="Stop learning; serving goes on", body=Order),
    Described(method="POST", path="/api/thaw", summary="Learn again", body=Order, refuses=(409,)),
    Described(
        method="POST", path="/api/promote", summary="Bring a version into service", body=Order, refuses=(404, 409)
    ),
    Described(
        method="POST", path="/api/rollback", summary="Go back to an earlier version", body=Order, refuses=(404, 409)
    ),
    Described(
        method="GET",
        path=_E,
        summary="Lessons, last changed first",
        query={**_FILTERS, "q": {"type": "string"}, "limit": _LIMIT},
        answer="array",
        refuses=(422,),
    ),
    Described(method="POST", path=_E, summary="Add a lesson by hand", body=LessonBody, refuses=(409,)),
    Described(
        method="GET", path=f"{_E}/export", summary="Lessons as JSONL", query=_FILTERS, answer="text", refuses=(422,)
    ),
    Described(method="POST", path=f"{_E}/search", summary="Lessons that fit a text", body=SearchBody, answer="array"),
    Described(method="POST", path=f"{_E}/import", summary="Take in exported lessons", body=ImportBody),
    Described(method="POST", path=f"{_E}/forget", summary="Forget trajectories and what came of them", body=ForgetBody),
    Described(method="GET", path=f"{_E}/{{id}}", summary="One lesson, with all that is known of it", refuses=(404,)),
    Described(
        method="POST",
        path=f"{_E}/{{id}}/state",
        summary="Activate, retire or release a lesson",
        body=StateBody,
        refuses=(404, 409),
    ),
    Described(method="GET", path=_A, summary="Live APIs with their health, and what is installed"),
    Described(method="POST", path=_A, summary="Add a live API by its address", body=AddOrder, refuses=(409, 502, 503)),
    Described(method="DELETE", path=f"{_A}/{{name}}", summary="Remove one that was added", refuses=(404, 409, 503)),
    Described(method="POST", path=f"{_A}/{{name}}/test", summary="Ask one for its tools", refuses=(404, 502)),
    Described(method="GET", path="/api/tools", summary="The tools of all live APIs"),
    Described(
        method="POST", path="/api/tools/{name}/call", summary="Call a tool", body=CallOrder, refuses=(404, 502, 503)
    ),
    Described(method="GET", path="/metrics", summary="Prometheus", answer="text"),
)


def served(routes: Sequence[BaseRoute]) -> set[tuple[str, str]]:
    """(method, path) of `routes`; HEAD comes with GET."""
    return {
        (method, route.path)
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }


def document(routes: Sequence[BaseRoute], described: Sequence[Described] = DESCRIBED) -> dict[str, Any]:
    """The OpenAPI document of those of `routes` that are `described`."""
    there = served(routes)
    shown = [one for one in described if (one.method, one.path) in there]
    bodies = list(dict.fromkeys(one.body for one in shown if one.body is not None))
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    message = {"type": "object", "required": ["message"], "properties": {"message": {"type": "string"}}}
    schemas[_ERROR] = {"type": "object", "required": ["error"], "properties": {"error": message}}
    paths: dict[str, dict[str, Any]] = {}
    for one in shown:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "evolved: control API",
            "version": "1",
            "description": "Open on this machine while there is no admin key, behind one otherwise.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-evolved-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"key": []}, {"bearer": []}],
    }


def _operation(one: Described) -> dict[str, Any]:
    refusals = {401, 403, 429, *one.refuses} | ({413, 415, 422, 503} if one.body is not None else set())
    if one.path.startswith(_E):
        refusals.add(503)
    kind = _TEXT.get(one.path, "application/json")
    schema = {"type": "string"} if one.answer == "text" else {"type": one.answer}
    answers: dict[str, Any] = {"200": {"description": one.summary, "content": {kind: {"schema": schema}}}}
    error = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_ERROR}"}}}
    for status in sorted(refusals):
        answers[str(status)] = {"description": "Says why, and what would do", "content": error}
    places = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    places += [{"name": name, "in": "query", "schema": schema} for name, schema in one.query.items()]
    made: dict[str, Any] = {
        "operationId": _id(one),
        "summary": one.summary,
        "tags": ["experience" if one.path.startswith(_E) else "control"],
        "responses": answers,
    }
    if places:
        made["parameters"] = places
    if one.body is not None:
        reference = {"$ref": f"#/components/schemas/{one.body.__name__}"}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    return made


def _id(one: Described) -> str:
    """`get_trajectories_id`: what it is called where operations become tools."""
    words = re.sub(r"[^a-z]+", "_", one.path.removeprefix("/api").lower()).strip("_")
    return f"{one.method.lower()}_{words}"
