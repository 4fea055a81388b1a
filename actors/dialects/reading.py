"""What was said in a call. One reader for all dialects: each has names of its own for what the others lack.

chat         messages with `tool_calls`; answers in `choices`
completions  a `prompt`; answers in `choices`
responses    `input` and `output`: messages, calls and their outputs, one item each
anthropic    messages of blocks (`text`, `tool_use`, `tool_result`); the answer is such a message
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from actors.dialects.conversation import Conversation, Item, Role, dicts, merged, parsed, string, tool_call
from actors.messages import Exchange
from actors.messages.dialects import dialect_at
from actors.ports.tool_answers.reader import flagged

_ROLES: dict[Any, Role] = {
    "system": "system", "developer": "system", "assistant": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_LIMITS = ("length", "max_tokens", "model_context_window_exceeded", "max_output_tokens")
"""Why an answer ended that had more to say."""


def read_conversation(exchange: Exchange) -> Conversation:
    """What was said; empty where the JSON is not what the dialect has there, or where no dialect is spoken."""
    if dialect_at(exchange.endpoint) is None:
        return Conversation(items=())
    bodies = parsed(exchange.request), parsed(exchange.response)
    request, response = (body if isinstance(body, dict) else {} for body in bodies)
    tools = request.get("tools") or request.get("functions")
    return Conversation(
        items=merged(_asked(request)),
        answers=list(_answers(response)),
        tools=msgspec.json.encode(tools) if tools else b"",
    )


def _asked(request: Mapping[str, Any]) -> Iterator[Item]:
    for name in ("system", "instructions"):
        if text := _text(request.get(name)):
            yield Item("system", text)
    said = request.get("messages") or request.get("input") or request.get("prompt")
    if entries := dicts(said):
        for entry in entries:
            yield from _items(entry)
    elif isinstance(said, str | list) and said:
        # A prompt is one thing that a user said, whatever the client's template put into it.
        yield Item("user", _text(said))


def _answers(response: Mapping[str, Any]) -> Iterator[Item]:
    for choice in dicts(response.get("choices")):
        message, text, cut = choice.get("message"), choice.get("text"), choice.get("finish_reason") in _LIMITS
        if isinstance(message, dict) and message:
            yield _answer(message, cut)
        elif isinstance(text, str):
            yield Item("assistant", text, cut=cut)
    if isinstance(response.get("content"), list):
        yield _answer({"content": response["content"]}, response.get("stop_reason") in _LIMITS)
    if isinstance(output := response.get("output"), list):
        said = merged(item for entry in dicts(output) for item in _items(entry) if item.role == "assistant")
        details = response.get("incomplete_details")
        cut = isinstance(details, dict) and details.get("reason") in _LIMITS
        # Who said nothing, or thought and said nothing, has answered, as in a chat.
        yield msgspec.structs.replace(said[0] if said else Item("assistant"), cut=cut)


def _items(entry: dict[str, Any]) -> Iterator[Item]:
    """A message, or an item of the responses API. What clients keep or leave out as they like (reasoning) is none."""
    kind, said, content = string(entry.get("type")), entry.get("role"), entry.get("content")
    if said is not None:
        role = _ROLES.get(said, "user") if isinstance(said, str) else "user"
        if role == "assistant":
            yield _answer(entry)
            return
        results = [block for block in dicts(content) if block.get("type") == "tool_result"]
        for block in results:
            text = flagged(_text(block.get("content")), block.get("is_error") is True)
            yield Item("tool", text, (), string(block.get("tool_use_id")))
        if (text := _text(content)) or not results:
            yield Item(role, text, (), string(entry.get("tool_call_id")) if role == "tool" else "")
    elif kind == "item_reference":
        # The server keeps the answer: the client sends its id alone.
        yield Item("assistant", "", (), "", _refs(entry))
    elif kind.endswith("_output"):
        output = entry.get("output")
        text = msgspec.json.encode(output).decode() if isinstance(output, dict) else _text(output)
        yield Item("tool", text, (), string(entry.get("call_id")))
    elif kind.endswith("_call"):
        arguments = entry.get("arguments", entry.get("input", entry.get("action")))
        call = tool_call(entry.get("name") or kind.removesuffix("_call"), arguments, entry.get("call_id"))
        yield Item("assistant", "", (call,), "", _refs(entry))


def _answer(message: Mapping[str, Any], cut: bool = False) -> Item:
    content = message.get("content")
    blocks = dicts(content)
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    calls = [tool_call(block.get("name"), block.get("input"), block.get("id")) for block in uses]
    told = dicts(message.get("tool_calls"))
    for call in [*told, {"function": message["function_call"]}] if "function_call" in message else told:
        called = call.get("function") or call.get("custom")
        if isinstance(called, dict):
            calls.append(tool_call(called.get("name"), called.get("arguments", called.get("input")), call.get("id")))
    text = _text(content)
    if not text and (blocks or "refusal" in message):
        text = _text([message.get("refusal"), *(part.get("refusal") for part in blocks)])
    return Item("assistant", text, tuple(calls), "", _refs(message) if "type" in message else (), cut)


def _text(content: Any) -> str:
    """The text of a message's content, which is a string, a list of parts, or null."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    return "\n".join(part for part in parts if isinstance(part, str))


def _refs(entry: Mapping[str, Any]) -> tuple[str, ...]:
    found = string(entry.get("id"))
    return (found,) if found else ()
