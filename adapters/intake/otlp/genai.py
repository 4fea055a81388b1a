"""OpenTelemetry's GenAI conventions: messages in a span's attributes.

gen_ai.input.messages, gen_ai.output.messages: JSON text of [{role, parts: [{type, ...}], finish_reason}]
"""

from collections.abc import Mapping
from typing import Any

from actors.dialects.conversation import as_text, dicts, string
from adapters.intake.otlp.said import Message, Said, chat, decoded, message

_CALLS = ("chat", "text_completion", "generate_content", "")
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_ENDS = {"tool_call": "tool_calls"}
"""Reasons for an end that chat completions call otherwise."""


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a span with `attributes` is a call of a model: agents, tools and embeddings have spans as well."""
    if not any(name in attributes for name in ("gen_ai.provider.name", "gen_ai.system", _INPUT)):
        return False
    return string(attributes.get("gen_ai.operation.name")) in _CALLS


def read_attributes(attributes: Mapping[str, Any]) -> Said | None:
    """The call in a span's attributes; None if its content was not captured."""
    system = {"role": "system", "parts": decoded(attributes.get("gen_ai.system_instructions"))}
    messages = [said for said in _messages(system) if said["content"]]
    for told in dicts(decoded(attributes.get(_INPUT))):
        messages += _messages(told)
    answers: list[tuple[Message, str]] = []
    for told in dicts(decoded(attributes.get(_OUTPUT))):
        reason = string(told.get("finish_reason"))
        answers.append((_messages({"role": "assistant", **told})[0], _ENDS.get(reason, reason)))
    return chat(messages, answers, attributes, decoded(attributes.get("gen_ai.tool.definitions")))


def _messages(told: Mapping[str, Any]) -> list[Message]:
    """One message of the conventions as those of chat completions: each result of a tool is one of its own."""
    found = told.get("parts")
    parts = [{"content": part} if isinstance(part, str) else part for part in found] if isinstance(found, list) else []
    if not dicts(parts):
        # As the conventions had it before there were parts.
        answered = told.get("id") or told.get("tool_call_id") if told.get("role") == "tool" else ""
        return [message(told.get("role"), told.get("content"), told.get("tool_calls"), answered)]
    said: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    thoughts: list[str] = []
    for part in dicts(parts):
        match part.get("type"):
            case "text" | None:
                said.append({"type": "text", "text": string(part.get("content"))})
            case "reasoning":
                thoughts.append(string(part.get("content")))
            case "tool_call":
                calls.append(part)
            case "tool_call_response":
                results.append(message("tool", as_text(part.get("response", part.get("result"))), (), part.get("id")))
            case _:
                # Pictures and files: that there was one is worth knowing, its bytes are not.
                said.append({name: value for name, value in part.items() if name not in ("content", "data")})
    if results and not (said or calls):
        return results
    whole = message(told.get("role"), said[0]["text"] if len(said) == 1 and "text" in said[0] else said or None, calls)
    return [*results, whole | ({"reasoning_content": "\n".join(thoughts)} if thoughts else {})]
