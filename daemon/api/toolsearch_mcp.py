"""Tool search as an MCP server: an agent that cannot hold all tools in its prompt asks for those that it needs.

    agent's framework  ->  MCP (stdio, or streamable HTTP on this machine)  ->  `ToolIndex`

The server only finds: it has no key and calls nothing. What it tells of a tool is what the tool's own document says.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from pydantic import Field

from daemon.composition.toolsearch import Catalogue, told
from daemon.errors import ConfigError

try:
    from mcp.server.mcpserver import MCPServer
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] != "mcp":
        raise
    raise ConfigError("the MCP server needs the package mcp; install the extra: pip install 'evolved[mcp]'") from error

_INSTRUCTIONS = """\
There are more tools than fit into a prompt. Before a step for which you have no tool call search_tools with what you
want to do in plain words; ask again in other words if nothing fits.
"""
_MAX_K = 50


def server(catalogue: Catalogue) -> "MCPServer[Any]":
    """The server, which fills the catalogue's index when it begins."""
    index = catalogue.index

    @asynccontextmanager
    async def lifespan(_: "MCPServer[Any]") -> AsyncIterator[None]:
        if not len(index):
            await catalogue.fill()
        yield

    made: MCPServer[Any] = MCPServer(
        "evolved", title="evolved: tool search", instructions=_INSTRUCTIONS, log_level="WARNING", lifespan=lifespan
    )

    async def search_tools(
        query: Annotated[str, Field(description="What you want to do now, in plain words.")],
        goal: Annotated[str, Field(description="What it is all for, if that says more.")] = "",
        k: Annotated[int, Field(ge=1, le=_MAX_K, description="Tools at most.")] = 10,
        apis: Annotated[list[str] | None, Field(description="Only tools of these APIs.")] = None,
        exclude: Annotated[list[str] | None, Field(description="Names of tools that you know already.")] = None,
    ) -> list[dict[str, Any]]:
        """Find tools that fit what you want to do, best first, with their parameters; empty if none does."""
        found = await index.search(goal, query, k, apis=apis or (), exclude=exclude or ())
        return [told(one) for one in found]

    made.add_tool(search_tools)
    return made
