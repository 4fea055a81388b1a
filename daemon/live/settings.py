"""What one registration of a live API is."""

import re
from typing import Any, Literal

import msgspec

NAME = re.compile(r"(?!.*__)[a-z0-9][a-z0-9_-]{0,30}")
"""What an API may be called; its tools are NAME__TOOL."""
SECRETS = "secrets"
"""Directory below `state_dir` of the files that an API added at run time may name as secrets."""
START_SECONDS = 60.0
"""In which an API must list its tools to be added."""
Origin = Literal["config", "entry point", "control"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One registration: what [apis.NAME] or an order said, with references to secrets, never secrets."""

    name: str
    kind: str
    """openapi, mcp, callables; "installed" for what an entry point makes."""
    options: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    origin: Origin = "config"
    added: float = 0.0
    """Unix seconds, of what was added at run time."""
    by: str = ""
    """Id of the admin key that added it."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How one API fares, as `evolved adapters list` shows it."""

    name: str
    kind: str
    origin: Origin
    where: str
    """Its address, command or functions; without what may be secret."""
    mode: str
    ok: bool
    tools: int
    last_success: float | None = None
    """Unix seconds."""
    last_failure: float | None = None
    error: str = ""
    """Of the last failure."""
