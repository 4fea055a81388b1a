"""What requests of the three dialects say: the conversation, the tools on offer, and responses that they refer to."""

import json
from typing import Any

from tests.clients.engine.script import Call, Said


def text_of(content: Any) -> str:
    """The text of a message's content: a string, parts, or nothing."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def tools(request: dict[str, Any]) -> set[str]:
    """Names of the tools on offer."""
    return {tool.get("function", tool).get("name", "") for tool in request.get("tools") or ()}


def chat(request: dict[str, Any]) -> list[Said]:
    """The conversation in a request for /v1/chat/completions."""
    found: list[Said] = []
    for message in request["messages"]:
        calls = tuple(
            Call(call["function"]["name"], call["function"]["arguments"], call.get("id", ""))
            for call in message.get("tool_calls") or ()
        )
        found.append(Said(message["role"], text_of(message.get("content")), calls))
    return found


def messages(request: dict[str, Any]) -> list[Said]:
    """The conversation in a request for /v1/messages."""
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


def responses(request: dict[str, Any]) -> list[Said]:
    """The conversation in a request for /v1/responses whose input has no references."""
    found = [Said("system", request["instructions"])] if request.get("instructions") else []
    for item in request["input"]:
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


class Memory:
    """Responses that were given: later requests may refer to them, or to one of their items, by id."""

    def __init__(self) -> None:
        self._responses: dict[str, list[dict[str, Any]]] = {}
        self._items: dict[str, dict[str, Any]] = {}

    def keep(self, request: dict[str, Any], response: dict[str, Any]) -> None:
        """A response to a `resolved` request; those of other dialects have no output."""
        output = response.get("output", [])
        self._responses[response["id"]] = [*request.get("input", ()), *output]
        self._items |= {item["id"]: item for item in output}

    def resolved(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request with all its input items in it, if it has any.

        Raises:
            KeyError: a reference to nothing.
        """
        given = request.get("input", [])
        items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        items = [self._items[item["id"]] if item.get("type") == "item_reference" else item for item in items]
        before = request.get("previous_response_id")
        return request | {"input": [*(self._responses[before] if before else ()), *items]}
