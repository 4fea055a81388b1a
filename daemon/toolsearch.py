"""Where tool search meets the rest: the sandbox's option, and the operations that the command line searches."""

from functools import partial

from adapters.embedders import Embedder
from adapters.environments import Environment
from adapters.toolsearch import ToolIndex
from adapters.toolsearch.environment import SearchingEnvironment
from daemon.config import SandboxSettings


def searching(
    environment: Environment | None, settings: SandboxSettings, embedder: Embedder | None
) -> Environment | None:
    """`environment` as `sandbox.tool_search` wants it."""
    if environment is None or not settings.tool_search:
        return environment
    return SearchingEnvironment(
        environment, partial(ToolIndex, embedder), settings.tool_search, settings.tool_search_always
    )
