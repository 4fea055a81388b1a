"""How each endpoint speaks: its streams, its ends, its token ids. One module a dialect."""

import msgspec

from actors.messages.dialects import DialectName, dialect_at
from adapters.intake.dialects.anthropic import anthropic
from adapters.intake.dialects.chat import chat, completions
from adapters.intake.dialects.form import Dialect, Merged, Tokens
from adapters.intake.dialects.responses import responses

DIALECTS: dict[DialectName, Dialect] = {
    "chat": chat(),
    "completions": completions(),
    "responses": responses(),
    "anthropic": anthropic(),
}
_PLAIN = Dialect(
    name="plain",
    merge=lambda events: Merged([msgspec.Raw(data) for data in events], bool(events), "a stream of an unknown form"),
    ended=lambda body: True,
    tokens=lambda body: Tokens(why="no conversation"),
)
"""`/v1/embeddings` and all paths that nobody knows: kept as they came, and no step of anything."""


def dialect_of(path: str) -> Dialect:
    """The dialect that is spoken at `path`."""
    name = dialect_at(path)
    return _PLAIN if name is None else DIALECTS[name]


__all__ = ["DIALECTS", "Dialect", "Merged", "Tokens", "dialect_of"]
