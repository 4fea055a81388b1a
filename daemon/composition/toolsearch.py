"""Where tool search meets the rest: the sandbox's option; an index over files, live APIs, or the sandbox's tools."""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from actors.ports.environments import Environment
from actors.ports.models import Embedder
from adapters.toolsearch import Found, ToolIndex
from adapters.toolsearch.environment import SearchingEnvironment
from daemon.composition import registry, values
from daemon.errors import ConfigError
from daemon.settings.tables import Config, Sandbox

_log = structlog.get_logger(__name__)
_MAX_FILE = 64 << 20


def searching(environment: Environment | None, settings: Sandbox, embedder: Embedder | None) -> Environment | None:
    """`environment` as `sandbox.tools_shown` wants it."""
    if environment is None or not settings.tools_shown:
        return environment
    return SearchingEnvironment(environment, partial(ToolIndex, embedder), settings.tools_shown)


class Catalogue:
    """An index over what files list, each API under its file's name; without files, over the sandbox's tools."""

    def __init__(self, config: Config, files: Sequence[Path]) -> None:
        embedder, sandbox = values.adapter(config, "embedder"), config.sandbox
        self.index = ToolIndex(registry.build("embedder", embedder.name, embedder.options))
        self._listed = [(file.stem, tools_in(file)) for file in files]
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


def tools_in(file: Path) -> list[Any]:
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


def told(found: Found) -> dict[str, Any]:
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
