"""Live APIs: tools that do something in the world, as agents in production have them.

A live API lists its operations and calls them. What it says about itself (that an operation only reads, say) is a
claim; what may be called, and when an answer comes from a record instead, is the policy's to decide, around the API.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

MAX_NAME = 64
"""Characters of a tool name that every chat API accepts, of letters, digits, _ and -."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an API can do, as a tool."""

    name: str
    """Unique in its API, at most `MAX_NAME` of letters, digits, _ and -."""
    title: str = ""
    """What its own document calls it, where that is not `name`."""
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON Schema of an object, without references."""
    returns: dict[str, Any] | None = None
    """JSON Schema of the structured answer, where it is known."""
    claims_read_only: bool = False
    """The API says that it changes nothing. A claim, not safety."""
    tags: tuple[str, ...] = ()


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a call came to; a mistake of the caller is an answer, no exception."""

    text: str
    """For the agent to read."""
    structured: Any = None
    """The same as JSON, where the API gives it."""
    error: bool = False
    """The API says that the call failed."""
    truncated: bool = False
    """Something is missing at the end, it was too long."""
    source: Literal["live", "recorded", "simulated", "refused"] = "live"
    """Where it comes from: the API; a recorded answer to the same call; made up from the schema; nowhere."""
    status: int = 0
    """HTTP status, where there was one."""
    mismatch: str = ""
    """Where the answer is not what the API's own description says; it was given nevertheless."""
    age: float = 0.0
    """Seconds since a recorded answer was given."""


class LiveApi(Protocol):
    """A source of operations."""

    name: str

    async def tools(self) -> Sequence[Operation]:
        """Its operations as they are now, in a stable order.

        Raises:
            LiveApiUnavailable: it does not answer.
            LiveApiMalformed: it describes itself in a way that cannot be used.
        """
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call the operation named `tool`.

        Raises:
            LiveApiUnavailable: it does not answer in time.
            LiveApiMalformed: its answer cannot be read.
            LiveApiRefused: no such operation.
        """
        ...

    def read_only(self, tool: str) -> bool:
        """Whether `tool` claims to change nothing; False where it is unknown."""
        ...

    async def aclose(self) -> None:
        """Close connections and end child processes, bounded."""
        ...


@runtime_checkable
class HoldsSecrets(Protocol):
    """A live API that knows keys: whoever shows its answers takes them out."""

    def secrets(self) -> frozenset[str]:
        """Values that no agent, log or record may show, as they are now: keys, passwords, tokens."""
        ...


__all__ = ["MAX_NAME", "CallResult", "HoldsSecrets", "LiveApi", "Operation"]
