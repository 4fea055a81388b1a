"""Tool search from the outside: the sandbox's option and the MCP server."""

import json
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from adapters.environments.travel import TravelDesk
from adapters.toolsearch.environment import SEARCH_TOOL
from daemon.api.toolsearch_mcp import Catalogue, _told
from daemon.composition.environments import searching
from daemon.errors import ConfigError
from daemon.settings.reading import load

TOOLS = [
    {"type": "function", "function": {"name": "send_invoice", "description": "Send an invoice to a customer."}},
    {"name": "void_invoice", "description": "Void an invoice.", "inputSchema": {"properties": {"id": {}}}},
    {"name": "list_customers", "description": "All customers."},
    {"type": "mistake"},
]


@pytest.fixture
def billing(tmp_path: Path) -> Path:
    file = tmp_path / "billing.json"
    file.write_text(json.dumps({"tools": TOOLS}))
    return file


@pytest.mark.anyio
async def test_an_agent_finds_tools_over_mcp(billing: Path) -> None:
    given = ["-m", "daemon.cli", "tools", "mcp", "--file", str(billing)]
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=given)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        (tool,) = (await session.list_tools()).tools
        assert tool.name == "search_tools"
        answer = await session.call_tool("search_tools", {"query": "void the invoice", "k": 1})
        (found,) = answer.structured_content["result"]
        assert (found["name"], found["api"]) == ("void_invoice", "billing")
        assert found["parameters"] == {"properties": {"id": {}}}
        assert (await session.call_tool("search_tools", {"query": "  "})).structured_content["result"] == []
        assert (await session.call_tool("search_tools", {"query": "x", "k": 0})).is_error


@pytest.mark.anyio
async def test_the_setting_puts_search_before_the_sandbox() -> None:
    desk = TravelDesk()
    off = load(None, ["sandbox.environment=travel"])
    assert searching(desk, off.sandbox, None) is desk
    assert searching(None, off.sandbox, None) is None
    on = load(None, ["sandbox.environment=travel", "sandbox.tools_shown=2"])
    shown = searching(desk, on.sandbox, None)
    episode = await shown.reset(shown.sample(0, "train", None))
    names = [tool["function"]["name"] for tool in episode.tools]
    assert "finish" in names
    assert names[-1] == SEARCH_TOOL
    assert len(names) <= 4 < len(desk.tools())


@pytest.mark.anyio
async def test_a_catalogue_lists_files_or_the_sandboxs_tools_and_says_what_it_skipped(
    billing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalogue = Catalogue(load(None), [billing])
    await catalogue.fill()
    assert "1 of the tools skipped" in capsys.readouterr().err
    assert {_told(one)["operation"] for one in await catalogue.index.search("invoice", k=9)} >= {"send_invoice"}
    own = Catalogue(load(None, ["sandbox.environment=travel"]), [])
    await own.fill()
    assert "book" in {one.operation.name for one in await own.index.search("book a flight", k=3)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give a JSON file with a list of tools"),
        ('{"tools": 3}', "no list of tools"),
        ("[]", "no tools to search; name a file with --file, or an environment"),
        (None, "No such file"),
    ],
)
def test_files_without_tools_are_told_with_what_to_give(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "tools.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        Catalogue(load(None), [file])


def test_a_file_that_is_too_large_is_not_read(billing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.api.toolsearch_mcp._MAX_FILE", 10)
    with pytest.raises(ConfigError, match="split it up"):
        Catalogue(load(None), [billing])
