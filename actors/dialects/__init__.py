"""How each endpoint speaks: its streams, its ends, its token ids, and what was said. One module a dialect."""

from typing import Any

import msgspec

from actors.dialects.anthropic import ANTHROPIC
from actors.dialects.chat import CHAT, COMPLETIONS
from actors.dialects.conversation import Conversation, Item, canonical, digest
from actors.dialects.form import Dialect, Merged, Tokens
from actors.dialects.responses import RESPONSES
from actors.messages import Exchange
from actors.messages.dialects import DialectName, dialect_at

DIALECTS: dict[DialectName, Dialect] = {
    "chat": CHAT, "completions": COMPLETIONS, "responses": RESPONSES, "anthropic": ANTHROPIC,
}  # fmt: skip
_PLAIN = Dialect(
    merge=lambda events: Merged([msgspec.Raw(data) for data in events], bool(events), "a stream of an unknown form"),
    ended=lambda body: True,
    tokens=lambda body: Tokens(why="no conversation"),
    read=lambda request, response: Conversation(items=()),
)
"""`/v1/embeddings` and all paths that nobody knows: kept as they came, and no step of anything."""


def dialect_of(path: str) -> Dialect:
    """The dialect that is spoken at `path`."""
    name = dialect_at(path)
    return _PLAIN if name is None else DIALECTS[name]


def read_conversation(exchange: Exchange) -> Conversation:
    """What was said; empty where the JSON is not what the dialect has there."""
    return dialect_of(exchange.endpoint).read(_object(exchange.request), _object(exchange.response))


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
