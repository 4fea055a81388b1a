"""Which dialect is spoken at a path, and which ids tell nothing; all else `actors.dialects` knows."""

import re
from typing import Literal

DialectName = Literal["chat", "completions", "responses", "anthropic"]

ENDINGS: dict[str, DialectName] = {
    "/chat/completions": "chat",
    "/completions": "completions",
    "/responses": "responses",
    "/messages": "anthropic",
}
"""The dialect by how its path ends, the longer ending first."""
_GUESSABLE = re.compile(r"(?:call|tool|functions?|fc)?[-_.:]?(?:\w+[:.])?\d{1,4}")


def dialect_at(path: str) -> DialectName | None:
    """The dialect that is spoken at `path`; None where there is no conversation (embeddings, unknown paths)."""
    return next((dialect for ending, dialect in ENDINGS.items() if path.endswith(ending)), None)


def guessable(call_id: str) -> bool:
    """Whether the id looks like one that an engine gives again and again, such as `call_0`."""
    return len(call_id) < 24 and _GUESSABLE.fullmatch(call_id) is not None
