"""Conversations of `/v1/messages`: blocks of text, thinking, tool use, and tool results in the user's messages."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from actors.ports.tool_answers.reader import flagged
from actors.trajectories.dialects.conversation import Conversation, Item, merged, text_of, tool_call

_LIMITS = ("max_tokens", "model_context_window_exceeded")


def read_anthropic(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    """A call of Anthropic's messages API."""
    items: list[Item] = []
    if system := text_of(request.get("system")):
        items.append(Item("system", system))
    messages = request.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        if message.get("role") == "assistant":
            items.append(_answer(message.get("content")))
        else:
            items += _said(message.get("content"))
    answered = isinstance(response.get("content"), list)
    tools = request.get("tools")
    return Conversation(
        items=merged(items),
        answers=[_answer(response["content"], response.get("stop_reason") in _LIMITS)] if answered else [],
        tools=msgspec.json.encode(tools) if tools else b"",
    )


def _answer(content: Any, cut: bool = False) -> Item:
    if not isinstance(content, list):
        return Item("assistant", text_of(content), cut=cut)
    blocks = [block for block in content if isinstance(block, dict)]
    text = "\n".join(block["text"] for block in blocks if block.get("type") == "text" and _is_text(block.get("text")))
    calls = tuple(
        tool_call(block.get("name"), block.get("input"), block.get("id"))
        for block in blocks
        if block.get("type") == "tool_use"
    )
    return Item("assistant", text, calls, cut=cut)


def _said(content: Any) -> Iterator[Item]:
    """Tool results first, as the API wants them; then what the user said."""
    if not isinstance(content, list):
        yield Item("user", text_of(content))
        return
    words: list[str] = []
    for block in content:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_result":
            call_id = block.get("tool_use_id")
            text = flagged(text_of(block.get("content")), block.get("is_error") is True)
            yield Item("tool", text, (), call_id if isinstance(call_id, str) else "")
        elif block.get("type") == "text" and _is_text(block.get("text")):
            words.append(block["text"])
    if words:
        yield Item("user", "\n".join(words))


def _is_text(found: Any) -> bool:
    return isinstance(found, str)
