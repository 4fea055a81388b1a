"""The control API's part for live APIs: routes over `Live`.

GET    /api/adapters             live APIs with their health, and what entry points installed, of every kind
POST   /api/adapters             {"name": "crm", "kind": "openapi", "url": "https://...", "options": {}, "policy": {}}
POST   /api/adapters/NAME/test   ask it for its tools now
DELETE /api/adapters/NAME        take out one that was added here
GET    /api/tools                the tools of all, named API__TOOL, and which APIs are missing
POST   /api/tools/NAME/call      {"arguments": {...}}: call one, as its API's policy allows
"""

from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.ports.errors import LiveApiMalformed, LiveApiRefused, LiveApiUnavailable, LiveToolUnknown
from adapters.live import LiveApi
from adapters.named import GROUP
from daemon.api.request_parsing import read_body, who
from daemon.errors import OrderRefused
from daemon.live.orders import AddOrder, CallOrder
from daemon.live.registry import Live


class LiveRoutes:
    """The routes; who may use them, `daemon.api.admin` says."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def sandbox_tools(self) -> LiveApi:
        """What is registered, as one, for rollouts: it changes nothing."""
        return self._live.sandbox_tools

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [
            # One route: of two, the first alone would say which methods there are.
            Route("/api/adapters", self._answering(self._list_or_add), methods=["GET", "POST"]),
            Route("/api/adapters/{name}", self._answering(self._remove), methods=["DELETE"]),
            Route("/api/adapters/{name}/test", self._answering(self._test), methods=["POST"]),
            Route("/api/tools", self._answering(self._tools)),
            Route("/api/tools/{name}/call", self._answering(self._call), methods=["POST"]),
        ]

    def _answering(self, handler: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        """`handler` with its refusals as answers."""

        async def answer(request: Request) -> Response:
            try:
                found = await handler(request)
            except OrderRefused as error:
                return _error(error.status, str(error))
            except LiveToolUnknown as error:
                return _error(404, str(error))
            except LiveApiRefused as error:
                return _error(403, str(error))
            except LiveApiMalformed as error:
                return _error(502, str(error))
            except LiveApiUnavailable as error:
                return _error(503, str(error), {"retry-after": str(max(1, round(error.retry_after)))})
            return Response(msgspec.json.encode(found), media_type="application/json")

        return answer

    async def _list_or_add(self, request: Request) -> Any:
        return await (self._add if request.method == "POST" else self._list)(request)

    async def _list(self, request: Request) -> Any:
        details = {one.name: {"policy": one.policy, "calls": one.counts} for one in self._live.guarded()}
        return {"adapters": self._live.health(), "details": details, "installed": installed()}

    async def _add(self, request: Request) -> Any:
        return await self._live.add(await read_body(request, AddOrder), who(request))

    async def _remove(self, request: Request) -> Any:
        name = request.path_params["name"]
        await self._live.remove(name, who(request))
        return {"removed": name}

    async def _test(self, request: Request) -> Any:
        return await self._live.test(request.path_params["name"])

    async def _tools(self, request: Request) -> Any:
        found = await self._live.tools.tools()
        return {"tools": found, "missing": self._live.tools.missing}

    async def _call(self, request: Request) -> Any:
        body = await read_body(request, CallOrder)
        return await self._live.tools.call(request.path_params["name"], body.arguments)


def installed() -> list[dict[str, str]]:
    """What entry points offer, of every kind; nothing is loaded for it."""
    found = [
        {"kind": point.name.partition(".")[0], "name": point.name.partition(".")[2], "at": point.value}
        for point in entry_points(group=GROUP)
    ]
    return sorted(found, key=lambda one: (one["kind"], one["name"]))


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status, headers=headers)
