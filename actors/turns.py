"""A turn: what stitching needs of an exchange, read once from its JSON so that open trajectories stay small in memory.

A request carries the whole conversation so far; kept whole, an open trajectory would cost the square of its length.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Exchange, Sampling, ToolCall, pack_array

MAX_TEXT = 100_000
"""Characters kept of a goal or an observation: a trajectory is no archive, the exchange is."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One successful chat call."""

    id: str
    """Of the exchange."""
    tenant: str
    started: float
    ended: float
    response_id: str
    explicit: str
    """Trajectory that the call named itself."""
    previous: str
    """Response that it says it follows."""
    answered: tuple[str, ...]
    """Tool calls whose results it carries."""
    history: str
    """Digest of the conversation up to the last answer of the model; empty if there was none yet."""
    future: str
    """Digest of the conversation with this answer: the `history` of the turn that follows."""
    depth: int
    """Answers of the model in the conversation before this one."""
    goal: str
    tools: bytes
    """JSON of the request's tool list."""
    observation: str
    """What came back since the last answer of the model: tool results, or what the user said next."""
    text: str
    tool_calls: tuple[ToolCall, ...]
    prompt_ids: bytes = b""
    response_ids: bytes = b""
    logprobs: bytes = b""
    versions: bytes = b""
    """int32, one a response token, -1 where the engine did not say."""
    temperature: float = 1.0
    why_not: str = ""
    """Why its tokens must not be trained on; empty if they may."""

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        numbers = len(self.prompt_ids) + 4 * len(self.response_ids)
        return 600 + numbers + len(self.goal) + len(self.tools) + len(self.observation) + len(self.text)


def read_turn(exchange: Exchange) -> Turn:
    """The turn in `exchange`; one that cannot be read keeps its place, without text and not to be trained on."""
    request, response = _object(exchange.request), _object(exchange.response)
    messages = [m for m in _list(request.get("messages")) if isinstance(m, Mapping)]
    choices = _list(response.get("choices"))
    answer = choices[0].get("message") if choices and isinstance(choices[0], Mapping) else None
    reply: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    last = max((i for i, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    state, history = hashlib.blake2b(digest_size=16), ""
    for position, message in enumerate(messages):
        state.update(_canonical(message))
        if position == last:
            history = state.hexdigest()
    state.update(_canonical({**reply, "role": "assistant"}))
    since = messages[last + 1 :] if last >= 0 else []
    readable = bool(messages) and bool(reply)
    tokens = _tokens(exchange)
    return Turn(
        id=exchange.id,
        tenant=exchange.tenant,
        started=exchange.started,
        ended=exchange.started + exchange.duration,
        response_id=exchange.response_id,
        explicit=exchange.hints.trajectory_id,
        previous=exchange.hints.previous_response_id,
        answered=exchange.hints.tool_call_ids or _answered(messages),
        history=history,
        future=state.hexdigest(),
        depth=sum(message.get("role") == "assistant" for message in messages),
        goal=next((_text(m.get("content")) for m in messages if m.get("role") == "user"), "")[:MAX_TEXT],
        tools=msgspec.json.encode(request["tools"]) if request.get("tools") else b"",
        observation="\n".join(_text(m.get("content")) for m in since if m.get("role") in ("tool", "user"))[:MAX_TEXT],
        text=_text(reply.get("content"))[:MAX_TEXT],
        tool_calls=_tool_calls(reply),
        prompt_ids=exchange.prompt_ids if tokens else b"",
        response_ids=exchange.response_ids if tokens else b"",
        logprobs=exchange.logprobs if tokens else b"",
        versions=pack_array(_versions(exchange), "<i4") if tokens else b"",
        temperature=exchange.sampling.temperature,
        why_not=_why_not(exchange, readable, tokens),
    )


def _why_not(exchange: Exchange, readable: bool, tokens: bool) -> str:
    sampling: Sampling = exchange.sampling
    if not exchange.complete:
        return "incomplete"
    if exchange.error or not readable:
        return "unreadable"
    if not tokens:
        return "no token ids"
    if sampling.forced:
        return "forced tool choice"
    # Log-probs of the server are those before temperature and nucleus: they describe the policy at T=1, top_p=1 alone.
    if sampling.temperature != 1.0:
        return "temperature"
    return "top_p" if sampling.top_p < 1.0 else ""


def _tokens(exchange: Exchange) -> bool:
    same = len(exchange.logprobs) == len(exchange.response_ids)
    return bool(exchange.prompt_ids and exchange.response_ids) and same


def _versions(exchange: Exchange) -> npt.NDArray[np.int32]:
    versions = np.full(len(exchange.response_ids) // 4, -1, dtype=np.int32)
    for span in exchange.versions:
        versions[max(0, span.start) : max(0, span.end)] = span.version
    return versions


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _text(content: Any) -> str:
    """The text of a message's content, which is a string, a list of parts, or null."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in _list(content) if isinstance(part, Mapping)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for call in _list(message.get("tool_calls")):
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
            calls.append(ToolCall(name, arguments, str(call.get("id") or "")))
    return tuple(calls)


def _answered(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    ids = (message.get("tool_call_id") for message in messages if message.get("role") == "tool")
    return tuple(dict.fromkeys(key for key in ids if isinstance(key, str) and key))


def _canonical(message: Mapping[str, Any]) -> bytes:
    """`message` as the model's answer and the client's echo of it agree on: clients drop nulls, blanks and extras."""
    calls = [(call.id, call.name, call.arguments.strip()) for call in _tool_calls(message)]
    parts = (message.get("role"), _text(message.get("content")).strip(), calls, message.get("tool_call_id"))
    return msgspec.json.encode(parts)
