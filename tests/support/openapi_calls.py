"""Calls of one OpenAPI operation against a real HTTP server."""

import json
from pathlib import Path
from typing import Any

from adapters.live import CallResult
from adapters.live.openapi import OpenApiApi, OpenApiSettings
from tests.support.http_api import HttpApi


def operation(**more: Any) -> dict[str, Any]:
    return {"operationId": "op", **more}


def query(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {}, **more}


def body(schema: Any, kind: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": schema, **more}}}


class Opened:
    """An API in front of a server; a context manager that gives a function to call its one operation."""

    def __init__(self, server: HttpApi, tmp_path: Path, method: str, path: str, op: Any, **more: Any) -> None:
        document = {"openapi": "3.1.0", "info": {}, "paths": {path: {method: op}}, **more.pop("document", {})}
        where = tmp_path / "document.json"
        where.write_text(json.dumps(document))
        environment = more.pop("environment", {})
        settings = OpenApiSettings(document=str(where), **{"server": f"{server.url}/v1", **more})
        self.api = OpenApiApi("shop", settings, environment=environment)

    async def __aenter__(self) -> "Opened":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.api.aclose()

    async def __call__(self, **arguments: Any) -> CallResult:
        return await self.api.call("op", arguments)
