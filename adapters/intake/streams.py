"""A streamed response, merged into the object that the same call without `stream` would have given."""

from collections.abc import Iterable
from typing import Any

import msgspec

_CONCATENATED = ("content", "reasoning_content", "reasoning", "refusal")
_FIRST_OF_ALL = ("id", "created", "model", "system_fingerprint", "service_tier", "prompt_token_ids", "prompt_logprobs")
_LAST_OF_ALL = ("usage", "kv_transfer_params", "metrics")
_LAST_OF_CHOICE = ("finish_reason", "stop_reason", "weight_versions")


class Merged(msgspec.Struct):
    """What became of a stream."""

    body: Any
    """The response object; the list of events if their form is unknown."""
    finished: bool
    """The stream came to its own end."""
    error: str = ""
    """What the engine, or the merging, complained of."""


def merge(body: bytes) -> Merged:
    """The response in the server-sent events of `body`. Never raises for what an engine may send."""
    events, broken = _events(body)
    done = bool(events) and events[-1] == "[DONE]"
    objects = [event for event in events if isinstance(event, dict)]
    complaint = f"{broken} events that are no JSON" if broken else ""
    for event in objects:
        # /v1/responses repeats the whole response in its last event.
        if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
            return Merged(event.get("response"), True, complaint)
    failed = next((event["error"] for event in objects if "error" in event), None)
    chunks = [event for event in objects if isinstance(event.get("choices"), list)]
    if failed is not None:
        text = failed.get("message", failed) if isinstance(failed, dict) else failed
        complaint = f"the engine broke off: {text}"
    if not chunks:
        return Merged(objects, done, complaint or "a stream of an unknown form")
    try:
        merged = _merge_chunks(chunks)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return Merged(objects, done, f"a stream that cannot be merged: {error!r}")
    ended = all(choice["finish_reason"] is not None for choice in merged["choices"])
    return Merged(merged, ended and failed is None, complaint)


def _events(body: bytes) -> tuple[list[Any], int]:
    """The data of each event, decoded, and how many could not be; the end mark as text."""
    events: list[Any] = []
    broken = 0
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = (line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
        data = b"\n".join(lines)
        if not data:
            continue
        if data.strip() == b"[DONE]":
            events.append("[DONE]")
            continue
        try:
            events.append(msgspec.json.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            broken += 1
    return events, broken


def _merge_chunks(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    text = any("text" in choice for chunk in chunks for choice in chunk["choices"])
    for chunk in chunks:
        for key in _FIRST_OF_ALL:
            if whole.get(key) is None and chunk.get(key) is not None:
                whole[key] = chunk[key]
        _keep_last(whole, chunk, _LAST_OF_ALL)
        for part in chunk["choices"]:
            index = int(part.get("index", 0))
            if index not in choices:
                choices[index] = _new_choice(index, text)
            _add(choices[index], part)
    whole["object"] = "text_completion" if text else "chat.completion"
    whole["choices"] = [_close(choices[index]) for index in sorted(choices)]
    return whole


def _new_choice(index: int, text: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": index, "finish_reason": None, "logprobs": None}
    return choice | ({"text": ""} if text else {"message": {"role": "assistant", "content": None}})


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    _keep_last(choice, part, _LAST_OF_CHOICE)
    if part.get("token_ids") is not None:
        choice.setdefault("token_ids", []).extend(part["token_ids"])
    if part.get("logprobs") is not None:
        choice["logprobs"] = choice["logprobs"] or {}
        for key, values in part["logprobs"].items():
            if isinstance(values, list):
                choice["logprobs"].setdefault(key, []).extend(values)
    if "text" in choice:
        choice["text"] += part.get("text") or ""
        return
    message, delta = choice["message"], part.get("delta") or {}
    if delta.get("role"):
        message["role"] = delta["role"]
    for key in _CONCATENATED:
        if delta.get(key) is not None:
            message[key] = (message.get(key) or "") + delta[key]
    _add_calls(message, delta.get("tool_calls") or ())
    if isinstance(delta.get("function_call"), dict):
        call = message.setdefault("function_call", {"name": "", "arguments": ""})
        for key in call:
            call[key] += delta["function_call"].get(key) or ""


def _add_calls(message: dict[str, Any], parts: Iterable[dict[str, Any]]) -> None:
    calls = message.setdefault("tool_calls", []) if parts else []
    for part in parts:
        index = part.get("index", 0)
        call = next((known for known in calls if known["index"] == index), None)
        if call is None:
            call = {"index": index, "id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            calls.append(call)
        call["id"] = part.get("id") or call["id"]
        call["type"] = part.get("type") or call["type"]
        function = part.get("function") or {}
        for key in ("name", "arguments"):
            call["function"][key] += function.get(key) or ""


def _close(choice: dict[str, Any]) -> dict[str, Any]:
    calls = choice.get("message", {}).get("tool_calls")
    if calls:
        calls.sort(key=lambda call: call["index"])
        for call in calls:
            del call["index"]
        # The opening event says "" where the plain response says null.
        choice["message"]["content"] = choice["message"]["content"] or None
    return choice


def _keep_last(into: dict[str, Any], part: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if part.get(key) is not None:
            into[key] = part[key]
