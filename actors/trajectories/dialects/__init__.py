"""What was said in a call, whatever the dialect: exchanges keep their JSON, and here is who can read it."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from actors.messages import Exchange
from actors.trajectories.dialects.anthropic import read_anthropic
from actors.trajectories.dialects.chat import read_chat, read_completion
from actors.trajectories.dialects.conversation import Conversation, Item, canonical, digest
from actors.trajectories.dialects.responses import read_responses

Reader = Callable[[Mapping[str, Any], Mapping[str, Any]], Conversation]
"""(request, response) -> what was said."""

READERS: dict[str, Reader] = {
    "/chat/completions": read_chat,
    "/completions": read_completion,
    "/responses": read_responses,
    "/messages": read_anthropic,
}
"""By how the path ends, the longer ending first."""


def has_conversation(endpoint: str) -> bool:
    """Whether calls of `endpoint` can be steps; the others (embeddings, unknown paths) are kept and counted."""
    return _reader(endpoint) is not None


def read_conversation(exchange: Exchange) -> Conversation:
    """What was said; empty where the JSON is not what the dialect has there."""
    reader = _reader(exchange.endpoint)
    if reader is None:
        return Conversation(items=())
    return reader(_object(exchange.request), _object(exchange.response))


def _reader(endpoint: str) -> Reader | None:
    return next((reader for ending, reader in READERS.items() if endpoint.endswith(ending)), None)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


__all__ = ["READERS", "Conversation", "Item", "canonical", "digest", "has_conversation", "read_conversation"]
