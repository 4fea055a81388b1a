"""The control API's part for experience: routes over `ExperiencePool` and `Forgetter`.

GET  /api/experience                 lessons, last changed first (?tenant, ?state, ?kind, ?q, ?limit)
GET  /api/experience/export          as JSONL (?tenant, ?state, ?kind)
GET  /api/experience/ID              one, with its revisions and its sources
POST /api/experience                 {"when_to_use": "...", "content": "...", "kind": "practice", "tenant": "default"}
POST /api/experience/search          {"text": "...", "tenant": "default", "k": 5, "kinds": [...], "states": ["active"]}
POST /api/experience/import          {"text": JSONL, "tenants": {"old": "new"}, "quarantine": false, "dry_run": false}
POST /api/experience/forget          {"trajectories": [...]} or {"tenant": "..."} or {"source": "KEY ID"}, and "reason";
                                     "dry_run": true tells what would go
POST /api/experience/ID/state        {"change": "activate" | "retire" | "release", "reason": "..."}
"""

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.messages import Experience, ExperienceKind, ExperienceState
from actors.store import StoreUnavailable
from actors.store.erasing import Selector
from daemon.api.request_parsing import bound_to, read_body, who
from daemon.errors import OrderRefused
from daemon.experience.forgetting import Forgetter
from daemon.experience.service import Change, Detail, ExperiencePool, unknown

_MAX_IMPORT = 64 << 20
"""Bytes of an import."""


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SearchBody(_Body, frozen=True, kw_only=True):
    text: str
    tenant: str = "default"
    k: int = 5
    kinds: tuple[ExperienceKind, ...] | None = None
    states: tuple[ExperienceState, ...] | None = ("active",)
    """Null: any."""


class LessonBody(_Body, frozen=True, kw_only=True):
    when_to_use: str
    content: str
    kind: ExperienceKind = "practice"
    tenant: str = "default"
    detail: dict[str, Any] = {}
    reason: str = ""


class StateBody(_Body, frozen=True, kw_only=True):
    change: Change
    reason: str = ""


class ForgetBody(_Body, frozen=True, kw_only=True):
    trajectories: tuple[str, ...] = ()
    tenant: str = ""
    source: str = ""
    """Id of an agent key."""
    reason: str = ""
    dry_run: bool = False


class ImportBody(_Body, frozen=True, kw_only=True):
    text: str
    tenants: dict[str, str] = {}
    quarantine: bool = False
    dry_run: bool = False


class ExperienceApi:
    """The routes; who may use them, `daemon.api.admin` says."""

    def __init__(self, pool: ExperiencePool, forgetter: Forgetter) -> None:
        self._pool, self._forgetter = pool, forgetter

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        base = "/api/experience"
        return [
            # One route: of two, the first alone would say which methods there are.
            Route(base, self._answering(self._list_or_add), methods=["GET", "POST"]),
            Route(f"{base}/export", self._answering(self._export)),
            Route(f"{base}/search", self._answering(self._search), methods=["POST"]),
            Route(f"{base}/import", self._answering(self._import), methods=["POST"]),
            Route(f"{base}/forget", self._answering(self._forget), methods=["POST"]),
            Route(f"{base}/{{id}}", self._answering(self._one)),
            Route(f"{base}/{{id}}/state", self._answering(self._state), methods=["POST"]),
        ]

    def _answering(self, handler: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        """`handler` with its refusals as answers."""

        async def answer(request: Request) -> Response:
            try:
                found = await handler(request)
            except OrderRefused as error:
                return JSONResponse({"error": {"message": str(error)}}, status_code=error.status)
            except StoreUnavailable as error:
                return JSONResponse({"error": {"message": f"the store is away: {error}"}}, status_code=503)
            if isinstance(found, Response):
                return found
            return Response(msgspec.json.encode(found), media_type="application/json")

        return answer

    async def _list_or_add(self, request: Request) -> Any:
        return await (self._add if request.method == "POST" else self._list)(request)

    async def _list(self, request: Request) -> Any:
        given = request.query_params
        limit = given.get("limit", "100")
        if not limit.isdecimal() or len(limit) > 18 or int(limit) < 1:
            raise OrderRefused(422, f"limit is {limit[:40]!r}; give a number from 1 on")
        filters = _filters(request)
        filters["tenant"] = _tenant(request, filters["tenant"] or bound_to(request))
        return await self._pool.listed(**filters, q=given.get("q", ""), limit=int(limit))

    async def _one(self, request: Request) -> Any:
        return await self._own(request)

    async def _own(self, request: Request) -> Detail:
        """The lesson that is asked for.

        Raises:
            OrderRefused: 404 there is none, or it is another tenant's than the key is confined to: the same answer.
        """
        key, bound = request.path_params["id"], bound_to(request)
        found = await self._pool.one(key)
        if bound and found.lesson.tenant != bound:
            raise unknown(key)
        return found

    async def _search(self, request: Request) -> Any:
        body = await read_body(request, SearchBody)
        tenant = _tenant(request, body.tenant)
        return await self._pool.search(body.text, tenant=tenant, k=body.k, kinds=body.kinds, states=body.states)

    async def _add(self, request: Request) -> Any:
        body = await read_body(request, LessonBody)
        lesson = Experience(
            id="", tenant=_tenant(request, body.tenant), when_to_use=body.when_to_use, content=body.content,
            kind=body.kind, detail=body.detail,
        )  # fmt: skip
        made, new = await self._pool.add(lesson, body.reason, who(request))
        return {"lesson": made, "added": new}

    async def _state(self, request: Request) -> Any:
        body = await read_body(request, StateBody)
        return await self._pool.change(request.path_params["id"], body.change, body.reason, who(request))

    async def _export(self, request: Request) -> Any:
        text = await self._pool.exported(**_filters(request))
        return Response(text, media_type="application/jsonl")

    async def _import(self, request: Request) -> Any:
        body = await read_body(request, ImportBody, _MAX_IMPORT)
        return await self._pool.imported(
            body.text, tenants=body.tenants, quarantine=body.quarantine, dry_run=body.dry_run, by=who(request)
        )

    async def _forget(self, request: Request) -> Any:
        body = await read_body(request, ForgetBody)
        selector = Selector(trajectories=body.trajectories, tenant=body.tenant, caller=body.source)
        if body.dry_run:
            return await self._forgetter.plan(selector)
        return await self._forgetter.forget(selector, body.reason, who(request))


def _tenant(request: Request, asked: str) -> str:
    """The tenant that is `asked` for.

    Raises:
        OrderRefused: 403 the key is confined to another.
    """
    bound = bound_to(request)
    if bound and asked != bound:
        raise OrderRefused(403, f"this key teaches for the tenant {bound}, not for {asked}")
    return asked


def _filters(request: Request) -> dict[str, str]:
    """
    Raises:
        OrderRefused: a state or kind that there is not.
    """
    given = request.query_params
    found = {name: given.get(name, "") for name in ("tenant", "state", "kind")}
    for name, known in (("state", get_args(ExperienceState)), ("kind", get_args(ExperienceKind))):
        if found[name] and found[name] not in known:
            raise OrderRefused(422, f"no {name} {found[name]!r}; there are {', '.join(known)}")
    return found
