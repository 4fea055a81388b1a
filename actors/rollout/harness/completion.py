"""An engine's answer to `chat`, read into one `Completion`: text, calls, exact token ids with log-probs, versions."""

from typing import Any

import msgspec

from actors.messages import ToolCall, VersionSpan, token_versions, version_number
from actors.ports.environments import Observation
from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.choice import Choice


class Completion(msgspec.Struct, frozen=True):
    """One response, in our terms."""

    id: str
    text: str
    calls: tuple[ToolCall, ...]
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    """One a sampled id, -1 where the engine does not say."""
    cut: bool = False
    """The engine stopped at a limit of tokens."""


class _Span(msgspec.Struct):
    version: str | int
    start: int
    end: int


class _Choice(Choice):
    token_ids: list[int] | None = None
    weight_versions: list[_Span] | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice]
    id: str = ""
    prompt_token_ids: list[int] | None = None


def read(body: dict[str, Any]) -> Completion:
    """The turn that `body`, a chat completion, holds.

    Raises:
        EpisodeLost: it is malformed, or does not say the exact ids and log-probs.
    """
    try:
        response = msgspec.convert(body, _Response, strict=False)
        choice = response.choices[0]
        calls = choice.calls
    except (ValueError, IndexError) as error:
        raise EpisodeLost("malformed_response", error) from error
    ids = choice.token_ids or []
    logprobs = choice.sampled
    if response.prompt_token_ids is None or len(logprobs) != len(ids) or not ids:
        raise EpisodeLost("no_token_ids", f"{len(ids)} ids, {len(logprobs)} log-probs")
    spans = (VersionSpan(version_number(str(one.version)), one.start, one.end) for one in choice.weight_versions or ())
    return Completion(
        id=response.id,
        text=choice.text,
        calls=calls,
        prompt=response.prompt_token_ids,
        ids=ids,
        logprobs=logprobs,
        versions=token_versions(spans, len(ids)).tolist(),
        cut=choice.finish_reason == "length",
    )


def said(turn: Completion) -> dict[str, Any]:
    """The turn as a message of later requests."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    elif not turn.text:
        message["content"] = ""
    return message


def answered(calls: tuple[ToolCall, ...], seen: Observation) -> tuple[dict[str, Any], ...]:
    """What came back for `calls`, as messages of later requests."""
    tool = {"role": "tool", "content": seen.text, "tool_call_id": calls[0].id if calls else "none"}
    return seen.messages or (tool,)
