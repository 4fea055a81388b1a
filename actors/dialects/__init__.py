"""How each endpoint speaks: its streams, its ends and its token ids, one module a dialect; and what was said."""

from actors.dialects import anthropic, chat, responses
from actors.dialects.conversation import Conversation, Item, canonical, digest, parsed
from actors.dialects.form import Dialect, Tokens
from actors.dialects.reading import read_conversation
from actors.messages.dialects import DialectName, dialect_at

DIALECTS: dict[DialectName, Dialect] = {
    "chat": chat, "completions": chat, "responses": responses, "anthropic": anthropic,
}  # fmt: skip


def dialect_of(path: str) -> Dialect | None:
    """The dialect that is spoken at `path`; None of what is kept as it came and is no step of anything."""
    name = dialect_at(path)
    return None if name is None else DIALECTS[name]


__all__ = [
    "DIALECTS", "Conversation", "Dialect", "Item", "Tokens", "canonical", "dialect_of", "digest", "parsed",
    "read_conversation",
]  # fmt: skip
