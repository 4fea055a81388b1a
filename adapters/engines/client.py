"""The client for vLLM's HTTP surface, which the embedded engine shares.

One connection pool an engine; works under asyncio and trio. Every call has a deadline as a whole, not only between two
packets, and every failure becomes one of three errors in one place (`_request`).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import httpx
import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Sampling, VersionSpan, version_number
from actors.messages.sampling import NUMBERS
from actors.ports.engines import Generation
from actors.ports.errors import CheckpointRefused, EngineRejected, EngineUnavailable
from adapters.engines.checkpoint import describe, validate

_TEXT_IN_ERRORS = 500
_DEVELOPMENT = ("/pause", "/resume", "/is_paused", "/collective_rpc", "/weight_info", "/update_weight_version")
"""What vLLM opens in development mode only."""
_SCALE_OUT = ("/inference/v1/generate", "/v1/chat/completions/render")
"""What vLLM opens with --enable-scale-out only."""

_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that calls may take as a whole."""

    connect: float = 5.0
    small: float = 10.0
    """Everything that neither samples nor loads."""
    sample: float = 120.0
    """Chat, generate, log_probs. Includes waiting while others pause the engine."""
    load: float = 300.0
    """Loading weights."""


class EngineClient:
    """An engine at a URL. Use as `async with`, or `aclose()` at the end."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "engine",
        model: str | None = None,
        deadlines: Deadlines | None = None,
        key: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
        connections: int = 256,
    ) -> None:
        """A client of the server at `url`, without /v1; `model` goes into requests that name none (None: the first that
        it serves), `key` is its `--api-key`. Calls beyond `connections` wait their turn within their deadline."""
        self.name, self.url = name, url.rstrip("/")
        self.key = key
        self._model, self._deadlines = model, deadlines or Deadlines()
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {key}"} if key else None,
            transport=transport,
            limits=httpx.Limits(
                # vLLM closes a connection that was idle for 5 s; who sends just then gets no answer.
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=3.0,
            ),
            timeout=httpx.Timeout(None, connect=self._deadlines.connect),
            trust_env=False,  # an engine is a neighbour: no proxy, no netrc
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        if "model" not in body:
            body = {**body, "model": await self._model_name()}
        return await self._json("POST", "/v1/chat/completions", body, seconds=self._deadlines.sample)

    async def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        body: dict[str, Any] = {"model": await self._model_name(), "messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        answer = await self._json("POST", "/v1/chat/completions/render", body)
        return self._field(answer, "token_ids", list)

    async def sampling_defaults(self) -> Sampling:
        """How it samples what a request does not speak of: a request, rendered, has the values it would sample with.
        Raises EngineUnavailable: as every method; EngineRejected: it cannot say."""
        body = {"model": await self._model_name(), "messages": [{"role": "user", "content": "?"}]}
        try:
            # With a tool, because an engine may have a grammar for whoever has tools (`--tool-strict-level`).
            answer = await self._json("POST", "/v1/chat/completions/render", body | {"tools": [_TOOL]})
        except EngineRejected:
            answer = await self._json("POST", "/v1/chat/completions/render", body)
        params = self._field(answer, "sampling_params", dict)
        said = {name: params[name] for name in ("temperature", *NUMBERS) if params.get(name) is not None}
        shaped = "strict tools" if params.get("structured_outputs") else ""
        try:
            found = msgspec.convert(said, Sampling)
        except msgspec.ValidationError as error:
            raise EngineRejected(f"{self.name}: sampling_params that cannot be read: {error}") from error
        return msgspec.structs.replace(found, top_k=max(0, found.top_k), bent_by=shaped)

    async def generate(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
    ) -> Generation:
        params: dict[str, Any] = {
            "max_tokens": max_tokens, "temperature": temperature, "top_p": top_p,
            "logprobs": 0, "ignore_eos": ignore_eos,
        }  # fmt: skip
        if seed is not None:
            params["seed"] = seed
        if stop:
            params["stop"] = list(stop)
        return self.generation(await self._generate(prompt_ids, params))

    async def log_probs(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        params = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        answer = await self._generate(ids, params)
        scores = self._field(answer, "prompt_logprobs", list)
        if len(scores) != len(ids):
            raise EngineRejected(f"{self.name} scored {len(scores)} of {len(ids)} tokens")
        try:
            values = [
                math.nan if entry is None else entry[str(token)]["logprob"]
                for token, entry in zip(ids, scores, strict=True)
            ]
            return np.array(values, dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise EngineRejected(f"{self.name} gave scores that cannot be read: {error!r}") from error

    async def tokenize(self, text: str) -> list[int]:
        body = {"model": await self._model_name(), "prompt": text, "add_special_tokens": False}
        return self._field(await self._json("POST", "/tokenize", body), "tokens", list)

    async def version(self) -> int:
        answer = await self._json("GET", "/weight_info")
        return version_number(self._field(answer, "weight_version", str))

    async def health(self) -> bool:
        try:
            await self._request("GET", "/health")
        except (EngineUnavailable, EngineRejected):
            return False
        return True

    async def metrics(self) -> str:
        return (await self._request("GET", "/metrics")).text

    async def pause(self) -> None:
        # keep is the one mode that loses nothing; the cache must go, or running answers go on with keys and values of
        # the old weights under the new ones.
        await self._request("POST", "/pause?mode=keep&clear_cache=true", seconds=self._deadlines.small)

    async def prepare(self, path: Path, *, like: Path | None = None, manifest: str = "", epoch: int = 0) -> None:
        await self._validate(path, like, manifest, tied=False)

    async def load(self, path: Path, *, epoch: int = 0, clean: bool = False) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
        try:
            await self._request("POST", "/collective_rpc", body, seconds=self._deadlines.load)
        except EngineRejected as error:
            if error.status == 400:
                raise CheckpointRefused(str(error)) from error
            raise

    async def _validate(self, path: Path, like: Path | None, manifest: str, *, tied: bool) -> None:
        """Check `path` from here, as far as that can be done without the engine."""

        def check() -> None:
            validate(path, like=None if like is None else describe(like), manifest=manifest, allow_tied=tied)

        await anyio.to_thread.run_sync(check)

    async def label(self, version: int) -> None:
        await self._request("POST", "/update_weight_version", {"new_version": str(version)})

    async def resume(self) -> None:
        await self._request("POST", "/resume")

    async def is_paused(self) -> bool:
        return self._field(await self._json("GET", "/is_paused"), "is_paused", bool)

    def generation(self, answer: dict[str, Any]) -> Generation:
        """What the first choice of a chat or generate response says, if it was asked for token ids and log-probs.
        Raises EngineRejected: there are none, or not one log-prob a token."""
        try:
            choice = answer["choices"][0]
            ids = choice["token_ids"]
            logprobs = [float(entry["logprob"]) for entry in choice["logprobs"]["content"]]
            spans = tuple(
                VersionSpan(version_number(str(s["version"])), int(s["start"]), int(s["end"]))
                for s in choice.get("weight_versions") or ()
            )
            finish = str(choice["finish_reason"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineRejected(f"{self.name} answered without token ids and log-probs: {error!r}") from error
        if len(ids) != len(logprobs):
            raise EngineRejected(f"{self.name} answered {len(ids)} tokens with {len(logprobs)} log-probs")
        return Generation(token_ids=ids, logprobs=logprobs, versions=spans, finish_reason=finish)

    async def _generate(self, ids: Sequence[int], params: dict[str, Any]) -> dict[str, Any]:
        body = {"model": await self._model_name(), "token_ids": _ints(ids), "sampling_params": params}
        return await self._json("POST", "/inference/v1/generate", body, seconds=self._deadlines.sample)

    async def _model_name(self) -> str:
        if self._model is None:
            cards = self._field(await self._json("GET", "/v1/models"), "data", list)
            if not cards:
                raise EngineRejected(f"{self.name} serves no model")
            self._model = str(cards[0]["id"])
        return self._model

    def _field(self, answer: dict[str, Any], name: str, kind: type[Any]) -> Any:
        value = answer.get(name)
        if not isinstance(value, kind):
            raise EngineRejected(f"{self.name} answered without {name}")
        return value

    async def _json(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, seconds: float | None = None
    ) -> dict[str, Any]:
        response = await self._request(method, path, body, seconds=seconds)
        try:
            answer = msgspec.json.decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EngineRejected(f"{self.name}: {path} did not answer with JSON", response.status_code) from error
        if not isinstance(answer, dict):
            raise EngineRejected(f"{self.name}: {path} did not answer with a JSON object", response.status_code)
        return answer

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, seconds: float | None = None
    ) -> httpx.Response:
        """The one place where an engine is called: deadline, and failures to errors."""
        limit = self._deadlines.small if seconds is None else seconds
        content = None if body is None else msgspec.json.encode(body)
        headers = None if body is None else {"content-type": "application/json"}
        try:
            with anyio.fail_after(limit):
                try:
                    response = await self._http.request(method, path, content=content, headers=headers)
                except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    # Most likely a connection that the engine had just closed. All of these calls may be made twice.
                    response = await self._http.request(method, path, content=content, headers=headers)
        except TimeoutError as error:
            raise EngineUnavailable(f"{self.name} ({self.url}) did not answer {path} within {limit:g} s") from error
        except httpx.HTTPError as error:
            raise EngineUnavailable(
                f"{self.name} ({self.url}) cannot be reached: {type(error).__name__}: {error}"
            ) from error
        if response.is_success:
            return response
        text = _message(response) + _remedy(path, response.status_code)
        if response.status_code in (502, 503, 504):
            raise EngineUnavailable(f"{self.name} ({self.url}) is not ready: {response.status_code} {text}")
        raise EngineRejected(f"{self.name}: {path} {response.status_code}: {text}", response.status_code)


def _ints(ids: Sequence[int]) -> list[int]:
    return [int(i) for i in ids]  # numpy integers are no JSON


def _remedy(path: str, status: int) -> str:
    """What is missing from the engine's start if it has no such endpoint."""
    if status == 404 and path.partition("?")[0] in _DEVELOPMENT:
        return "; its development endpoints are closed: start it with VLLM_SERVER_DEV_MODE=1 in its environment"
    if status in (403, 404) and path in _SCALE_OUT:
        return "; its token endpoints are closed: start it with --enable-scale-out"
    return ""


def _message(response: httpx.Response) -> str:
    try:
        body = msgspec.json.decode(response.content)
        error = body["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (msgspec.DecodeError, KeyError, TypeError):
        text = response.text
    return str(text)[:_TEXT_IN_ERRORS]
