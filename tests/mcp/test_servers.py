"""Five real MCP servers through the adapter."""

import json
import subprocess
from pathlib import Path

import pytest

from adapters.live.mcp import McpApi, McpSettings
from tests.mcp.servers import everything_over_http, settings

pytestmark = pytest.mark.anyio
SERVERS = {
    "time": ("convert_time", ""),
    "git": ("git_log", "git_commit"),
    "everything": ("get-sum", "gzip-file-as-resource"),
    "filesystem": ("read_text_file", "write_file"),
    "memory": ("read_graph", "create_entities"),
}
"""By server: a tool that reads, and one that writes, if it has one."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A repository with one commit, which is the directory of the servers that keep something as well."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "notes.txt").write_text("buy milk\n")

    def git(*command: str) -> None:
        given = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(place), *given, *command], check=True, capture_output=True)

    git("init", "-q")
    git("add", "notes.txt")
    git("commit", "-q", "-m", "the first note")
    return place


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
@pytest.mark.parametrize("server", SERVERS)
async def test_tools_are_listed_with_schemas_names_and_claims(server, directory):
    async with McpApi(server, settings(server, directory)) as api:
        tools = {tool.name: tool for tool in await api.tools()}
    reads, writes = SERVERS[server]
    for tool in tools.values():
        assert tool.parameters["type"] == "object"
        assert "$ref" not in json.dumps(tool.parameters)
        assert tool.description
        assert len(tool.name) <= 64
    assert tools[reads].claims_read_only
    assert not writes or not tools[writes].claims_read_only


async def test_time_answers_in_structured_content(directory):
    async with McpApi("time", settings("time", directory)) as api:
        noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        answer = await api.call("convert_time", noon)
        assert answer.structured["target"]["timezone"] == "Asia/Tokyo"
        assert answer.structured["time_difference"] == "+9.0h"
        assert json.loads(answer.text) == answer.structured
        wrong = await api.call("get_current_time", {"timezone": "Middle/Earth"})
        assert wrong.error
        assert "Middle/Earth" in wrong.text


async def test_files_are_read_and_written_inside_of_the_directory_alone(directory):
    async with McpApi("filesystem", settings("filesystem", directory)) as api:
        read = await api.call("read_text_file", {"path": str(directory / "notes.txt")})
        assert (read.structured, read.error) == ({"content": "buy milk\n"}, False)
        await api.call("write_file", {"path": str(directory / "new.txt"), "content": "hello"})
        assert (directory / "new.txt").read_text() == "hello"
        outside = await api.call("read_text_file", {"path": "/etc/hostname"})
        assert outside.error
        assert "outside allowed directories" in outside.text


async def test_memory_remembers_over_a_restart_of_its_server(directory):
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    async with McpApi("memory", settings("memory", directory)) as api:
        made = await api.call("create_entities", {"entities": [entity]})
        assert made.structured["entities"] == [entity]
        await api.aclose()
        graph = await api.call("read_graph", {})
        assert graph.structured["entities"] == [entity]
        assert api.starts == 2


async def test_everything_answers_in_all_kinds_of_content(directory):
    async with McpApi("everything", settings("everything", directory)) as api:
        assert "5" in (await api.call("get-sum", {"a": 2, "b": 3})).text
        shaped = await api.call("get-structured-content", {"location": "Chicago"})
        assert set(shaped.structured) == {"temperature", "conditions", "humidity"}
        image = await api.call("get-tiny-image", {})
        assert "[image/png, " in image.text
        assert "bytes, left out]" in image.text
        links = await api.call("get-resource-links", {"count": 2})
        assert links.text.count("[resource ") == 2
        wrong = await api.call("get-sum", {"a": "two"})
        assert wrong.error


async def test_everything_over_streamable_http():
    with everything_over_http() as address:
        async with McpApi("everything", McpSettings(url=address)) as api:
            assert len(await api.tools()) > 10
            for number in range(5):
                assert str(number + 1) in (await api.call("get-sum", {"a": number, "b": 1})).text
