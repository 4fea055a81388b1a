"""The wire format of /v1/messages, as vLLM with our plug-in writes it."""

import json
from typing import Any

from tests.clients.engine.chat import text_of
from tests.clients.engine.script import Call, Said, logprob

FIELD = "evolved_tokens"


def told(request: dict[str, Any]) -> list[Said]:
    """The conversation in a request."""
    found = [Said("system", text_of(request["system"]))] if request.get("system") else []
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            calls = tuple(
                Call(block["name"], json.dumps(block["input"]), block["id"])
                for block in blocks
                if block["type"] == "tool_use"
            )
            found.append(Said("assistant", text_of(blocks), calls))
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                found.append(Said("tool", text_of(block.get("content"))))
        words = "".join(block["text"] for block in blocks if block["type"] == "text")
        if words:
            found.append(Said("user", words))
    return found


def tools(request: dict[str, Any]) -> set[str]:
    """Names of the tools on offer."""
    return {tool["name"] for tool in request.get("tools") or ()}


class Message:
    """One answer, to be written whole or as a stream."""

    def __init__(self, request: dict[str, Any], said: Said, prompt: list[int], pieces: list[list[int]], uid: str):
        self.id = f"chatcmpl-{uid}"
        every = [token for piece in pieces for token in piece]
        self._model, self._said = request["model"], said
        self._words = [bytes(p).decode() for p in pieces[: len(pieces) - 1 - 3 * len(said.calls)]]
        self._usage = {"input_tokens": len(prompt), "output_tokens": len(every)}
        self._tokens: dict[str, Any] = {}
        if request.get(FIELD) is True:
            logprobs = [logprob(token) for token in every]
            self._tokens = {"prompt_token_ids": prompt, "token_ids": every, "logprobs": logprobs}

    def whole(self) -> dict[str, Any]:
        text = [{"type": "text", "text": self._said.text}] if self._said.text else []
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
            for call in self._said.calls
        ]
        answer = self._object([*text, *calls], self._stop)
        return answer | ({FIELD: self._tokens} if self._tokens else {})

    def events(self) -> list[bytes]:
        """The events of the stream."""
        found: list[dict[str, Any]] = [{"type": "message_start", "message": self._object([], None)}]
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if self._said.text:
            deltas = [{"type": "text_delta", "text": word} for word in self._words]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call in self._said.calls:
            half = len(call.arguments) // 2
            parts = (call.arguments[:half], call.arguments[half:])
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas))
        for index, (start, deltas) in enumerate(blocks):
            found.append({"type": "content_block_start", "index": index, "content_block": start})
            found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            found.append({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": self._stop, "stop_sequence": None}
        found.append({"type": "message_delta", "delta": stop, "usage": self._usage})
        if self._tokens:
            found.append({"type": FIELD, **self._tokens})
        found.append({"type": "message_stop"})
        return [b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in found]

    @property
    def _stop(self) -> str:
        return "tool_use" if self._said.calls else "end_turn"

    def _object(self, content: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
        base = {"id": self.id, "type": "message", "role": "assistant", "content": content, "model": self._model}
        return {**base, "stop_reason": stop, "stop_sequence": None, "usage": self._usage}
