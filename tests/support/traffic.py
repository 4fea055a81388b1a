"""Exchanges of an agent that works in steps, as the tap would report them."""

import json
from typing import Any

from sqlalchemy import select

from actors.messages import Exchange, Feedback, Hints, Sampling, VersionSpan, pack_array
from actors.store import Store
from actors.store.runs import bodies
from actors.store.tables import Reports

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
END = 2
"""Token that ends a turn."""


def exchange(
    run: str,
    number: int,
    *,
    tenant: str = "default",
    explicit: bool = False,
    call_ids: bool = True,
    version: int = 0,
    started: float | None = None,
    tokens: bool = True,
    dialect: str = "chat",
    **fields: Any,
) -> Exchange:
    """Call `number` (0, 1, ...) of the run `run`: each answer is one tool call, whose result the next request carries.

    Prompts extend each other: 10 tokens of opening, 4 of answer, 3 of observation, and so on. `dialect` is one of
    "chat", "responses" and "anthropic": the same conversation on another endpoint.
    """
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "desk"},
        {"role": "user", "content": f"goal of {run}"},
    ]
    for past in range(number):
        messages.append({"role": "assistant", "content": None, "tool_calls": [_call(run, past, call_ids)]})
        messages.append({"role": "tool", "content": f"result {past}", "tool_call_id": _call_id(run, past, call_ids)})
    reply = {"role": "assistant", "content": "", "tool_calls": [_call(run, number, call_ids)], "refusal": None}
    key = f"{tenant}-{run}-{number}"
    endpoint, request, response = SPOKEN[dialect](f"r-{key}", messages, reply)
    at = 100.0 + 10 * number if started is None else started
    prompt = [1] * 10
    for past in range(number):
        prompt += [*_sampled(past), 5, 6, 7]
    sampled = _sampled(number)
    values: dict[str, Any] = {
        "id": f"x-{key}",
        "tenant": tenant,
        "endpoint": endpoint,
        "started": at,
        "duration": 0.5,
        "status": 200,
        "request": json.dumps(request).encode(),
        "response": json.dumps(response).encode(),
        "response_id": f"r-{key}",
        "prompt_ids": pack_array(prompt, "<i4") if tokens else b"",
        "response_ids": pack_array(sampled, "<i4") if tokens else b"",
        "logprobs": pack_array([-0.5] * len(sampled), "<f4") if tokens else b"",
        "versions": (VersionSpan(version, 0, len(sampled)),),
        "sampling": Sampling(),
        "hints": Hints(trajectory_id=run if explicit else ""),
    }
    return Exchange(**{**values, **fields})


def without_tools(run: str, number: int, ask: str = "Give this conversation a title.") -> bytes:
    """The request of call `number`, asking for something beside the work instead."""
    request = json.loads(exchange(run, number).request)
    del request["tools"]
    request["messages"].append({"role": "user", "content": ask})
    return json.dumps(request).encode()


def feedback(run: str, number: int, outcome: float | None = 1.0, *, tenant: str = "default", **fields: Any) -> Feedback:
    """What was said of call `number` of `run`, by its response id."""
    key = f"{tenant}-{run}-{number}"
    values: dict[str, Any] = {
        "id": f"f-{key}", "received": 1000.0 + number, "tenant": tenant, "response_id": f"r-{key}", "outcome": outcome,
    }  # fmt: skip
    return Feedback(**{**values, **fields})


def _sampled(number: int) -> list[int]:
    return [100 + number, 101 + number, 102 + number, END]


def _call_id(run: str, number: int, unique: bool) -> str:
    return f"call-{run}-{number}" if unique else "call_0"


def _call(run: str, number: int, unique: bool) -> dict[str, Any]:
    function = {"name": "search", "arguments": json.dumps({"run": run, "n": number})}
    return {"id": _call_id(run, number, unique), "type": "function", "function": function}


def in_chat(response_id: str, messages: list[dict], reply: dict) -> tuple[str, dict, dict]:
    """(endpoint, request, response) of a call that has said `messages` and is answered with `reply`."""
    request = {"model": "m", "messages": messages, "tools": TOOLS}
    return "/v1/chat/completions", request, {"id": response_id, "choices": [{"message": reply}]}


def in_responses(response_id: str, messages: list[dict], reply: dict) -> tuple[str, dict, dict]:
    """The same on the responses API, as its clients send it: without ids and status of the items."""
    items: list[dict] = []
    for message in messages:
        if message["role"] == "tool":
            items.append(
                {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
            )
        elif message["role"] == "assistant":
            items += _items(message)
        elif message["role"] == "user":
            items.append({"role": "user", "content": [{"type": "input_text", "text": message["content"]}]})
    system = "".join(message["content"] for message in messages if message["role"] == "system")
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    output = [{**item, "id": f"{response_id}-{n}", "status": "completed"} for n, item in enumerate(_items(reply))]
    request = {"model": "m", "instructions": system, "input": items, "tools": tools}
    return "/v1/responses", request, {"id": response_id, "status": "completed", "output": output}


def in_anthropic(response_id: str, messages: list[dict], reply: dict) -> tuple[str, dict, dict]:
    """The same on Anthropic's messages API."""
    said: list[dict] = []
    for message in messages:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            said.append({"role": "user", "content": [block]})
        elif message["role"] != "system":
            said.append({"role": message["role"], "content": _blocks(message)})
    system = [{"type": "text", "text": message["content"]} for message in messages if message["role"] == "system"]
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in TOOLS]
    request = {"model": "m", "system": system, "messages": said, "tools": tools, "max_tokens": 64}
    response = {"id": response_id, "type": "message", "role": "assistant", "content": _blocks(reply)}
    return "/v1/messages", request, {**response, "stop_reason": "tool_use" if reply.get("tool_calls") else "end_turn"}


SPOKEN = {"chat": in_chat, "responses": in_responses, "anthropic": in_anthropic}


def _items(message: dict) -> list[dict]:
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": message["content"]}]}]
    calls = [
        {"type": "function_call", "call_id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()
    ]
    return [*(said if message["content"] else []), *calls]


def _blocks(message: dict) -> list[dict]:
    said = [{"type": "text", "text": message["content"]}] if message["content"] else []
    calls = message.get("tool_calls") or ()
    return said + [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in calls
    ]


async def unjoined(store: Store) -> set[str]:
    """Ids of the feedback that no run has."""
    return {one.id for one in await store.ask(bodies, select(Reports.body).where(Reports.joined == ""), Feedback)}


async def said_of(store: Store, run: str) -> list[Feedback]:
    """What was said of the run with this id, oldest first."""
    wanted = select(Reports.body).where(Reports.joined == run).order_by(Reports.received, Reports.id)
    return await store.ask(bodies, wanted, Feedback)
