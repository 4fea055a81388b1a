"""How each endpoint speaks: its streams, its ends, its token ids. One module a dialect."""

from actors.messages.dialects import DialectName, dialect_at
from adapters.intake.dialects.anthropic import anthropic
from adapters.intake.dialects.chat import chat, completions
from adapters.intake.dialects.form import Dialect, Merged, Tokens
from adapters.intake.dialects.plain import plain
from adapters.intake.dialects.responses import responses

DIALECTS: dict[DialectName, Dialect] = {
    "chat": chat(),
    "completions": completions(),
    "responses": responses(),
    "anthropic": anthropic(),
}
_PLAIN = plain()


def dialect_of(path: str) -> Dialect:
    """The dialect that is spoken at `path`."""
    name = dialect_at(path)
    return _PLAIN if name is None else DIALECTS[name]


__all__ = ["DIALECTS", "Dialect", "Merged", "Tokens", "dialect_of"]
