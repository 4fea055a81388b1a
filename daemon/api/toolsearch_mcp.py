"""Tool search as an MCP server: an agent that cannot hold all tools in its prompt asks for those that it needs.

    agent's framework  ->  MCP (stdio, or streamable HTTP on this machine)  ->  `ToolIndex`

The server only finds: it has no key and calls nothing. What it tells of a tool is what the tool's own document says.
"""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from adapters.toolsearch import Found, ToolIndex
from daemon.composition import registry, values
from daemon.errors import ConfigError
from daemon.settings.tables import Config

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
_MAX_FILE = 64 << 20


class Catalogue:
    """An index over what files list, each API under its file's name; without files, over the sandbox's tools."""

    def __init__(self, config: Config, files: Sequence[Path]) -> None:
        sandbox = config.sandbox
        self.index = ToolIndex(values.built(config, "embedder"))
        self._listed = [(file.stem, _tools_in(file)) for file in files]
        if not files and sandbox.environment:
            environment = registry.build("environment", sandbox.environment, sandbox.options)
            self._listed = [(environment.name, environment.tools())]
        if not any(tools for _, tools in self._listed):
            raise ConfigError("no tools to search; name a file with --file, or an environment as sandbox.environment")

    async def fill(self) -> None:
        """Fill the index, on the loop that it is to be used on: an embedder has connections."""
        for api, tools in self._listed:
            await self.index.add(tools, api=api)
        for reason, count in self.index.skipped.items():
            # Standard output is the answer, or an MCP server's line to its client.
            print(f"{count} of the tools skipped: {reason}", file=sys.stderr)


def _tools_in(file: Path) -> list[Any]:
    """The tools in a JSON file: a list, alone or as `tools` of an object, of function tools or of MCP's tools."""
    try:
        if file.stat().st_size > _MAX_FILE:
            raise ConfigError(f"--file {file}: above {_MAX_FILE >> 20} MiB; split it up")
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--file {file}: {error}; give a JSON file with a list of tools") from error
    listed = found.get("tools") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        raise ConfigError(f"--file {file}: no list of tools; give a list, or an object with the list as tools")
    return [_of_mcp(tool) if isinstance(tool, dict) and "inputSchema" in tool else tool for tool in listed]


def _told(found: Found) -> dict[str, Any]:
    """An operation that was found, for agents."""
    operation = found.operation
    return {
        "name": found.shown,
        "api": found.api,
        "operation": operation.name,
        "description": operation.description or operation.title,
        "parameters": operation.parameters,
    }


def _of_mcp(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool["inputSchema"]}


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
        return [_told(one) for one in found]

    made.add_tool(search_tools)
    return made
