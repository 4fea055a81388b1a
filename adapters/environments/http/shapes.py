"""What is said over HTTP, in AgentEvolver's shapes (env_service/env_service.py: `ServiceRequest`; env_client.py).

Every request is a POST of `{env_type, task_id, instance_id, messages: {}, params: {}}`, every answer `{success, data}`:

/create           data: {state: [opening messages], reward: 0, is_terminated: false, info: {instance_id, task_id}}
/step             messages: the assistant's message; data: {state: [messages], reward, is_terminated, info}
/evaluate         params: {sparse}; data: a number
/release          data: null
/get_info         data: what the environment says of its tools
/get_env_profile  params: {split}; data: [ids of tasks]

Ours besides: `info` of an opening has tools and stateful; `info` of a step has text, messages (whether `state`
is the environment's own wording) and tools, if they changed; `params.task` of /create is a whole task; /get_env_profile
has `profile` beside `data`; and the routes /sample (params: seed, split, families; data: a task), /get_tools,
/get_state.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from actors.messages import ToolCall

MAX_BYTES = 4 << 20
"""Of a request's or an answer's body."""


class ServiceRequest(msgspec.Struct, kw_only=True):
    """The body of every POST; fields that it does not have are ignored."""

    env_type: str | None = None
    task_id: str | None = None
    instance_id: str | None = None
    messages: dict[str, Any] | None = None
    params: dict[str, Any] | None = None


class Info(msgspec.Struct, kw_only=True):
    """`info` of a state."""

    instance_id: str | None = None
    task_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    stateful: bool = False
    text: str | None = None
    messages: bool = False


class ServiceState(msgspec.Struct, kw_only=True):
    """`data` of /create and /step."""

    state: list[dict[str, Any]]
    reward: float | dict[str, Any] = 0.0
    is_terminated: bool = False
    info: Info | None = None


def said(calls: Sequence[ToolCall], text: str) -> dict[str, Any]:
    """A turn as an assistant's message."""
    functions = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": functions} if functions else {})}


def written(calls: Sequence[ToolCall], text: str) -> dict[str, Any]:
    """The same with the calls in the text too, as AgentEvolver's BFCL environment reads them (Qwen's `<tool_call>`)."""
    told = [
        f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'
        for call in calls
    ]
    return {**said(calls, text), "content": "\n".join([*([text] if text else []), *told])}


def heard(message: dict[str, Any]) -> tuple[tuple[ToolCall, ...], str]:
    """The turn in an assistant's message: calls and text.

    Raises:
        ValueError: it is no such message.
    """
    try:
        turn = msgspec.convert(message, _Message)
    except msgspec.ValidationError as error:
        raise ValueError(f"messages: an assistant's message is wanted: {error}") from error
    calls = tuple(
        ToolCall(
            one.function.name,
            one.function.arguments if isinstance(one.function.arguments, str) else json.dumps(one.function.arguments),
            one.id or "",
        )
        for one in turn.tool_calls or ()
    )
    return calls, turn.content or ""


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None
