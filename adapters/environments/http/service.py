"""`EnvironmentService`: serves environments over HTTP, in the shapes of `shapes`.

One lock an instance, so that its calls come one after the other; a cap on instances; those that nobody uses are closed;
an environment that hangs in a call loses that instance. Errors are JSON and no tracebacks, `{"success": false, "error":
{"kind", "message"}}`. Who may come in is not decided here.
"""

import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from actors.messages import Task
from actors.ports.environments import Environment, Episode, Split, Stateful
from actors.ports.errors import EnvironmentFailed
from adapters.environments.http.shapes import MAX_BYTES, ServiceRequest, heard

log = structlog.get_logger(__name__)
_LISTED, _MOST_LISTED = 100, 10_000
_SPLITS: dict[str, Split] = {
    "train": "train",
    "heldout": "heldout",
    "val": "heldout",
    "dev": "heldout",
    "test": "heldout",
}
"""Names of splits, AgentEvolver's among them."""


class Refused(Exception):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        kind: a stable short word.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class _Instance:
    """An episode that somebody plays."""

    def __init__(self, key: str, task: Task, episode: Episode, now: float) -> None:
        self.key, self.task, self.episode, self.used = key, task, episode, now
        self.lock = anyio.Lock()
        self.begun = self.done = False
        self.told = msgspec.json.encode(episode.tools)


class EnvironmentService:
    """The service.

    Args:
        environments: what is served, by the name that clients call `env_type`.
        max_instances: open at once.
        idle_seconds: after which an instance is closed.
        call_seconds: for each call of an environment.
        max_body: bytes of a request.

    What it counts is told where it is shown, in `daemon.composition.environments`.
    """

    def __init__(
        self, environments: Mapping[str, Environment], *, max_instances: int = 256, idle_seconds: float = 900.0,
        call_seconds: float = 60.0, max_body: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._environments, self._max_instances, self._max_body = dict(environments), max_instances, max_body
        self._idle_seconds, self._call_seconds, self._clock = idle_seconds, call_seconds, clock
        self._instances: dict[str, _Instance] = {}
        self._creating: set[str] = set()
        self.created = self.released = self.reaped = self.capped = self.timeouts = self.failed = 0

    @property
    def instances(self) -> int:
        return len(self._instances)

    def app(self, *, middleware: tuple[Middleware, ...] = (), routes: tuple[BaseRoute, ...] = ()) -> Starlette:
        """The ASGI application; its lifespan closes what nobody uses, and all in the end."""
        calls: dict[str, Callable[[ServiceRequest], Awaitable[Any]]] = {
            "create": self._create, "step": self._step, "evaluate": self._evaluate, "release": self._release,
            "get_info": self._get_info, "get_env_profile": self._get_env_profile, "sample": self._sample,
            "get_tools": self._get_tools, "get_state": self._get_state,
        }  # fmt: skip
        ours = [Route(f"/{name}", partial(self._handle, call), methods=["POST"]) for name, call in calls.items()]
        return Starlette(
            routes=[Route("/healthz", _healthy), *ours, *routes], middleware=list(middleware), lifespan=self._lifespan
        )

    async def _handle(self, call: Callable[[ServiceRequest], Awaitable[Any]], request: Request) -> Response:
        try:
            answer = await call(await self._read(request))
            return _json(200, answer if isinstance(answer, _Whole) else {"success": True, "data": answer})
        except Refused as error:
            found = error
        except EnvironmentFailed as error:
            self.failed += 1
            found = Refused(502, "environment_failed", str(error))
        except ValueError as error:
            found = Refused(422, "refused", str(error))
        except Exception as error:
            self.failed += 1
            log.error("environment_service_error", route=request.url.path, error=f"{type(error).__name__}: {error}")
            found = Refused(500, "internal", f"{type(error).__name__}; the service's log has more")
        return _json(found.status, {"success": False, "error": {"kind": found.kind, "message": str(found)}})

    async def _read(self, request: Request) -> ServiceRequest:
        # Asked for so that no form on another page can send it.
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise Refused(415, "malformed", "send content-type: application/json")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._max_body:
                raise Refused(413, "too_large", f"the body is over {self._max_body} bytes")
        try:
            return msgspec.json.decode(body, type=ServiceRequest)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refused(400, "malformed", f"the body: {error}") from error

    async def _create(self, request: ServiceRequest) -> Any:
        """Idempotent while nobody has played: who lost the answer asks again with the same instance_id."""
        environment, key = self._environment(request), request.instance_id or uuid.uuid4().hex
        task = _task(environment, request)
        there = self._instances.get(key)
        if there is None:
            there = await self._begin(key, task, partial(environment.reset, task))
        elif there.begun or there.task != task:
            raise Refused(409, "taken", f"instance {key} is there already, and has been played")
        return _opening(there)

    async def _begin(self, key: str, task: Task, begin: Callable[[], Awaitable[Episode]]) -> _Instance:
        if key in self._creating:
            raise Refused(503, "busy", f"instance {key} is being created; ask again")
        if len(self._instances) + len(self._creating) >= self._max_instances:
            self.capped += 1
            raise Refused(
                503, "full", f"{self._max_instances} instances are open (max_instances); release some, or ask later"
            )
        self._creating.add(key)
        try:
            with anyio.fail_after(self._call_seconds):
                found = await begin()
        except TimeoutError:
            self.timeouts += 1
            raise Refused(504, "timeout", f"the environment did not begin within {self._call_seconds:g} s") from None
        finally:
            self._creating.discard(key)
        self._instances[key] = _Instance(key, task, found, self._clock())
        self.created += 1
        return self._instances[key]

    async def _step(self, request: ServiceRequest) -> Any:
        calls, text = heard(request.messages or {})
        async with self._playing(request) as one:
            one.begun = True
            seen = await one.episode.step(calls, text)
            one.done = seen.done
            tools = msgspec.json.encode(one.episode.tools)
            changed, one.told = tools != one.told, tools
            wanted = (request.params or {}).get("reward", True) is not False
            reward = await one.episode.evaluate() if seen.done and wanted else 0.0
        plain = {"role": "tool", "content": seen.text, "tool_call_id": calls[0].id if calls else "none"}
        info: dict[str, Any] = {"instance_id": one.key, "text": seen.text, "messages": bool(seen.messages)}
        if changed:
            info["tools"] = msgspec.Raw(tools)
        return {"state": list(seen.messages) or [plain], "reward": reward, "is_terminated": seen.done, "info": info}

    async def _evaluate(self, request: ServiceRequest) -> float:
        async with self._playing(request) as one:
            outcome = await one.episode.evaluate()
        return float(outcome >= 1.0) if (request.params or {}).get("sparse") is True else outcome

    async def _release(self, request: ServiceRequest) -> Any:
        one = self._instances.pop(request.instance_id or "", None)
        if one is not None:
            self.released += 1
            await one.episode.aclose()
        return _Whole({"success": one is not None, "data": None})

    async def _get_info(self, request: ServiceRequest) -> Any:
        if not request.instance_id:
            return {"environments": sorted(self._environments), "instances": self.instances}
        one = self._instance(request)
        return {"instance_id": one.key, "task_id": one.task.id, "is_terminated": one.done, "tools": one.episode.tools}

    async def _get_env_profile(self, request: ServiceRequest) -> Any:
        params, environment = request.params or {}, self._environment(request)
        split, count = _split(params.get("split", "train")), params.get("n", _LISTED)
        if not isinstance(count, int) or not 0 <= count <= _MOST_LISTED:
            raise ValueError(f"params.n: a number of tasks from 0 to {_MOST_LISTED}")
        ids = [f"{split}:{seed}" for seed in range(count)]
        return _Whole({"success": True, "data": ids, "profile": environment.profile()})

    async def _sample(self, request: ServiceRequest) -> Task:
        params = request.params or {}
        seed, families = params.get("seed"), params.get("families")
        if not isinstance(seed, int) or seed < 0 or not isinstance(families, str | None):
            raise ValueError("params: seed must be a number, 0 or more, and families letters or null")
        return self._environment(request).sample(seed, _split(params.get("split", "train")), families)

    async def _get_tools(self, request: ServiceRequest) -> Any:
        return self._instance(request).episode.tools if request.instance_id else self._environment(request).tools()

    async def _get_state(self, request: ServiceRequest) -> Any:
        async with self._playing(request) as one:
            if not isinstance(one.episode, Stateful):
                raise ValueError("this episode shows no state")
            return await one.episode.state()

    def _environment(self, request: ServiceRequest) -> Environment:
        if not request.env_type and len(self._environments) == 1:
            return next(iter(self._environments.values()))
        found = self._environments.get(request.env_type or "")
        if found is None:
            served = ", ".join(sorted(self._environments))
            raise Refused(404, "unknown_environment", f"no environment {request.env_type!r}; served: {served}")
        return found

    def _instance(self, request: ServiceRequest) -> _Instance:
        found = self._instances.get(request.instance_id or "")
        if found is None:
            raise Refused(404, "unknown_instance", "no such instance; it was released, reaped, or never there")
        return found

    @asynccontextmanager
    async def _playing(self, request: ServiceRequest) -> AsyncIterator[_Instance]:
        """The instance, alone, for as long as a call may take; one that hangs, or whose caller left, is closed."""
        one = self._instance(request)
        async with one.lock:
            if self._instances.get(one.key) is not one:
                self._instance(request)
            one.used = self._clock()
            try:
                with anyio.fail_after(self._call_seconds):
                    yield one
            except TimeoutError:
                self.timeouts += 1
                await self._close(one)
                raise Refused(
                    504, "timeout", f"no answer within {self._call_seconds:g} s; the instance was closed"
                ) from None
            except anyio.get_cancelled_exc_class():
                await self._close(one)
                raise
            finally:
                one.used = self._clock()

    async def _close(self, one: _Instance) -> None:
        self._instances.pop(one.key, None)
        with anyio.CancelScope(shield=True):
            await one.episode.aclose()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._reap)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                for one in list(self._instances.values()):
                    await self._close(one)

    async def _reap(self) -> None:
        while True:
            await anyio.sleep(self._idle_seconds / 4)
            before = self._clock() - self._idle_seconds
            for one in [one for one in self._instances.values() if one.used < before and not one.lock.locked()]:
                self.reaped += 1
                await self._close(one)


class _Whole(dict[str, Any]):
    """An answer that is more than `data`."""


async def _healthy(request: Request) -> Response:
    return PlainTextResponse("OK")


def _task(environment: Environment, request: ServiceRequest) -> Task:
    """The task of /create: whole in `params.task`, else `split:seed` or `split:seed:families` in `task_id`."""
    whole = (request.params or {}).get("task")
    if whole is not None:
        return msgspec.convert(whole, Task)
    split, _, rest = (request.task_id or "").partition(":")
    seed, _, families = rest.partition(":")
    if not seed.isdecimal():
        raise ValueError(f"task_id {request.task_id!r}: one of /get_env_profile is wanted, such as train:0")
    return environment.sample(int(seed), _split(split), families or None)


def _split(name: Any) -> Split:
    if name not in _SPLITS:
        raise ValueError(f"no split {name!r}; splits: {', '.join(_SPLITS)}")
    return _SPLITS[name]


def _opening(one: _Instance) -> dict[str, Any]:
    episode = one.episode
    info = {
        "instance_id": one.key, "task_id": one.task.id, "tools": episode.tools,
        "stateful": isinstance(episode, Stateful),
    }  # fmt: skip
    return {"state": episode.messages, "reward": 0.0, "is_terminated": one.done, "info": info}


def _json(status: int, body: Any) -> Response:
    try:
        encoded = msgspec.json.encode(body)
    except UnicodeEncodeError:  # half a surrogate pair, of which only \u escapes can tell
        encoded = json.dumps(msgspec.to_builtins(body)).encode()
    return Response(encoded, status, media_type="application/json")
