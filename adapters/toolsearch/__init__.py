"""Tool search: with thousands of operations no prompt holds them all, so those that fit are looked for.

`ToolIndex` is the library call, `environment.SearchingEnvironment` the rollout's option; the daemon serves the index to
agents over MCP.
"""

from adapters.toolsearch.index import Found, ToolIndex
from adapters.toolsearch.reading import function_tool, operation_of
from adapters.toolsearch.settings import SearchSettings

__all__ = ["Found", "SearchSettings", "ToolIndex", "function_tool", "operation_of"]
