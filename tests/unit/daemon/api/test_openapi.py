"""The control API describes itself, wholly, and in a form that our own adapter can use."""

import json
from pathlib import Path

import pytest

from adapters.live.openapi import OpenApiApi, OpenApiSettings
from daemon.api.openapi import DESCRIBED, document, served
from tests.support.experience import Desk

pytestmark = pytest.mark.anyio


async def test_every_route_is_described_and_nothing_else(desk: Desk) -> None:
    described = [(one.method, one.path) for one in DESCRIBED]
    assert len(set(described)) == len(described)
    assert set(described) == served(desk.app().routes)


async def test_every_operation_of_the_document_is_a_tool_of_our_own_adapter(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    path.write_text(json.dumps(document(desk.app().routes)))
    api = OpenApiApi("evolved", OpenApiSettings(document=str(path), server="http://127.0.0.1:8090"))
    tools = {tool.name: tool for tool in await api.tools()}
    await api.aclose()
    assert not api.skipped
    assert len(tools) == len(DESCRIBED)
    assert tools["post_experience_search"].parameters["required"] == ["text"]
    assert tools["post_experience_id_state"].parameters["required"] == ["id", "change"]
