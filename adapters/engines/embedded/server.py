"""HTTP: the part of vLLM's surface that evolved uses, as a starlette application.

Requests are answered in the event loop; whatever computes happens in the worker's thread. The endpoints that change
what is served exist only in dev mode, as in vLLM: they know no authentication, so bind them to loopback or a private
network.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from actors.ports.errors import CheckpointRefused
from adapters.engines.embedded import answers
from adapters.engines.embedded.requests import (
    BadRequest,
    ChatRequest,
    GenerateRequest,
    TokenizeRequest,
    chat_limits,
    chat_sampling,
    decode,
    generate_limits,
)
from adapters.engines.embedded.sampling import Sampling
from adapters.engines.embedded.service import EngineService, Flight

MOST_BODY = 16 * 1024 * 1024
"""Bytes a request may have."""
_SSE = "text/event-stream; charset=utf-8"


def application(service: EngineService, *, dev_mode: bool) -> Starlette:
    """The routes over `service`, which is started and stopped with them."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.stop()

    routes = _Routes(service)
    table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("POST", "/v1/chat/completions", routes.chat),
        ("POST", "/v1/chat/completions/render", routes.render),
        ("POST", "/inference/v1/generate", routes.generate),
        ("POST", "/tokenize", routes.tokenize),
        ("GET", "/v1/models", routes.models),
        ("GET", "/health", routes.health),
        ("GET", "/metrics", routes.metrics),
    ]
    if dev_mode:
        table += [
            ("POST", "/pause", routes.pause),
            ("POST", "/resume", routes.resume),
            ("GET", "/is_paused", routes.is_paused),
            ("POST", "/collective_rpc", routes.collective_rpc),
            ("POST", "/update_weight_version", routes.update_weight_version),
            ("GET", "/weight_info", routes.weight_info),
        ]
    return Starlette(
        routes=[Route(path, endpoint, methods=[method]) for method, path, endpoint in table],
        exception_handlers={
            BadRequest: _refused,
            CheckpointRefused: _checkpoint_refused,
            HTTPException: _http_error,
            Exception: _failed,
        },
        lifespan=lifespan,
    )


class _Routes:
    """One method an endpoint."""

    def __init__(self, service: EngineService) -> None:
        self._service, self._ids = service, answers.Ids()

    async def chat(self, request: Request) -> Response:
        service = self._service
        ask: ChatRequest = await _read(request, ChatRequest)
        prompt = self._prompt(ask)
        limits = chat_limits(ask, service.ends, len(prompt), service.length)
        answer = answers.Chat(ask, service.prompts, self._ids, service.name, int(time.time()))
        flight = service.begin(prompt, chat_sampling(ask), limits)
        if ask.stream:
            return StreamingResponse(_chat_events(service, flight, answer), media_type=_SSE)
        await _whole(service, flight, request)
        return _json(answer.body(flight.run))

    async def render(self, request: Request) -> Response:
        ask: ChatRequest = await _read(request, ChatRequest)
        ids = self._prompt(ask)
        sampling = chat_sampling(ask)
        params = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        answer = {"request_id": self._ids.new("chatcmpl-"), "token_ids": ids, "sampling_params": params}
        return _json(msgspec.json.encode(answer))

    async def generate(self, request: Request) -> Response:
        service = self._service
        ask: GenerateRequest = await _read(request, GenerateRequest)
        self._check_model(ask.model)
        self._check_ids(ask.token_ids, "token_ids")
        params = ask.sampling_params
        limits = generate_limits(ask, service.ends, service.length)
        sampling = Sampling(temperature=params.temperature, top_p=params.top_p, seed=params.seed)
        flight = service.begin(ask.token_ids, sampling, limits)
        await _whole(service, flight, request)
        return _json(answers.generated(self._ids.new("generate-"), flight.run, params, service.prompts))

    async def tokenize(self, request: Request) -> Response:
        prompts = self._service.prompts
        ask: TokenizeRequest = await _read(request, TokenizeRequest)
        self._check_model(ask.model)
        ids = prompts.encode(ask.prompt)
        return _json(msgspec.json.encode({"count": len(ids), "max_model_len": self._service.length, "tokens": ids}))

    async def models(self, _: Request) -> Response:
        service = self._service
        card = {
            "id": service.name, "object": "model", "created": int(time.time()), "owned_by": "evolved",
            "root": str(service.directory), "parent": None, "max_model_len": service.length,
        }  # fmt: skip
        return _json(msgspec.json.encode({"object": "list", "data": [card]}))

    async def health(self, _: Request) -> Response:
        return Response(status_code=200 if self._service.worker.alive else 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def pause(self, request: Request) -> Response:
        mode = request.query_params.get("mode", "abort")
        if mode != "keep":
            raise BadRequest(
                f"mode={mode} is not supported by the embedded engine: only keep loses nothing", param="mode"
            )
        clear = request.query_params.get("clear_cache", "true")
        if clear not in ("true", "false"):
            raise BadRequest("clear_cache must be true or false", param="clear_cache")
        await self._service.worker.pause(clear_cache=clear == "true")
        return _json(b'{"status":"paused"}')

    async def resume(self, _: Request) -> Response:
        await self._service.worker.resume()
        return _json(b'{"status":"resumed"}')

    async def is_paused(self, _: Request) -> Response:
        return _json(b'{"is_paused":true}' if self._service.worker.paused else b'{"is_paused":false}')

    async def collective_rpc(self, request: Request) -> Response:
        ask: _Rpc = await _read(request, _Rpc)
        path = ask.kwargs.get("weights_path")
        if ask.method != "reload_weights":
            raise BadRequest(f"method {ask.method!r} does not exist, reload_weights does", param="method")
        if not isinstance(path, str):
            raise BadRequest("kwargs.weights_path must name a directory", param="kwargs.weights_path")
        await self._service.load(Path(path))
        return _json(b'{"results":[null]}')

    async def update_weight_version(self, request: Request) -> Response:
        ask: _Label = await _read(request, _Label)
        await self._service.set_label(ask.new_version)
        return _json(b'{"success":true}')

    async def weight_info(self, _: Request) -> Response:
        return _json(msgspec.json.encode({"weight_version": self._service.batch.label}))

    def _prompt(self, ask: ChatRequest) -> list[int]:
        self._check_model(ask.model)
        if ask.tool_choice not in (None, "auto", "none"):
            raise BadRequest("tool_choice must be auto or none: this engine forces no calls", param="tool_choice")
        if ask.tool_choice == "auto" and not ask.tools:
            raise BadRequest("tool_choice needs tools", param="tool_choice")
        prompts = self._service.prompts
        return prompts.encode(prompts.text(ask.messages, ask.tools, generate=ask.add_generation_prompt))

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self._service.name:
            raise BadRequest(f"The model `{model}` does not exist.", param="model", status=404)

    def _check_ids(self, ids: list[int], name: str) -> None:
        size = self._service.vocabulary
        if any(not 0 <= token < size for token in ids):
            raise BadRequest(f"{name} must lie between 0 and {size - 1}", param=name)


class _Rpc(msgspec.Struct):
    method: str
    kwargs: dict[str, Any] = {}
    timeout: float | None = None


class _Label(msgspec.Struct):
    new_version: str


async def _read(request: Request, kind: type[Any]) -> Any:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise BadRequest(f"the body is larger than {MOST_BODY} bytes", status=413)
    return decode(bytes(body), kind)


async def _whole(service: EngineService, flight: Flight, request: Request) -> None:
    """Until a request's run is over. Raises HTTPException: it failed, or the client left and nobody will read the
    answer."""
    gone = asyncio.ensure_future(request.receive())  # the body was read: what comes next is the disconnect
    gone.add_done_callback(lambda _: flight.leave())
    try:
        await flight.over()
    finally:
        gone.cancel()
        service.end(flight)
    if not flight.done:
        raise HTTPException(499, "the client closed the connection")
    if flight.run.finish == "error":
        raise HTTPException(500, "the engine failed while it made this answer")


async def _chat_events(service: EngineService, flight: Flight, answer: answers.Chat) -> AsyncIterator[bytes]:
    try:
        stream = answers.ChoiceStream(answer, flight.run, service.prompts)
        yield answer.opening(flight.run)
        while not stream.over:
            await flight.news()
            # Tokens that came meanwhile travel together, so a slow reader costs less.
            if event := stream.event():
                yield event
        if flight.run.finish == "error":
            yield answers.sse(answers.error("the engine failed while it made this answer", 500))
        yield answer.closing(flight.run)
    finally:
        service.end(flight)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _error(message: str, status: int, param: str | None = None) -> Response:
    return Response(answers.encode(answers.error(message, status, param=param)), status, media_type="application/json")


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return _error(str(error), error.status, error.param)


def _checkpoint_refused(_: Request, error: Exception) -> Response:
    return _error(str(error), 400, "weights_path")


def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.detail, error.status_code)


def _failed(_: Request, error: Exception) -> Response:
    return _error(f"internal error: {type(error).__name__}", 500)
