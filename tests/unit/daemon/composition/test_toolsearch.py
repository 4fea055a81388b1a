"""Tool search from the outside: the sandbox's option and the MCP server."""

import json
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from adapters.environments.travel import TravelDesk
from adapters.toolsearch.environment import SEARCH_TOOL
from daemon.composition.toolsearch import searching
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
