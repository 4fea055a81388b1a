"""The wire format of /v1/chat/completions, as vLLM writes it."""

import json
from typing import Any

from tests.clients.engine.script import Call, Said, logprob


def told(request: dict[str, Any]) -> list[Said]:
    """The conversation in a request."""
    found: list[Said] = []
    for message in request["messages"]:
        calls = tuple(
            Call(call["function"]["name"], call["function"]["arguments"], call.get("id", ""))
            for call in message.get("tool_calls") or ()
        )
        found.append(Said(message["role"], text_of(message.get("content")), calls))
    return found


def text_of(content: Any) -> str:
    """The text of a message's content: a string, parts, or nothing."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def tools(request: dict[str, Any]) -> set[str]:
    """Names of the tools on offer."""
    return {tool["function"]["name"] for tool in request.get("tools") or ()}


class Completion:
    """One answer, to be written whole or as a stream."""

    def __init__(self, request: dict[str, Any], said: Said, prompt: list[int], pieces: list[list[int]], uid: str):
        self.id = f"chatcmpl-{uid}"
        self._request, self._said, self._prompt, self._pieces = request, said, prompt, pieces
        self._ids, self._logprobs = bool(request.get("return_token_ids")), bool(request.get("logprobs"))
        self._base = {"id": self.id, "created": 1_700_000_000, "model": request["model"]}

    def whole(self) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": self._said.text or None,
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self._said.calls
            ],
            **dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning")),
        }
        every = [token for piece in self._pieces for token in piece]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._told_logprobs(every),
            "finish_reason": self._finish,
            "stop_reason": None,
            "token_ids": every if self._ids else None,
        }
        return {
            **self._base,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage,
            "prompt_token_ids": self._prompt if self._ids else None,
            **dict.fromkeys(("service_tier", "system_fingerprint", "prompt_logprobs", "kv_transfer_params")),
        }

    def events(self) -> list[bytes]:
        """The events of the stream."""
        first = self._chunk({"role": "assistant", "content": ""})
        first["prompt_token_ids"] = self._prompt if self._ids else None
        found = [first]
        deltas = self._deltas()
        for piece, delta in zip(self._pieces[:-1], deltas, strict=True):
            found.append(self._chunk(delta, piece))
        found.append(self._chunk({"content": ""} if self._said.text else {}, self._pieces[-1], self._finish))
        if (self._request.get("stream_options") or {}).get("include_usage"):
            base = {**self._base, "object": "chat.completion.chunk"}
            found.append({**base, "choices": [], "usage": self._usage})
        return [b"data: %s\n\n" % json.dumps(event).encode() for event in found] + [b"data: [DONE]\n\n"]

    @property
    def _finish(self) -> str:
        return "tool_calls" if self._said.calls else "stop"

    @property
    def _usage(self) -> dict[str, Any]:
        out = sum(len(piece) for piece in self._pieces)
        total = len(self._prompt) + out
        return {"prompt_tokens": len(self._prompt), "total_tokens": total, "completion_tokens": out}

    def _deltas(self) -> list[dict[str, Any]]:
        """What each piece of tokens but the last turns into."""
        words = len(self._pieces) - 1 - 3 * len(self._said.calls)
        found: list[dict[str, Any]] = [{"content": bytes(piece).decode()} for piece in self._pieces[:words]]
        for index, call in enumerate(self._said.calls):
            half = len(call.arguments) // 2
            head = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            for more in (head, _more(call.arguments[:half]), _more(call.arguments[half:])):
                found.append({"tool_calls": [{"index": index, **more}]})
        return found

    def _chunk(self, delta: dict[str, Any], piece: list[int] | None = None, finish: str | None = None):
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        if piece is not None:
            choice["logprobs"] = self._told_logprobs(piece)
            choice["token_ids"] = piece if self._ids else None
        if finish:
            choice["stop_reason"] = None
        return {**self._base, "object": "chat.completion.chunk", "choices": [choice]}

    def _told_logprobs(self, piece: list[int]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        entries = [{"token": str(t), "logprob": logprob(t), "bytes": None, "top_logprobs": []} for t in piece]
        return {"content": entries}


def _more(arguments: str) -> dict[str, Any]:
    return {"function": {"arguments": arguments}}
