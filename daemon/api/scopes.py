"""Which scope of key opens which route of the control API: one table, and what follows from it.

| scope | for whom | opens |
|---|---|---|
| `read` | Prometheus, a wall screen | figures: status, success, metrics; nothing that agents or users wrote |
| `content` | who looks into cases | that, and trajectories, lessons, tasks, dead letters, exports |
| `operate` | who is on call | that, and orders: freeze, roll back, promote, retry, approve a lesson, call a tool |
| `admin` | who owns it | everything: also promote --force, forget, import, adding and removing live APIs |
| `teach` | an agents' framework | beside the ladder: search and draft lessons of its own tenant, nothing else |

A route that is not in the table takes `admin`: forgetting it here must not open it.
"""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope as Connection

from daemon.tap.keys import Scope

_E, _A = "/api/experience", "/api/adapters"
NEEDED: dict[tuple[str, str], tuple[Scope, ...]] = {
    ("GET", "/api/openapi.json"): ("read", "teach"),
    ("GET", "/api/status"): ("read",),
    ("GET", "/api/success"): ("read",),
    ("GET", "/api/judge"): ("read",),
    ("GET", "/metrics"): ("read",),
    ("GET", _A): ("read",),
    ("GET", "/api/tools"): ("read",),
    ("GET", "/api/trajectories"): ("content",),
    ("GET", "/api/trajectories/{id}"): ("content",),
    ("GET", "/api/why/{name}"): ("content",),
    ("GET", "/api/versions"): ("read",),
    ("GET", "/api/versions/{version}"): ("read",),
    ("GET", "/api/tasks"): ("content",),
    ("GET", "/api/dead"): ("content",),
    ("GET", f"{_E}/export"): ("content",),
    ("GET", _E): ("content", "teach"),
    ("GET", f"{_E}/{{id}}"): ("content", "teach"),
    ("POST", f"{_E}/search"): ("content", "teach"),
    ("POST", _E): ("operate", "teach"),
    ("POST", f"{_E}/{{id}}/state"): ("operate",),
    ("POST", "/api/dead/{id}/retry"): ("operate",),
    ("POST", "/api/freeze"): ("operate",),
    ("POST", "/api/thaw"): ("operate",),
    ("POST", "/api/promote"): ("operate",),  # with force: admin (`daemon.api.control`)
    ("POST", "/api/rollback"): ("operate",),
    ("POST", f"{_A}/{{name}}/test"): ("operate",),
    ("POST", "/api/tools/{name}/call"): ("operate",),
    ("POST", f"{_E}/import"): ("admin",),
    ("POST", f"{_E}/forget"): ("admin",),
    ("POST", _A): ("admin",),
    ("DELETE", f"{_A}/{{name}}"): ("admin",),
}
"""By method and route: any of these scopes opens it; the first is what a refusal tells to get."""
STATIC: tuple[Scope, ...] = ("read",)
"""For the dashboard's files, and what is not there."""


def needed(routes: Sequence[BaseRoute], connection: Connection) -> tuple[Scope, ...]:
    """The scopes that open what `connection` asks for; it is among `routes`, or a file."""
    for route in routes:
        match, _ = route.matches(connection)
        if match is Match.FULL:
            method = "GET" if connection["method"] == "HEAD" else connection["method"]
            return NEEDED.get((method, route.path), ("admin",)) if isinstance(route, Route) else ("admin",)
    return STATIC
