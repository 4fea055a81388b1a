"""What an MCP server is and how it is spoken to: `[apis.NAME]` with `kind = "mcp"`."""

import re
from typing import Annotated, Literal

import msgspec

from adapters.chat.keys import checked_url
from adapters.live.references import is_reference

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
_NAMES_A_SECRET = re.compile(r"authorization|cookie|token|secret|passw|api[-_]?key", re.IGNORECASE)


class McpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is started (`command`), or one that is there already (`url`)."""

    command: tuple[str, ...] = ()
    """Program and arguments of a server that speaks over its standard input and output."""
    directory: str = ""
    """Where it is started; empty: here."""
    environment: dict[str, str] = {}
    """What it gets besides PATH, HOME and LANG: plain values, or `env:NAME` and `file:PATH` for secrets."""
    url: str = ""
    """Address of a server that speaks streamable HTTP, as a rule ending in /mcp."""
    headers: dict[str, str] = {}
    """Sent with every request there; what names a secret must be `env:NAME` or `file:PATH`."""
    protocol: Literal["auto", "legacy"] = "auto"
    """"legacy" does without the probe for the protocol of 2026, if a server stumbles over it."""
    timeout: Positive = 60.0
    """Seconds for a call."""
    start_timeout: Positive = 30.0
    """Seconds for a start or connection, with the first listing."""
    max_message: AtLeastOne = 16 << 20
    """Bytes of one message of the server; a longer one ends the connection."""
    max_tools: AtLeastOne = 2000
    """Tools that are taken; more are left out and counted."""
    grace: Positive = 2.0
    """Seconds that a program has for each step of its end: standard input closed, SIGTERM, SIGKILL."""
    backoff: Positive = 1.0
    """Seconds before it is started again after it died at once; doubled each time, five minutes at most."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has a command (stdio) or a url (streamable HTTP): give one of them")
        if self.url:
            checked_url(self.url)
        for name, value in self.headers.items():
            if _NAMES_A_SECRET.search(name) and not is_reference(value):
                raise ValueError(f"headers.{name}: a secret is no setting; write env:NAME or file:PATH")
