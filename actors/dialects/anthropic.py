"""`/v1/messages`: content blocks (text, thinking, tool_use), streamed block by block.

vLLM's plug-in tells the tokens in one object: a field of the answer, or an event of the stream (`evolved_tokens`).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import parsed
from actors.dialects.form import NULL, UNKNOWN, Fields, Tokens, error_text, pack, value

TOKENS = "evolved_tokens"
"""The field of a request that asks for tokens, the field of the answer that has them, and the event of a stream."""
_GROWS = ("text", "thinking", "signature", "partial_json")
"""Fields of deltas that extend a block; `partial_json` its input."""


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: dict[str, Any] | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)


def merge(events: Sequence[bytes]) -> tuple[Any, str]:
    message: dict[str, Any] | None = None
    tokens: bytes = b""
    blocks: dict[int, tuple[dict[str, Any], dict[str, list[str]]]] = {}
    """A block as it began, and the pieces that it grew by."""
    error, stopped = "", False
    for data in events:
        event = _EVENT.decode(data)
        if event.type == "message_start":
            message = event.message
        elif event.type == "content_block_start" and event.content_block is not None:
            blocks[event.index] = event.content_block, {}
        elif event.type == "content_block_delta" and event.delta is not None:
            _, pieces = blocks.setdefault(event.index, ({"type": "text", "text": ""}, {}))
            for name in _GROWS:
                if isinstance(piece := event.delta.get(name), str):
                    pieces.setdefault(name, []).append(piece)
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
        return None, error or UNKNOWN
    if tokens:
        message[TOKENS] = msgspec.Raw(tokens)
    if not stopped:
        message["stop_reason"] = None
    message["content"] = [_whole(*blocks[index]) for index in sorted(blocks)]
    return message, error


def _whole(block: dict[str, Any], pieces: dict[str, list[str]]) -> dict[str, Any]:
    texts = {name: "".join(found) for name, found in pieces.items()}
    if text := texts.pop("partial_json", ""):
        made = parsed(text)
        # Cut off in the middle: what there is of it.
        block["input"] = text if made is None else made
    return block | {name: str(block.get(name) or "") + text for name, text in texts.items()}


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
        return Tokens(why_no_tokens="no token ids from /v1/messages")
    return pack(told.prompt_token_ids, told.token_ids, told.logprobs, told.weight_versions)
