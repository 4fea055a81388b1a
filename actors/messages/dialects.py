"""Which dialect is spoken at a path.

How a dialect's streams are merged and where its token ids stand is for `adapters.intake.dialects`, what was said in it
for `actors.trajectories.dialects`: each has one module a dialect, under the names of this table.
"""

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
