"""Servers of the Model Context Protocol as live APIs, over standard input and output or streamable HTTP.

    async with McpApi("files", McpSettings(command=("mcp-server-filesystem", "/srv/docs"))) as api:
        for operation in await api.tools():
            ...
        found = await api.call("read_file", {"path": "/srv/docs/a.txt"})

Runs in the loop of whoever calls, asyncio or trio; needs the extra `mcp`. A server is started when it is first wanted,
and again after it ended, with pauses that grow. What it says about itself is a claim: see `adapters.live.policy`.
Protocol: https://modelcontextprotocol.io/specification/2025-11-25 and 2026-07-28.
"""

from adapters.live.mcp.api import McpApi
from adapters.live.mcp.settings import McpSettings

__all__ = ["McpApi", "McpSettings"]
