"""Records as the tap makes them, and all that can be read in what is kept of them."""

import base64
import binascii
import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from actors.messages import Feedback
from actors.messages.spool import RawExchange
from adapters.redaction import RedactionSettings, Redactor

MAIL, KEY = "ann.smith@example.com", "sk-proj-4fGh7JkLmN0pQrStUvWx12345678"
SSE = "text/event-stream; charset=utf-8"
REDACTOR = Redactor(RedactionSettings())


def raw(request: Any = None, response: Any = b"", **fields: Any) -> RawExchange:
    """A call; what is no bytes becomes JSON, and a list of events a stream."""
    streamed = isinstance(response, list)
    values: dict[str, Any] = {
        "id": "0" * 32, "path": "/v1/chat/completions", "status": 200, "received": 1.0, "finished": 2.0,
        "content_type": SSE if streamed else "application/json",
        "request": request if isinstance(request, bytes) else json.dumps(request or {}).encode(),
        "response": response if isinstance(response, bytes) else sse(response) if streamed
        else json.dumps(response).encode(),
    }  # fmt: skip
    return RawExchange(**values | fields)


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


def events(data: bytes) -> list[Any]:
    blocks = data.replace(b"\r\n", b"\n").split(b"\n\n")
    return [json.loads(block.partition(b"data: ")[2]) for block in blocks if b"data: {" in block]


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


def planted(name: str) -> list[dict[str, str]]:
    """Texts with a secret in each, 200 to work with (`frozen`) and 100 of other shapes that are only measured
    (`sealed`); frozen before any pattern was looked at. They stand backwards in their file, for a repository with keys
    in it is refused by whoever scans it."""
    lines = (Path(__file__).parents[3] / "data" / "planted" / f"{name}.jsonl").read_text().splitlines()
    return [one | {part: one[part][::-1] for part in ("text", "secret")} for one in map(json.loads, lines)]


def kept_of(text: str, place: str) -> list[str]:
    """What anybody can read of `text`, sent where `place` says: as it is kept, without JSON's, HTML's and URLs'
    escapes, and base64 decoded."""
    kept = _kept(text, place)
    forms = [
        kept,
        unquote(kept),
        html.unescape(kept),
        kept.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"),
    ]
    forms.append(re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), kept))
    for found in re.findall(r"[A-Za-z0-9+/_-]{8,}={0,2}", kept):
        bare = found.rstrip("=")
        try:
            forms.append(base64.b64decode(bare + "=" * (-len(bare) % 4), b"-_").decode())
        except (binascii.Error, ValueError):
            continue
    return forms


def _kept(text: str, place: str) -> str:
    if place == "header":
        return ""  # none is kept
    if place == "feedback":
        return REDACTOR.feedback(Feedback(id="0" * 32, received=1.0, text=text)).text
    if place == "stream":
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
        logprobs = [{"token": piece, "logprob": -0.25, "bytes": list(piece.encode())} for piece in pieces]
        made = [
            chunk({"content": piece}, token_ids=[at], logprobs={"content": [logprobs[at]]})
            for at, piece in enumerate(pieces)
        ]
        told = events(REDACTOR.exchange(raw({}, made)).response)
        return "".join(one["choices"][0]["delta"].get("content") or "" for one in told)
    if place == "assistant":
        return json.loads(REDACTOR.exchange(raw({}, answered(text))).response)["choices"][0]["message"]["content"]
    message: dict[str, Any] = {"role": {"tool_result": "tool", "system": "system"}.get(place, "user"), "content": text}
    if place == "tool_arguments":
        call = tool_call(text if text.startswith("{") else {"text": text})
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    (kept,) = json.loads(REDACTOR.exchange(raw({"messages": [message]})).request)["messages"]
    return kept["content"] or kept["tool_calls"][0]["function"]["arguments"]
