"""Records as the tap makes them, and all that can be read in what is kept of them."""

import json
from typing import Any

from actors.messages import Exchange
from adapters.intake.tap import read_call
from adapters.redaction import RedactionSettings, Redactor

MAIL = "ann.smith@example.com"
REDACTOR = Redactor(RedactionSettings())


def raw(request: Any = None, response: Any = b"", **fields: Any) -> Exchange:
    """A call; what is no bytes becomes JSON, and a list of events a stream."""
    streamed = isinstance(response, list)
    values: dict[str, Any] = {
        "id": "0" * 32, "endpoint": "/v1/chat/completions", "status": 200, "started": 1.0, "duration": 1.0,
        "streamed": streamed,
        "request": request if isinstance(request, bytes) else json.dumps(request or {}).encode(),
        "response": response if isinstance(response, bytes) else sse(response) if streamed
        else json.dumps(response).encode(),
    }  # fmt: skip
    return Exchange(**values | fields)


def recorded(record: Exchange, redactor: Redactor = REDACTOR, encoding: str = "") -> Exchange:
    """What the recorder writes of `record`."""
    return read_call(record, redactor, encoding=encoding)


def asked(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def answered(text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"} | fields]}


def tool_call(arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": text}}


def chunk(delta: dict[str, Any], index: int = 0, **fields: Any) -> dict[str, Any]:
    """An event of a streamed chat."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | fields
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 17, "model": "m", "choices": [choice]}


def sse(events: list[Any], *, done: bool = True, newline: str = "\n") -> bytes:
    blocks = [f"data: {json.dumps(event)}{newline}{newline}" for event in events]
    return "".join([*blocks, f"data: [DONE]{newline}{newline}" if done else ""]).encode()


def everything(data: bytes) -> str:
    """The text of `data` as it is, and with every level of JSON in it unescaped."""
    found = [data.decode("utf-8", "replace")]

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
            try:
                inner = json.loads(value)
            except ValueError:
                return
            if isinstance(inner, dict | list):
                walk(inner)
        elif isinstance(value, dict):
            walk([*value, *value.values()])
        elif isinstance(value, list):
            for part in value:
                walk(part)
        elif isinstance(value, int):
            found.append(str(value))

    walk(json.loads(data))
    return "\n".join(found)
