"""A loopback HTTP endpoint for one episode, for an unmodified `openai` client or a framework that takes a base URL.

    POST {base_url}/chat/completions   a turn, recorded; `stream` is answered in one piece
    GET  {base_url}/models             one model, whose name is not looked at
    GET  {base_url}/episode            {"messages", "tools", "done"}: the task, and the tools as they are now
    POST {base_url}/step               {"calls": [...], "text": ""} -> {"text", "done", "messages"}: to the environment

It binds a free port of 127.0.0.1, takes the episode's own key as bearer token (RFC 6750) and nothing else, and is gone
when the episode is. Errors have OpenAI's form; none has a status that clients try again after, since nothing here gets
better by itself.
"""

import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import hypercorn.config
import msgspec
import sniffio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from actors.messages import ToolCall
from actors.ports.environments import Observation
from actors.rollout.errors import Ending, EpisodeLost, EpisodeOver, RequestRefused, SamplingRefused

MOST_BODY = 16 * 1024 * 1024
"""Bytes of a request."""
_GRACE = 0.5
"""Seconds for connections that are still open in the end."""
_MODEL = "policy"
_NOT_SAMPLING = ("messages", "tools", "model", "stream", "stream_options")
_OURS = ("token_ids", "logprobs", "weight_versions", "prompt_token_ids")
"""What the engine adds for us; agents did not ask for it."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where an agent finds its episode."""

    base_url: str
    """For `openai.OpenAI(base_url=...)`, with /v1."""
    key: str
    """For `api_key=...`."""
    model: str = _MODEL


class OpenEpisode(Protocol):
    """An episode that turns and steps are asked of; `session.Session` is one."""

    ending: Ending | None
    """Why there is no further turn; None while there may be one."""

    @property
    def messages(self) -> list[dict[str, Any]]: ...

    @property
    def tools(self) -> list[dict[str, Any]]: ...

    async def chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None, **sampling: Any
    ) -> dict[str, Any]: ...

    async def step(self, calls: Sequence[ToolCall | Mapping[str, Any]], text: str = "") -> Observation: ...


@asynccontextmanager
async def endpoint(session: OpenEpisode) -> AsyncIterator[Endpoint]:
    """Serve `session` until the block is left.

    Raises:
        OSError: no port is free.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    found = Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", secrets.token_urlsafe(32))
    routes = _Routes(session, found.key)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", routes.guarded(routes.chat), methods=["POST"]),
            Route("/v1/models", routes.guarded(routes.models)),
            Route("/v1/episode", routes.guarded(routes.episode)),
            Route("/v1/step", routes.guarded(routes.step), methods=["POST"]),
        ]
    )
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.detach()}"]  # hypercorn closes it
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = _GRACE
    if sniffio.current_async_library() == "trio":
        from hypercorn.trio import serve
    else:
        from hypercorn.asyncio import serve  # type: ignore[assignment]  # same signature, other loop
    failure: Exception | None = None
    stop = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serve(app, config, shutdown_trigger=stop.wait))  # type: ignore[arg-type]
        try:
            yield found
        except Exception as error:  # out of a task group it would come wrapped
            failure = error
        stop.set()
    if failure is not None:
        raise failure


class _Routes:
    """One method an endpoint."""

    def __init__(self, session: OpenEpisode, key: str) -> None:
        self._session, self._key = session, f"Bearer {key}".encode()

    def guarded(self, route: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """`route` for who has the key, with errors that clients understand."""

        async def answer(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode("latin-1", "replace")
            if not secrets.compare_digest(given, self._key):
                return _error(401, "invalid_api_key", "this endpoint is one episode's; use the key that came with it")
            try:
                return await route(request)
            except EpisodeOver as over:
                return _error(400, "episode_over", str(over))
            except RequestRefused as refused:
                return _error(400, "context_length_exceeded", str(refused))
            except EpisodeLost as lost:
                return _error(422, "episode_lost", str(lost))
            except SamplingRefused as refused:
                return _error(400, "unsupported_parameter", str(refused))
            except (ValueError, TypeError, AttributeError) as error:
                return _error(400, "invalid_request", f"{type(error).__name__}: {error}")

        return answer

    async def chat(self, request: Request) -> Response:
        body = await _body(request)
        messages = body["messages"] if isinstance(body.get("messages"), list) else None
        if not messages or not all(isinstance(message, dict) for message in messages):
            raise ValueError("messages must be a list of messages")
        sampling = {name: value for name, value in body.items() if name not in _NOT_SAMPLING}
        answer = await self._session.chat(messages, body.get("tools") or [], **sampling)
        choices = [{k: v for k, v in choice.items() if k not in _OURS} for choice in answer["choices"]]
        plain = {"object": "chat.completion", "created": 0, "model": _MODEL}
        plain |= {name: value for name, value in answer.items() if name not in _OURS} | {"choices": choices}
        if not body.get("stream"):
            return _json(plain)
        return Response(_stream(plain), media_type="text/event-stream")

    async def models(self, _: Request) -> Response:
        return _json({"object": "list", "data": [{"id": _MODEL, "object": "model", "created": 0, "owned_by": ""}]})

    async def episode(self, _: Request) -> Response:
        session = self._session
        return _json({"messages": session.messages, "tools": session.tools, "done": session.ending is not None})

    async def step(self, request: Request) -> Response:
        body = await _body(request)
        seen = await self._session.step(body.get("calls") or [], str(body.get("text") or ""))
        return _json({"text": seen.text, "done": seen.done, "messages": seen.messages})


async def _body(request: Request) -> dict[str, Any]:
    read = bytearray()
    async for piece in request.stream():
        read += piece
        if len(read) > MOST_BODY:
            raise ValueError(f"the body is larger than {MOST_BODY} bytes")
    body = msgspec.json.decode(bytes(read))
    if not isinstance(body, dict):
        raise ValueError("the body is no JSON object")
    return body


def _stream(answer: dict[str, Any]) -> bytes:
    """The whole answer as the events of a stream."""
    choice = answer["choices"][0]
    message = dict(choice["message"])
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    base = {**answer, "object": "chat.completion.chunk"}
    base.pop("usage", None)
    first = {"index": 0, "delta": message, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}
    events = [{**base, "choices": [first]}, {**base, "choices": [last]}]
    if answer.get("usage"):
        events.append({**base, "choices": [], "usage": answer["usage"]})
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(status: int, code: str, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    return _json({"error": error}, status)
