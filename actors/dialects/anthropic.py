"""`/v1/messages`: content blocks (text, thinking, tool_use), streamed block by block.

vLLM's plug-in tells the tokens in one object: a field of the answer, or an event of the stream (`evolved_tokens`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import Conversation, Item, as_json, dicts, merged, text_of, tool_call
from actors.dialects.form import NULL, Fields, Merged, Tokens, error_text, pack, value
from actors.ports.tool_answers.reader import flagged

TOKENS = "evolved_tokens"
"""The field of a request that asks for tokens, the field of the answer that has them, and the event of a stream."""
_GROWS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}
"""Type of a delta -> (its field, the field of the block that it extends)."""


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: dict[str, Any] | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)


class _Block:
    """A content block, growing."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.pieces: dict[str, list[str]] = {}
        self.json: list[str] = []
        self.other: list[Any] = []

    def add(self, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "input_json_delta":
            self.json.append(str(delta.get("partial_json") or ""))
        elif kind == "citations_delta":
            self.other.append(delta.get("citation"))
        elif isinstance(kind, str) and kind in _GROWS:
            source, field = _GROWS[kind]
            self.pieces.setdefault(field, []).append(str(delta.get(source) or ""))

    def whole(self) -> dict[str, Any]:
        made = dict(self.start)
        for field, pieces in self.pieces.items():
            made[field] = str(made.get(field) or "") + "".join(pieces)
        if text := "".join(self.json):
            try:
                made["input"] = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                # Cut off in the middle: what there is of it.
                made["input"] = text
        if self.other:
            known = made.get("citations")
            made["citations"] = [*(known if isinstance(known, list) else ()), *self.other]
        return made


def merge(events: Sequence[bytes]) -> Merged:
    message: dict[str, Any] | None = None
    tokens: bytes = b""
    blocks: dict[int, _Block] = {}
    error, stopped = "", False
    for data in events:
        event = _EVENT.decode(data)
        if event.type == "message_start":
            message = event.message
        elif event.type == "content_block_start" and event.content_block is not None:
            blocks[event.index] = _Block(event.content_block)
        elif event.type == "content_block_delta" and event.delta is not None:
            blocks.setdefault(event.index, _Block({"type": "text", "text": ""})).add(event.delta)
        elif event.type == "message_delta" and message is not None:
            message |= event.delta or {}
            if event.usage is not None:
                known = message.get("usage")
                message["usage"] = {**(known if isinstance(known, dict) else {}), **event.usage}
        elif event.type == "message_stop":
            stopped = True
        elif event.type == TOKENS:
            tokens = data
        elif event.error is not None:
            error = error or error_text(event.error)
    if message is None:
        return Merged([msgspec.Raw(data) for data in events], False, error or "a stream of an unknown form")
    if tokens:
        message[TOKENS] = msgspec.Raw(tokens)
    message["content"] = [blocks[index].whole() for index in sorted(blocks)]
    return Merged(message, stopped and message.get("stop_reason") is not None and not error, error)


def ended(body: Fields) -> bool:
    return value(body, "type") != "message" or value(body, "stop_reason") is not None


class _Told(msgspec.Struct):
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    weight_versions: Any = None


_TOLD = msgspec.json.Decoder(_Told | None)


def tokens(body: Fields) -> Tokens:
    told = _TOLD.decode(body.get(TOKENS, NULL))
    if told is None:
        # Its engine runs without the plug-in.
        return Tokens(why="no token ids from /v1/messages")
    return pack(told.prompt_token_ids, told.token_ids, told.logprobs, told.weight_versions)


_LIMITS = ("max_tokens", "model_context_window_exceeded")


def read(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    items: list[Item] = []
    if system := text_of(request.get("system")):
        items.append(Item("system", system))
    for message in dicts(request.get("messages")):
        if message.get("role") == "assistant":
            items.append(_answer(message.get("content")))
        else:
            items += _said(message.get("content"))
    answered = isinstance(response.get("content"), list)
    return Conversation(
        items=merged(items),
        answers=[_answer(response["content"], response.get("stop_reason") in _LIMITS)] if answered else [],
        tools=as_json(request.get("tools")),
    )


def _answer(content: Any, cut: bool = False) -> Item:
    if not isinstance(content, list):
        return Item("assistant", text_of(content), cut=cut)
    calls = [block for block in dicts(content) if block.get("type") == "tool_use"]
    called = tuple(tool_call(call.get("name"), call.get("input"), call.get("id")) for call in calls)
    return Item("assistant", text_of(_texts(content)), called, cut=cut)


def _said(content: Any) -> Iterator[Item]:
    """Tool results first, as the API wants them; then what the user said."""
    if not isinstance(content, list):
        yield Item("user", text_of(content))
        return
    for block in dicts(content):
        if block.get("type") == "tool_result":
            call_id = block.get("tool_use_id")
            text = flagged(text_of(block.get("content")), block.get("is_error") is True)
            yield Item("tool", text, (), call_id if isinstance(call_id, str) else "")
    if texts := _texts(content):
        yield Item("user", text_of(texts))


def _texts(content: Any) -> list[dict[str, Any]]:
    return [block for block in dicts(content) if block.get("type") == "text" and isinstance(block.get("text"), str)]
