"""What becomes of a document: tools, names, schemas, and what is skipped."""

import json
import re
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiRefused
from adapters.live import Operation
from adapters.live.openapi import OpenApiApi, OpenApiSettings

pytestmark = pytest.mark.anyio
SERVER = "http://127.0.0.1:1"
Read = Callable[..., Awaitable[tuple[OpenApiApi, dict[str, Operation]]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a document: its text, or its paths and what else it has."""

    async def opened(
        paths: str | dict[str, Any], *, version: str = "3.1.0", components: Any = None, **settings: Any
    ) -> tuple[OpenApiApi, dict[str, Operation]]:
        info = {"title": "t", "version": "1"}
        document = {"openapi": version, "info": info, "paths": paths, "components": components or {}}
        where = tmp_path / "openapi.json"
        where.write_text(paths if isinstance(paths, str) else json.dumps(document))
        api = OpenApiApi("shop", OpenApiSettings(document=str(where), **{"server": SERVER, **settings}))
        return api, {tool.name: tool for tool in await api.tools()}

    return opened


def posting(schema: Any, kind: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"post": {**more, "requestBody": {"required": True, "content": {kind: {"schema": schema}}}}}


def taking(place: str, name: str = "a", schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema or {}, **more}


async def test_an_operation_becomes_a_tool_whose_arguments_are_one_object(read: Read) -> None:
    string = {"type": "string"}
    (put,) = posting({"$ref": "#/components/schemas/I"}).values()
    put |= {
        "operationId": "put_item",
        "summary": "Change an item",
        "tags": ["items"],
        "parameters": [
            taking("path", "id", {"type": "integer"}),
            taking("query", "dry", {"type": "boolean"}),
            taking("header", "X-Trace", string),
            taking("cookie", "theme", string),
        ],
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}},
    }
    schemas = {"I": {"type": "object", "required": ["name"], "properties": {"name": string}}}
    api, tools = await read({"/items/{id}": {"put": put}}, components={"schemas": schemas})
    tool = tools["put_item"]
    assert list(tool.parameters["properties"]) == ["id", "dry", "X-Trace", "theme", "name"]
    assert tool.parameters["required"] == ["id", "name"]
    assert tool.parameters["additionalProperties"] is False
    assert "$ref" not in json.dumps(tool.parameters)
    assert (tool.description, tool.tags, tool.returns) == ("Change an item", ("items",), {"type": "object"})
    assert not tool.claims_read_only
    assert not api.read_only("put_item")


async def test_yaml_is_read_as_json_has_it(read: Read) -> None:
    _, tools = await read(
        """
openapi: 3.0.3
info: {title: t, version: "1"}
paths:
  /on:
    get:
      operationId: on
      parameters:
        - {name: answer, in: query, schema: {type: string, enum: [yes, no, 2020-01-01], nullable: true}}
      responses:
        200: {description: fine, content: {application/json: {schema: {type: array, items: {type: integer}}}}}
"""
    )
    answer = tools["on"].parameters["properties"]["answer"]
    assert answer == {"type": ["string", "null"], "enum": ["yes", "no", "2020-01-01", None]}
    assert tools["on"].returns == {"type": "array", "items": {"type": "integer"}}
    assert tools["on"].claims_read_only


async def test_a_page_of_yaml_cannot_become_a_gigabyte(read: Read) -> None:
    lines = ["openapi: 3.1.0", "x0: &x0 {type: object, properties: {a: {type: string}}}"]
    for number in range(1, 12):
        inner = ", ".join(f"p{n}: *x{number - 1}" for n in range(10))
        lines.append(f"x{number}: &x{number} {{type: object, properties: {{{inner}}}}}")
    lines.append("paths: {/a: {post: {operationId: a, requestBody: {content: {application/json: {schema: *x11}}}}}}")
    tracemalloc.start()
    api, tools = await read("\n".join(lines))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(tools) + len(api.skipped) == 1
    assert peak < 50_000_000


async def test_a_schema_that_holds_itself_is_cut_and_says_so(read: Read) -> None:
    reference = {"$ref": "#/components/schemas/Node"}
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": reference}}
    api, tools = await read({"/n": posting(reference, operationId="n")}, components={"schemas": {"Node": node}})
    inner = tools["n"].parameters["properties"]["next"]
    assert inner["type"] == "object"
    assert "properties" not in inner
    assert "Node" in tools["n"].description
    assert not api.skipped


async def test_what_cannot_be_offered_is_skipped_with_its_reason_and_the_rest_goes_on(read: Read) -> None:
    elsewhere = "https://elsewhere.example"
    wanted: dict[str, tuple[dict[str, Any], str]] = {
        "POST /remote": (posting({"$ref": f"{elsewhere}/schema.json"}), "remote_reference"),
        "POST /file": (posting({"$ref": "other.yaml#/A"}), "remote_reference"),
        "POST /nothing": (posting({"$ref": "#/components/schemas/Nothing"}), "dangling_reference"),
        "POST /upload": (posting({"type": "object"}, "multipart/form-data"), "media_type"),
        "POST /bad": (posting({"type": "object", "properties": {"a": {"type": "no such type"}}}), "bad_schema"),
        "GET /place": ({"get": {"parameters": [taking("moon")]}}, "bad_parameter"),
        "GET /style": ({"get": {"parameters": [taking("query", style="baroque")]}}, "bad_parameter"),
        "GET /other": ({"get": {"servers": [{"url": elsewhere}]}}, "other_server"),
        "GET /list": ({"get": {"parameters": "none"}}, "dangling_reference"),
        "GET /loop": ({"get": {"parameters": [{"$ref": "#/components/parameters/A"}]}}, "dangling_reference"),
        "* no-slash": ({"get": {}}, "malformed"),
        "* /item": ({"$ref": f"{elsewhere}/item.json"}, "remote_reference"),
    }
    paths = {where.split()[1]: item for where, (item, _) in wanted.items()}
    loop = {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}
    api, tools = await read(paths | {"/fine": {"get": {"operationId": "fine"}}}, components={"parameters": loop})
    assert list(tools) == ["fine"]
    assert {one.where: one.reason for one in api.skipped} == {where: reason for where, (_, reason) in wanted.items()}
    assert api.counts["skipped_remote_reference"] == 3
    with pytest.raises(LiveApiRefused, match="no operation 'nothing'"):
        await api.call("nothing", {})


async def test_names_are_unique_legal_and_the_same_in_any_order(read: Read) -> None:
    long = "a-very-long-collection-of-things-that-somebody-gave-a-very-long-name"
    paths: dict[str, Any] = {f"/{long}/{number}/{{id}}": {"get": {}, "delete": {}} for number in range(250)}
    paths |= {"/a": {"get": {"operationId": "list items"}}, "/b": {"get": {"operationId": "list.items"}}}
    api, tools = await read(paths)
    assert len(tools) == 502
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)
    assert tools[next(iter(tools))].title == f"GET /{long}/0/{{id}}"
    assert not api.skipped
    _, again = await read(dict(reversed(paths.items())))
    assert {one.title: one.name for one in again.values()} == {one.title: one.name for one in tools.values()}


async def test_operations_are_left_out_by_name_and_beyond_the_limit(read: Read) -> None:
    paths = {f"/{name}": {"get": {"operationId": name}} for name in ("user_list", "user_drop", "log_list")}
    assert list((await read(paths, include=("user_*",), exclude=("*_drop",)))[1]) == ["user_list"]
    api, tools = await read(paths, max_operations=2)
    assert (len(tools), api.counts["skipped_too_many"]) == (2, 1)


async def test_arguments_of_one_name_are_told_apart(read: Read) -> None:
    item = posting({"type": "object", "properties": {"id": {"type": "boolean"}}}, operationId="p")
    item["post"]["parameters"] = [taking("path", "id"), taking("query", "id"), taking("query", "filter[name]")]
    _, tools = await read({"/{id}": item})
    assert list(tools["p"].parameters["properties"]) == ["id", "query_id", "filter_name", "body_id"]


async def test_what_openapi_3_0_writes_in_its_own_way_is_translated(read: Read) -> None:
    schema = {
        "type": "object",
        "required": ["a", "id"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "a": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True, "example": 3},
            "b": {"$ref": "#/components/schemas/B", "description": "ignored beside a reference in 3.0"},
        },
    }
    schemas = {"B": {"nullable": True, "allOf": [{"type": "string"}]}}
    _, tools = await read({"/": posting(schema, operationId="p")}, version="3.0.3", components={"schemas": schemas})
    assert tools["p"].parameters["properties"] == {
        "a": {"type": ["number", "null"], "exclusiveMinimum": 0, "examples": [3]},
        "b": {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
    }
    assert tools["p"].parameters["required"] == ["a"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "neither JSON nor YAML"),
        ("[1]", "no object"),
        ('{"swagger": "2.0", "paths": {}}', "3.0 and 3.1"),
        ('{"openapi": "4.0.0"}', "3.0 and 3.1"),
        ('{"openapi": "3.1.0", "paths": []}', "paths"),
        ('{"openapi": "3.1.0", "paths": {}}', "name one in `server`"),
        ("[" * 5000, "neither JSON nor YAML|nested too deep"),
        *(("a: \n " + opening * 100_000, "neither JSON nor YAML") for opening in ("[", "a: [", "{a: ", "- ")),
        ("a: !!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
    ],
)
async def test_a_document_that_is_none_is_told(read: Read, text: str, told: str) -> None:
    with pytest.raises(LiveApiMalformed, match=told):
        await read(text, server="")


async def test_a_document_that_is_not_there_names_the_setting() -> None:
    with pytest.raises(AdapterNotSetUp, match=r"document = '/nowhere\.json' cannot be read"):
        await OpenApiApi("shop", OpenApiSettings(document="/nowhere.json", server=SERVER)).tools()
