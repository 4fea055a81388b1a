"""How each endpoint speaks: its streams, its ends, its token ids, and what was said. One module a dialect."""

from typing import Any

import msgspec

from actors.dialects import anthropic, chat, completions, responses
from actors.dialects.conversation import Conversation, Item, canonical, digest
from actors.dialects.form import DECODE_ERRORS, Dialect, Merged, Tokens
from actors.messages import Exchange
from actors.messages.dialects import DialectName, dialect_at

DIALECTS: dict[DialectName, Dialect] = {
    "chat": chat, "completions": completions, "responses": responses, "anthropic": anthropic,
}  # fmt: skip


def dialect_of(path: str) -> Dialect | None:
    """The dialect that is spoken at `path`; None of what is kept as it came and is no step of anything."""
    name = dialect_at(path)
    return None if name is None else DIALECTS[name]


def read_conversation(exchange: Exchange) -> Conversation:
    """What was said; empty where the JSON is not what the dialect has there."""
    dialect = dialect_of(exchange.endpoint)
    if dialect is None:
        return Conversation(items=())
    return dialect.read(_object(exchange.request), _object(exchange.response))


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except DECODE_ERRORS:
        return {}
    return found if isinstance(found, dict) else {}


__all__ = [
    "DIALECTS",
    "Conversation",
    "Dialect",
    "Item",
    "Merged",
    "Tokens",
    "canonical",
    "dialect_of",
    "digest",
    "read_conversation",
]  # fmt: skip
