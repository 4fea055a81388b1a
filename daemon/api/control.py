"""The daemon's own HTTP surface: JSON for people and scripts, `/metrics`, and the dashboard. Loopback by default; who
may use it, `daemon.api.admin` says.

GET  /                      the dashboard
GET  /api/status            what runs, what serves, what was counted
GET  /api/success           success over time, swaps and gate measurements
     /api/trajectories      what agents did, step by step (`daemon.api.trajectories`)
     /api/versions          what became of the weights (`daemon.api.versions`)
     /api/experience        lessons, with how they fared (`daemon.api.experience`)
GET  /api/judge             what the judge did, cost, and is worth
GET  /api/dead              parked messages with their errors
POST /api/dead/ID/retry     put one back on its stream
POST /api/freeze, /api/thaw stop learning (serving goes on), go on
POST /api/promote           {"version": 12, "force": false, "reason": "..."}
POST /api/rollback          {"to": 11, "reason": "..."}
GET  /api/openapi.json      all of this as an OpenAPI document (`daemon.api.openapi`)
GET  /metrics               Prometheus
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from actors.deployment.fleet import Fleet
from actors.messages import BatchOrder, Candidate, Directive, Serving, Verdict
from actors.statistics.intervals import wilson
from actors.statistics.parties import FEWEST, with_evidence
from actors.store import Store
from actors.store.policy import LOADED
from actors.system.lifecycle import ActorState
from daemon.api.admin import AdminOnly, holder, refusal_figures
from daemon.api.headers import SecurityHeaders
from daemon.api.health import Health
from daemon.api.openapi import document
from daemon.api.orders import Order, Orders
from daemon.api.request_parsing import read_body, who
from daemon.dashboard import Dashboard
from daemon.errors import OrderRefused
from daemon.figures import Figures
from daemon.tap.keys import KeyRing, how_to, opens

_MOST = 100_000
"""Outcomes that are read for one answer."""
_NEWEST = 512
"""Newest outcomes whose parties are counted: twice what the gate looks at, for one may report much more than others."""
_COUNTED_SECONDS = 30.0
"""How long that count is good for: their bodies have to be read."""


class Control:
    """Answers for the daemon: reads the store, asks the supervisor, passes on orders."""

    def __init__(
        self,
        *,
        store: Store,
        registry: CollectorRegistry,
        actors: Callable[[], Sequence[ActorState]],
        orders: Orders,
        retry: Callable[[str], Any],
        describe: dict[str, Any],
        learning: Callable[[], Mapping[str, Any]] = dict,
        sentinel: Callable[[], Mapping[str, Any]] = dict,
        fleet: Callable[[], Fleet] = Fleet,
        halted: Callable[[], str] = lambda: "",
        serving: Sequence[str] = ("serving",),
        routes: Sequence[Route] = (),
        judge: Callable[[], Mapping[str, Any]] = dict,
        still: Callable[[], Collection[str]] = set,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            learning: whether it goes on, what it waits for, and from which agents; empty: not known yet.
            fleet: what serves and what should.
            halted: the kill switch's reason, empty if it is off.
            serving: names of the engines that serve users.
            routes: of other parts, behind the same door.
            judge: the attributor's report.
            still: queues whose head does not move.
        """
        self._store, self._registry, self._actors = store, registry, actors
        self._orders, self._retry, self._describe, self._clock = orders, retry, describe, clock
        self._fleet, self._halted, self._serving = fleet, halted, tuple(serving)
        self._sentinel, self._judge, self._routes = sentinel, judge, tuple(routes)
        self._learning, self._still = learning, still
        self._started = clock()
        self._parties: tuple[float, int] | None = None
        """When parties with evidence were counted last, and how many there were."""
        self._refused = Counter[str]()
        registry.register(Figures(refusal_figures, self._refused))

    def app(self, allowed_hosts: Sequence[str], keys: KeyRing | None = None) -> Starlette:
        """The ASGI application; all of it takes an operator's key if there is one among `keys`."""
        routes = [
            Route("/api/openapi.json", self.openapi),
            Route("/api/status", self.status),
            Route("/api/success", self.success),
            Route("/api/judge", self.judge),
            Route("/api/dead", self.dead),
            Route("/api/dead/{id}/retry", self.dead_retry, methods=["POST"]),
            Route("/api/freeze", self.order, methods=["POST"]),
            Route("/api/thaw", self.order, methods=["POST"]),
            Route("/api/promote", self.order, methods=["POST"]),
            Route("/api/rollback", self.order, methods=["POST"]),
            *self._routes,
            Route("/metrics", metrics(self._registry)),
        ]
        return behind_door(
            routes, Dashboard(), actors=self._actors, allowed_hosts=allowed_hosts, keys=keys, refused=self._refused,
            still=self._still,
        )  # fmt: skip

    async def openapi(self, request: Request) -> Response:
        return _json(document(request.app.routes))

    async def status(self, request: Request) -> Response:
        loaded = (item for item in await self._store.newest(Serving, 200) if item.result in LOADED)
        serving = next((item for item in loaded if item.engine in self._serving), None)
        candidates = await self._store.newest(Candidate, 1)
        batches = await self._store.newest(BatchOrder, 20)
        outcomes = await self._store.recent_outcomes(source="production", since=0.0, limit=100)
        known = [row.outcome for row in outcomes if row.outcome is not None]
        directives = await self._store.newest(Directive, 1)
        solved = sum(outcome >= 0.5 for outcome in known)
        low, high = wilson(solved, len(known))
        members = sum(len(batch.trajectories) for batch in batches)
        return _json(
            {
                **self._describe,
                "uptime_seconds": round(self._clock() - self._started, 1),
                "learning": dict(self._learning()),
                "frozen": await self._store.frozen(),
                "kill_switch": self._halted(),
                "fleet": self._fleet(),
                "serving": None if serving is None else {"version": serving.version, "since": serving.since},
                "trained": candidates[0].version if candidates else 0,
                "success": {"rate": solved / len(known) if known else None, "low": low, "high": high, "n": len(known)},
                "parties": _parties(await self._counted()),
                "counts": await self._store.counts(),
                "shares": {
                    "batches": len(batches),
                    "production": sum(batch.production for batch in batches) / members if members else 0.0,
                    "sandbox": 1 - sum(batch.production for batch in batches) / members if members else 0.0,
                },
                "sentinel": dict(self._sentinel()),
                "last_directive": directives[0] if directives else None,
                "actors": [msgspec.to_builtins(state) for state in self._actors()],
            }
        )

    async def _counted(self) -> int:
        """Parties that have evidence among the newest outcomes."""
        if self._parties is None or self._clock() - self._parties[0] >= _COUNTED_SECONDS:
            self._parties = self._clock(), with_evidence(await self._store.reporting_parties(_NEWEST))
        return self._parties[1]

    async def success(self, request: Request) -> Response:
        """Success of production trajectories in buckets of equal count, oldest first, and what happened meanwhile."""
        rows = await self._store.recent_outcomes(
            source="production", since=0.0, limit=min(_MOST, _limit(request, 2000))
        )
        known = [row for row in reversed(rows) if row.outcome is not None]
        size = max(10, len(known) // 60)
        points = []
        for start in range(0, len(known), size):
            bucket = known[start : start + size]
            solved = sum((row.outcome or 0.0) >= 0.5 for row in bucket)
            low, high = wilson(solved, len(bucket))
            points.append(
                {"time": bucket[-1].ended, "rate": solved / len(bucket), "low": low, "high": high, "n": len(bucket)}
            )
        found = await self._store.newest(Serving, 200)
        servings = [serving for serving in found if serving.engine in self._serving]
        verdicts = await self._store.newest(Verdict, 200)
        directives = await self._store.newest(Directive, 50)
        return _json(
            {
                "points": points,
                "swaps": [
                    {"time": s.since, "version": s.version, "result": s.result, "paused": s.paused_seconds}
                    for s in reversed(servings)
                ],
                "gate": [
                    {
                        "time": v.created,
                        "version": v.version,
                        "decision": v.decision,
                        "reason": v.reason,
                        "measurements": v.measurements,
                    }
                    for v in reversed(verdicts)
                ],
                "directives": [{"time": d.created, "kind": d.kind, "reason": d.reason} for d in reversed(directives)],
            }
        )

    async def judge(self, request: Request) -> Response:
        return _json(self._judge())

    async def dead(self, request: Request) -> Response:
        return _json(await self._store.dead_letters(100))

    async def dead_retry(self, request: Request) -> Response:
        key = request.path_params["id"]
        try:
            if not await self._retry(key):
                return _error(404, f"no parked message {key}")
        except OrderRefused as error:
            return _error(error.status, str(error))
        await self._orders.note("retry", {"message": key}, who(request))
        return _json({"retried": key})

    async def order(self, request: Request) -> Response:
        """Give an order."""
        kind = request.url.path.rpartition("/")[2]
        try:
            order = await read_body(request, Order)
            key = holder(request.state)
            if kind == "promote" and order.force and key is not None and not opens(key.scope, "admin"):
                raise OrderRefused(
                    403, f"force takes a key of scope admin, and {key.id} has {key.scope}; make one with "
                    f"`{how_to('admin')}`",
                )  # fmt: skip
            directive = await self._orders.give(kind, order, who(request))
        except OrderRefused as error:
            return _error(error.status, str(error))
        return _json({"sent": kind, "reason": directive.reason, "details": directive.details, "id": directive.id})


def behind_door(
    routes: Sequence[BaseRoute], default: ASGIApp, *, actors: Callable[[], Sequence[ActorState]],
    allowed_hosts: Sequence[str], keys: KeyRing | None, refused: Counter[str],
    still: Callable[[], Collection[str]] = set,
) -> Starlette:  # fmt: skip
    """An application of the control API's address: health for everybody, the rest behind an operator's key.

    Args:
        default: answers where no route matches.
    """
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(Health, actors=actors, still=still),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(allowed_hosts)),
            Middleware(AdminOnly, keys=keys, routes=routes, refused=refused),
        ],
        exception_handlers={OrderRefused: _refused},
    )
    # No route of its own: it would match every path, and a wrong method of one above were a file that is not there.
    app.router.default = default
    return app


def metrics(registry: CollectorRegistry) -> Callable[[Request], Awaitable[Response]]:
    """A route's answer to Prometheus."""

    async def answer(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return answer


def _limit(request: Request, default: int) -> int:
    """
    Raises:
        OrderRefused: 422.
    """
    given = request.query_params.get("limit", str(default))
    if not given.isascii() or not given.isdecimal() or len(given) > 18 or int(given) < 1:
        raise OrderRefused(422, f"limit is {given[:40]!r}; give a number from 1 on")
    return int(given)


async def _refused(request: Request, error: Exception) -> Response:
    return _error(error.status if isinstance(error, OrderRefused) else 500, str(error))


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)


def _parties(count: int) -> dict[str, Any]:
    """How many parties have evidence, and what the party rule (`actors.statistics.parties`) makes of it."""
    if count >= FEWEST:
        rule = "none weighs more than a third"
    elif count == 1:
        rule = f"its word decides; the caps bind from {FEWEST} on"
    else:
        rule = f"the caps bind from {FEWEST} on" + (", so one party's word can decide" if count else "")
    return {"with_evidence": count, "binds": count >= FEWEST, "sentence": f"{count} with evidence; {rule}"}
