"""The OpenAPI adapter on documents that somebody else wrote: those of AppWorld's ten apps."""

import json
import re

import pytest

from adapters.live.openapi import OpenApiApi, OpenApiSettings
from tests.appworld import rig
from tests.support.patience import within

METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.mark.anyio
@pytest.mark.timeout(within(300))
async def test_all_operations_of_all_ten_apps_become_tools(tmp_path) -> None:
    documents = rig.documents(tmp_path)
    assert len(documents) == 10
    operations = 0
    for app, path in documents.items():
        api = OpenApiApi(app, OpenApiSettings(document=str(path), server="http://127.0.0.1:1"))
        tools = await api.tools()
        await api.aclose()
        described = [
            operation
            for item in json.loads(path.read_text())["paths"].values()
            for method, operation in item.items()
            if method in METHODS
        ]
        assert not api.skipped
        assert len({tool.name for tool in tools}) == len(tools) == len(described)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name) for tool in tools)
        assert {tool.title or tool.name for tool in tools} == {one["operationId"] for one in described}
        assert "$ref" not in json.dumps([tool.parameters for tool in tools])
        operations += len(tools)
    assert operations == 463
