"""What was said in a call, whatever the dialect: exchanges keep their JSON, and here is who can read it."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from actors.messages import Exchange
from actors.messages.dialects import DialectName, dialect_at
from actors.trajectories.dialects.anthropic import read_anthropic
from actors.trajectories.dialects.chat import read_chat, read_completion
from actors.trajectories.dialects.conversation import Conversation, Item, canonical, digest
from actors.trajectories.dialects.responses import read_responses

Reader = Callable[[Mapping[str, Any], Mapping[str, Any]], Conversation]
"""(request, response) -> what was said."""

READERS: dict[DialectName, Reader] = {
    "chat": read_chat,
    "completions": read_completion,
    "responses": read_responses,
    "anthropic": read_anthropic,
}


def read_conversation(exchange: Exchange) -> Conversation:
    """What was said; empty where the JSON is not what the dialect has there."""
    dialect = dialect_at(exchange.endpoint)
    if dialect is None:
        return Conversation(items=())
    return READERS[dialect](_object(exchange.request), _object(exchange.response))


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


__all__ = ["READERS", "Conversation", "Item", "canonical", "digest", "read_conversation"]
