"""What becomes of a document: tools, names, schemas, and what is skipped."""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiRefused
from adapters.live import Operation
from adapters.live.openapi import OpenApiApi, OpenApiSettings
from adapters.live.openapi.document import parse

pytestmark = pytest.mark.anyio
SERVER = "http://127.0.0.1:1"


def document(paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "t", "version": "1"}, "paths": paths, **more}


async def opened(path: Path, doc: Any, **settings: Any) -> tuple[OpenApiApi, dict[str, Operation]]:
    path = path / "openapi.json"
    path.write_text(doc if isinstance(doc, str) else json.dumps(doc))
    api = OpenApiApi("shop", OpenApiSettings(document=str(path), **{"server": SERVER, **settings}))
    try:
        return api, {tool.name: tool for tool in await api.tools()}
    finally:
        await api.aclose()


def skips(api: OpenApiApi) -> dict[str, str]:
    return {one.where: one.reason for one in api.skipped}


async def test_an_operation_becomes_a_tool_whose_arguments_are_one_object(tmp_path: Path) -> None:
    put = {
        "operationId": "put_item",
        "summary": "Change an item",
        "tags": ["items"],
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
            {"name": "dry", "in": "query", "schema": {"type": "boolean"}},
            {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
            {"name": "theme", "in": "cookie", "schema": {"type": "string"}},
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/I"}}},
        },
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}},
    }
    schemas = {"I": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}
    api, tools = await opened(tmp_path, document({"/items/{id}": {"put": put}}, components={"schemas": schemas}))
    tool = tools["put_item"]
    assert list(tool.parameters["properties"]) == ["id", "dry", "X-Trace", "theme", "name"]
    assert tool.parameters["required"] == ["id", "name"]
    assert tool.parameters["additionalProperties"] is False
    assert "$ref" not in json.dumps(tool.parameters)
    assert (tool.description, tool.tags, tool.returns) == ("Change an item", ("items",), {"type": "object"})
    assert not tool.claims_read_only
    assert not api.read_only("put_item")


async def test_yaml_is_read_as_json_has_it(tmp_path: Path) -> None:
    _, tools = await opened(
        tmp_path,
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
""",
    )
    answer = tools["on"].parameters["properties"]["answer"]
    assert answer == {"type": ["string", "null"], "enum": ["yes", "no", "2020-01-01", None]}
    assert tools["on"].returns == {"type": "array", "items": {"type": "integer"}}


async def test_a_page_of_yaml_cannot_become_a_gigabyte(tmp_path: Path) -> None:
    lines = [
        "openapi: 3.1.0",
        "info: {title: t, version: '1'}",
        "x0: &x0 {type: object, properties: {a: {type: string}}}",
    ]
    for number in range(1, 12):
        inner = ", ".join(f"p{n}: *x{number - 1}" for n in range(10))
        lines.append(f"x{number}: &x{number} {{type: object, properties: {{{inner}}}}}")
    lines.append("paths: {/a: {post: {operationId: a, requestBody: {content: {application/json: {schema: *x11}}}}}}")
    tracemalloc.start()
    api, tools = await opened(tmp_path, "\n".join(lines))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(tools) + len(api.skipped) == 1
    assert peak < 50_000_000


async def test_a_schema_that_holds_itself_is_cut_and_says_so(tmp_path: Path) -> None:
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "next": {"$ref": "#/components/schemas/Node"}},
    }
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}}
    api, tools = await opened(
        tmp_path,
        document({"/n": {"post": {"operationId": "n", "requestBody": body}}}, components={"schemas": {"Node": node}}),
    )
    inner = tools["n"].parameters["properties"]["next"]
    assert inner["type"] == "object"
    assert "properties" not in inner
    assert "Node" in tools["n"].description
    assert not api.skipped


async def test_references_that_only_refer_to_each_other_are_skipped(tmp_path: Path) -> None:
    loop = {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}
    paths = {
        "/a": {"get": {"parameters": [{"$ref": "#/components/parameters/A"}]}},
        "/b": {"get": {"operationId": "b"}},
    }
    api, tools = await opened(tmp_path, document(paths, components={"parameters": loop}))
    assert skips(api) == {"GET /a": "dangling_reference"}
    assert list(tools) == ["b"]


async def test_what_cannot_be_offered_is_skipped_with_its_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    def of(schema: Any, kind: str = "application/json") -> dict[str, Any]:
        return {"post": {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}}

    paths: dict[str, Any] = {
        "/remote": of({"$ref": "https://elsewhere.example/schema.json"}),
        "/file": of({"$ref": "other.yaml#/A"}),
        "/nothing": of({"$ref": "#/components/schemas/Nothing"}),
        "/upload": of({"type": "object"}, "multipart/form-data"),
        "/bad": of({"type": "object", "properties": {"a": {"type": "no such type"}}}),
        "/place": {"get": {"parameters": [{"name": "a", "in": "moon", "schema": {}}]}},
        "/style": {"get": {"parameters": [{"name": "a", "in": "query", "style": "baroque", "schema": {}}]}},
        "/other": {"get": {"servers": [{"url": "https://elsewhere.example"}]}},
        "/list": {"get": {"parameters": "none"}},
        "no-slash": {"get": {}},
        "/item": {"$ref": "https://elsewhere.example/item.json"},
        "/fine": {"get": {"operationId": "fine"}},
    }
    api, tools = await opened(tmp_path, document(paths))
    assert list(tools) == ["fine"]
    assert skips(api) == {
        "POST /remote": "remote_reference",
        "POST /file": "remote_reference",
        "POST /nothing": "dangling_reference",
        "POST /upload": "media_type",
        "POST /bad": "bad_schema",
        "GET /place": "bad_parameter",
        "GET /style": "bad_parameter",
        "GET /other": "other_server",
        "GET /list": "dangling_reference",
        "* no-slash": "malformed",
        "* /item": "remote_reference",
    }
    assert api.counts["skipped_remote_reference"] == 3


async def test_five_hundred_operations_without_ids_have_five_hundred_names(tmp_path: Path) -> None:
    long = "a-very-long-collection-of-things-that-somebody-gave-a-very-long-name"
    paths = {f"/{long}/{number}/{{id}}": {"get": {}, "delete": {}} for number in range(250)}
    api, tools = await opened(tmp_path, document(paths))
    assert len(tools) == 500
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)
    assert tools[next(iter(tools))].title == f"GET /{long}/0/{{id}}"
    again, same = await opened(tmp_path, document(dict(reversed(paths.items()))))
    assert set(same) == set(tools)
    assert not api.skipped
    assert not again.skipped


async def test_operations_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    api, tools = await opened(tmp_path, document({f"/{n}": {"get": {}} for n in range(5)}), max_operations=3)
    assert len(tools) == 3
    assert api.counts["skipped_too_many"] == 2


async def test_operations_of_one_name_are_told_apart_whatever_their_order(tmp_path: Path) -> None:
    paths = {"/a": {"get": {"operationId": "list items"}}, "/b": {"get": {"operationId": "list.items"}}}
    _, tools = await opened(tmp_path, document(paths))
    assert len(tools) == 2
    _, other = await opened(tmp_path, document(dict(reversed(paths.items()))))
    assert {t.title: t.name for t in tools.values()} == {t.title: t.name for t in other.values()}


async def test_arguments_of_one_name_are_told_apart(tmp_path: Path) -> None:
    post = {
        "operationId": "p",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
            {"name": "id", "in": "query", "schema": {"type": "string"}},
            {"name": "filter[name]", "in": "query", "schema": {"type": "string"}},
        ],
        "requestBody": {
            "content": {"application/json": {"schema": {"type": "object", "properties": {"id": {"type": "boolean"}}}}}
        },
    }
    _, tools = await opened(tmp_path, document({"/{id}": {"post": post}}))
    assert list(tools["p"].parameters["properties"]) == ["id", "query_id", "filter_name", "body_id"]


async def test_what_openapi_3_0_writes_in_its_own_way_is_translated(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "required": ["a", "id"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "a": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True, "example": 3},
            "b": {"$ref": "#/components/schemas/B", "description": "ignored beside a reference in 3.0"},
        },
    }
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    _, tools = await opened(
        tmp_path,
        document(
            {"/": {"post": {"operationId": "p", "requestBody": body}}},
            "3.0.3",
            components={"schemas": {"B": {"nullable": True, "allOf": [{"type": "string"}]}}},
        ),
    )
    assert tools["p"].parameters["properties"] == {
        "a": {"type": ["number", "null"], "exclusiveMinimum": 0, "examples": [3]},
        "b": {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
    }
    assert tools["p"].parameters["required"] == ["a"]


async def test_tools_can_be_left_out_by_name(tmp_path: Path) -> None:
    paths = {f"/{name}": {"get": {"operationId": name}} for name in ("user_list", "user_drop", "log_list")}
    _, tools = await opened(tmp_path, document(paths), include=("user_*",), exclude=("*_drop",))
    assert list(tools) == ["user_list"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "neither JSON nor YAML"),
        ("[1]", "no object"),
        ('{"swagger": "2.0", "paths": {}}', "3.0 and 3.1"),
        ('{"openapi": "4.0.0"}', "3.0 and 3.1"),
        ('{"openapi": "3.1.0", "paths": []}', "paths"),
        ("[" * 5000, "neither JSON nor YAML|nested too deep"),
        ("a: !!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
    ],
)
async def test_a_document_that_is_none_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(LiveApiMalformed, match=told):
        await opened(tmp_path, text)


async def test_a_document_that_is_not_there_names_the_setting() -> None:
    with pytest.raises(AdapterNotSetUp, match=r"document = '/nowhere\.json' cannot be read"):
        await OpenApiApi("shop", OpenApiSettings(document="/nowhere.json", server=SERVER)).tools()


async def test_a_document_without_a_server_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(LiveApiMalformed, match="name one in `server`"):
        await opened(tmp_path, document({}), server="")


async def test_a_name_that_no_operation_has_is_refused(tmp_path: Path) -> None:
    api, _ = await opened(tmp_path, document({}))
    with pytest.raises(LiveApiRefused, match="no operation 'nothing'"):
        await api.call("nothing", {})


@pytest.mark.parametrize("opening", [b"[", b"a: [", b"{a: ", b"- "])
def test_nesting_without_an_end_is_refused_and_ends_no_process(opening: bytes) -> None:
    with pytest.raises(LiveApiMalformed):
        parse(b"a: \n " + opening * 100_000)
