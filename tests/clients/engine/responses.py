"""The wire format of /v1/responses, as vLLM with our plug-in writes it."""

import json
from typing import Any

from tests.clients.engine.chat import text_of
from tests.clients.engine.script import Call, Said, logprob


class Memory:
    """Responses that were given: later requests may refer to them, or to one of their items, by id."""

    def __init__(self) -> None:
        self._responses: dict[str, list[dict[str, Any]]] = {}
        self._items: dict[str, dict[str, Any]] = {}

    def keep(self, response_id: str, items: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
        self._responses[response_id] = [*items, *output]
        self._items |= {item["id"]: item for item in output}

    def items(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """All input items of a request, references resolved.

        Raises:
            KeyError: a reference to nothing.
        """
        given = request["input"]
        items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given)
        items = [self._items[item["id"]] if item.get("type") == "item_reference" else item for item in items]
        before = request.get("previous_response_id")
        return [*(self._responses[before] if before else ()), *items]


def told(request: dict[str, Any], items: list[dict[str, Any]]) -> list[Said]:
    """The conversation in a request's input items."""
    found = [Said("system", request["instructions"])] if request.get("instructions") else []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            found.append(Said(item["role"], text_of(item["content"])))
        elif kind == "function_call":
            call = Call(item["name"], item["arguments"], item["call_id"])
            # What the model said in one answer comes back in several items, and is one message of the prompt.
            spoke = bool(found) and found[-1].role == "assistant"
            last = found.pop() if spoke else Said("assistant")
            found.append(Said("assistant", last.text, (*last.calls, call)))
        elif kind == "function_call_output":
            found.append(Said("tool", text_of(item["output"])))
    return found


def tools(request: dict[str, Any]) -> set[str]:
    """Names of the tools on offer."""
    return {tool.get("name", "") for tool in request.get("tools") or ()}


class Response:
    """One answer, to be written whole or as a stream."""

    def __init__(self, request: dict[str, Any], said: Said, prompt: list[int], pieces: list[list[int]], uid: str):
        self.id = f"resp_{uid}"
        self._request, self._said = request, said
        self._words = [bytes(p).decode() for p in pieces[: len(pieces) - 1 - 3 * len(said.calls)]]
        out = sum(len(piece) for piece in pieces)
        self._usage = {
            "input_tokens": len(prompt),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": len(prompt) + out,
        }
        self.output = self._output(uid)
        self._tokens: dict[str, Any] = dict.fromkeys(("input_messages", "output_messages"))
        if request.get("enable_response_messages"):
            every = [token for piece in pieces for token in piece]
            answer = {**_RAW, "tokens": every, "logprobs": [logprob(token) for token in every]}
            self._tokens = {"input_messages": [{**_RAW, "tokens": prompt}], "output_messages": [answer]}

    def whole(self) -> dict[str, Any]:
        return self._object("completed", self.output)

    def events(self) -> list[bytes]:
        """The events of the stream."""
        found = [
            {"type": "response.created", "response": self._object("in_progress", [])},
            {"type": "response.in_progress", "response": self._object("in_progress", [])},
        ]
        for index, item in enumerate(self.output):
            found += self._item_events(index, item)
        found.append({"type": "response.completed", "response": self.whole()})
        return [
            b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json.dumps({**event, "sequence_number": n}).encode())
            for n, event in enumerate(found)
        ]

    def _output(self, uid: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if self._said.text:
            part = {"type": "output_text", "text": self._said.text, "annotations": [], "logprobs": None}
            items.append(_message(f"msg_{uid}", "completed", [part]))
        for number, call in enumerate(self._said.calls):
            items.append(_function_call(f"fc_{uid}{number}", "completed", call, call.arguments))
        return items

    def _item_events(self, index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
        at = {"output_index": index, "item_id": item["id"]}
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        if item["type"] == "function_call":
            written, half = item["arguments"], len(item["arguments"]) // 2
            added = {**item, "status": "in_progress", "arguments": ""}
            delta = {"type": "response.function_call_arguments.delta", **at}
            return [
                {"type": "response.output_item.added", "output_index": index, "item": added},
                {**delta, "delta": written[:half]},
                {**delta, "delta": written[half:]},
                {
                    "type": "response.function_call_arguments.done", **at, "arguments": written, "name": item["name"]
                },
                done,
            ]  # fmt: skip
        at["content_index"] = 0
        part = item["content"][0]
        return [
            {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**item, "status": "in_progress", "content": []},
            },
            {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
            *({"type": "response.output_text.delta", **at, "delta": word, "logprobs": []} for word in self._words),
            {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **at, "part": part},
            done,
        ]

    def _object(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        asked = self._request
        return {
            "id": self.id,
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "output": output,
            **{name: asked.get(name) for name in _ECHOED},
            "parallel_tool_calls": asked.get("parallel_tool_calls", True),
            "temperature": asked.get("temperature", 1.0),
            "top_p": asked.get("top_p", 1.0),
            "tool_choice": asked.get("tool_choice", "auto"),
            "tools": asked.get("tools", []),
            "background": False,
            "service_tier": "auto",
            "truncation": "disabled",
            "error": None,
            "incomplete_details": None,
            "usage": self._usage if status == "completed" else None,
            **(self._tokens if status == "completed" else dict.fromkeys(self._tokens)),
        }


_ECHOED = (
    "model", "instructions", "previous_response_id", "metadata", "max_output_tokens", "reasoning", "text", "user",
)  # fmt: skip
_RAW = {"type": "raw_message_tokens", "message": ""}


def _message(item_id: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def _function_call(item_id: str, status: str, call: Call, arguments: str) -> dict[str, Any]:
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
    }
