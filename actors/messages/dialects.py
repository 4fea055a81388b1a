"""Which dialect is spoken at a path; how, `actors.dialects` knows."""

from typing import Literal

DialectName = Literal["chat", "completions", "responses", "anthropic"]

ENDINGS: dict[str, DialectName] = {
    "/chat/completions": "chat",
    "/completions": "completions",
    "/responses": "responses",
    "/messages": "anthropic",
}
"""The dialect by how its path ends, the longer ending first."""


def dialect_at(path: str) -> DialectName | None:
    """The dialect that is spoken at `path`; None where there is no conversation (embeddings, unknown paths)."""
    return next((dialect for ending, dialect in ENDINGS.items() if path.endswith(ending)), None)
