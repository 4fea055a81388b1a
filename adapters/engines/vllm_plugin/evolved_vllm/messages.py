"""Token ids, log-probs and weight versions beside the answers of `/v1/messages`.

vLLM (0.32) answers a message by way of a chat of its own, and its answer has no field for ids or log-probs. A request
that says `"evolved_tokens": true` (vLLM skips fields that it does not know) is sampled with log-probs (of the sampled
token, no alternatives), and what the engine's output carried of them is told once, at the end:

    plain    the last field of the answer:        "evolved_tokens": {...}
    stream   an event before `message_stop`:      event: evolved_tokens
                                                  data: {"type": "evolved_tokens", ...}

with `prompt_token_ids`, `token_ids`, `logprobs` (a number a token) and `weight_versions`. All other bytes are what they
would be: the chat in between is not asked for ids, so it makes no events for them. A request that does not say so is
answered as ever.
"""

import contextlib
import contextvars
import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

FIELD = "evolved_tokens"
"""The field of the request, of the plain answer, and the name of the event."""


class _Taken:
    """What an engine gave for one call."""

    def __init__(self) -> None:
        self.prompt: list[int] = []
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[dict[str, Any]] = []
        self.whole = True

    def take(self, output: Any) -> None:
        """A `RequestOutput`: the next piece of a stream, or all there is. An answer never fails for it."""
        try:
            if not self.prompt:
                self.prompt = [int(token) for token in output.prompt_token_ids or ()]
            (piece,) = output.outputs
            ids = [int(token) for token in piece.token_ids]
            self.logprobs += [
                float(entry[token].logprob) for token, entry in zip(ids, piece.logprobs or (), strict=True)
            ]
            self.ids += ids
            for span in piece.weight_versions or ():
                self.versions.append({"version": str(span.version), "start": span.start, "end": span.end})
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self.whole = False

    def told(self) -> dict[str, Any] | None:
        """As JSON; None if a part is missing. JSON has no word for an infinity."""
        if not self.whole or not self.prompt or not self.ids or not all(map(math.isfinite, self.logprobs)):
            return None
        told: dict[str, Any] = {
            "prompt_token_ids": self.prompt,
            "token_ids": self.ids,
            "logprobs": self.logprobs,
        }
        return told | {"weight_versions": self.versions} if self.versions else told


_TAKING: contextvars.ContextVar[_Taken | None] = contextvars.ContextVar("evolved_taking", default=None)
"""Of the call that this task is answering; each has a task of its own."""


def give_tokens(serving: type[Any], chat: type[Any], message: type[Any]) -> None:
    """Change AnthropicMessages' serving and answer, and ChatCompletionRequest; doing it twice does no harm.
    AttributeError: a vLLM whose classes are made otherwise, and nothing has been changed."""
    create: Callable[..., Any] = serving.create_messages
    full: Callable[..., Any] = serving.chat_completion_full_generator
    stream: Callable[..., Any] = serving.chat_completion_stream_generator
    sampling: Callable[..., Any] = chat.to_sampling_params
    if hasattr(create, _OURS):
        return

    class Told(message):
        """The answer, with one field more."""

        evolved_tokens: Any = None

    async def create_messages(self: Any, request: Any, raw_request: Any = None) -> Any:
        if not await _asked(raw_request):
            return await create(self, request, raw_request)
        taken = _Taken()
        before = _TAKING.set(taken)
        try:
            answer = await create(self, request, raw_request)
        finally:
            _TAKING.reset(before)
        if isinstance(answer, message):
            told = taken.told()
            fields = {name: getattr(answer, name) for name in message.model_fields}
            return answer if told is None else Told(**fields, evolved_tokens=told)
        return _beside(answer, taken) if hasattr(answer, "__aiter__") else answer

    # Called while the call is set up, so the context is that of the call; what they read comes later.
    def chat_completion_full_generator(self: Any, request: Any, outputs: Any, *args: Any, **options: Any) -> Any:
        return full(self, request, _watched(outputs), *args, **options)

    def chat_completion_stream_generator(self: Any, request: Any, outputs: Any, *args: Any, **options: Any) -> Any:
        return stream(self, request, _watched(outputs), *args, **options)

    def to_sampling_params(self: Any, *args: Any, **options: Any) -> Any:
        params = sampling(self, *args, **options)
        if _TAKING.get() is not None and params.logprobs is None:
            params.logprobs = 0
        return params

    setattr(create_messages, _OURS, True)
    serving.create_messages = create_messages
    serving.chat_completion_full_generator = chat_completion_full_generator
    serving.chat_completion_stream_generator = chat_completion_stream_generator
    chat.to_sampling_params = to_sampling_params


async def _asked(raw_request: Any) -> bool:
    """Whether the request's body says so. The framework has read it before, and keeps it."""
    try:
        body = await raw_request.json()
    except Exception:
        # No body that can be read once more: nobody asked.
        return False
    return isinstance(body, dict) and body.get(FIELD) is True


def _watched(outputs: Any) -> Any:
    taken = _TAKING.get()
    return outputs if taken is None else _taking(outputs, taken)


async def _taking(outputs: Any, taken: _Taken) -> AsyncIterator[Any]:
    async with contextlib.aclosing(outputs):
        async for output in outputs:
            taken.take(output)
            yield output


async def _beside(events: Any, taken: _Taken) -> AsyncIterator[str]:
    async with contextlib.aclosing(events):
        async for event in events:
            if event.startswith(_STOP) and (told := taken.told()) is not None:
                data = json.dumps({"type": FIELD, **told}, separators=(",", ":"))
                yield f"event: {FIELD}\ndata: {data}\n\n"
            yield event


_STOP = "event: message_stop\n"
_OURS = "_evolved_gives_tokens"
