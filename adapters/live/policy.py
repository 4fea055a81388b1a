"""`PolicySettings` and `decide`: which calls of a live API are made, and which are answered without making them.

| mode | executed | the rest |
|---|---|---|
| `live` | what `allow` or `read_only` names | refused |
| `shadow` | what `read_only` names | recorded answer, else simulated, else refused |
| `dry_run` | nothing | as in shadow |

Only the operator's lists count. What an API says of itself (a GET, MCP's `readOnlyHint`) is a claim.
"""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from adapters.live.limits import RateSettings

Mode = Literal["live", "shadow", "dry_run"]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done with one live API."""

    mode: Mode = "shadow"
    """`live`: what is allowed is done. `shadow`: only what is known to read. `dry_run`: nothing at all."""
    allow: tuple[str, ...] = ()
    """Patterns of tool names (`*`, `?`) that are executed in mode live."""
    read_only: tuple[str, ...] = ()
    """Patterns of tool names of which you know that they change nothing; executed in live and shadow."""
    deny: tuple[str, ...] = ()
    """Patterns of tool names that are never executed and not offered; stronger than the other two."""
    record: bool = True
    """Keep answers, for shadow runs to be told from."""
    max_age: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds after which a recorded answer is too old; 0: never."""
    simulate: bool = True
    """Make an answer up from its schema where none is recorded; it is marked as made up."""
    timeout: Positive = 60.0
    """Seconds for one call, waiting for its turn included."""
    concurrent: AtLeastOne = 8
    """Calls at a time."""
    rate: RateSettings = RateSettings()
    max_text: AtLeastOne = 20_000
    """Characters of an answer that an agent is shown."""
    max_structured: AtLeastOne = 1 << 20
    """Bytes of its JSON; a larger one is left out."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a call."""

    execute: bool
    stand_in: bool = False
    """It may be answered from a record or a schema."""
    why: str = ""
    """For the agent, where it is not executed."""


def decide(settings: PolicySettings, tool: str) -> Decision:
    """What becomes of a call of `tool`."""
    if _named(tool, settings.deny):
        return Decision(execute=False, why="it is not allowed here")
    if settings.mode == "dry_run":
        return Decision(execute=False, stand_in=True, why="this is a dry run, nothing is executed")
    if _named(tool, settings.read_only):
        return Decision(execute=True)
    if settings.mode == "shadow":
        return Decision(
            execute=False, stand_in=True, why="this is a shadow run, which executes only what is known to read"
        )
    if _named(tool, settings.allow):
        return Decision(execute=True)
    return Decision(execute=False, why="it is not on the list of what is allowed here")


def offered(settings: PolicySettings, tool: str) -> bool:
    """Whether `tool` is listed."""
    return not _named(tool, settings.deny)


def _named(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
