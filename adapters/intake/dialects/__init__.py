"""How each endpoint speaks: its streams, its ends, its token ids. One module a dialect."""

from adapters.intake.dialects.anthropic import anthropic
from adapters.intake.dialects.chat import chat, completions
from adapters.intake.dialects.form import Dialect, Merged, Tokens
from adapters.intake.dialects.plain import plain
from adapters.intake.dialects.responses import responses

BY_ENDING = {
    "/chat/completions": chat(),
    "/completions": completions(),
    "/responses": responses(),
    "/messages": anthropic(),
}
"""The dialect by how its path ends, the longer ending first."""
_PLAIN = plain()


def dialect_of(path: str) -> Dialect:
    """The dialect that is spoken at `path`."""
    return next((dialect for ending, dialect in BY_ENDING.items() if path.endswith(ending)), _PLAIN)


__all__ = ["Dialect", "Merged", "Tokens", "dialect_of"]
