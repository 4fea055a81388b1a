"""The tap's own page: metrics, whether it lives, and the engines' shares.

GET  /metrics              Prometheus
GET  /healthz              200 while it serves (the engine's health is at /health of the other port)
GET  /readyz               the same: a tap that drains has closed its port
GET  /upstreams            engines, health, weights
PUT  /upstreams/NAME       {"weight": 0.1}: its share of new trajectories, until the tap ends

All but /healthz and /readyz take an operator's key once there is one: of scope `read` to look, of `operate` to change.
"""

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from daemon.tap.admission import Admission
from daemon.tap.agent import Agent
from daemon.tap.call import Call
from daemon.tap.errors import Refused
from daemon.tap.http import response_bytes
from daemon.tap.request import Head, Request
from daemon.tap.router import Router

_UPSTREAMS = b"/upstreams"


class _Share(msgspec.Struct, forbid_unknown_fields=True):
    weight: float


class AdminRoute:
    """Answers on the admin port."""

    def __init__(self, registry: CollectorRegistry, router: Router, door: Admission, host: str) -> None:
        """
        Raises:
            InvalidTapSettings: `host` can be reached by others, and there is no admin key.
        """
        door.check_admin_host("tap.admin_host", host)
        self._registry, self._router, self._door = registry, router, door

    def admit(self, head: Head) -> None:
        self._door.admit_admin(head, "operate" if head.method == b"PUT" else "read")

    def answer(self, request: Request, agent: Agent) -> Call | None:
        path = request.path
        if path in (b"/healthz", b"/readyz"):
            data = response_bytes(200, b'{"status":"ok"}', close=agent.closing)
            agent.reply(data)
            return None
        self.admit(request.head)
        if path == b"/metrics":
            data = response_bytes(200, generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST)
        elif path == _UPSTREAMS:
            data = self._shown()
        elif path.startswith(_UPSTREAMS + b"/"):
            self._share(path.removeprefix(_UPSTREAMS + b"/").decode("utf-8", "replace"), request)
            data = self._shown()
        else:
            raise Refused(404, "unknown_path", "here are /metrics, /healthz, /readyz and /upstreams")
        agent.reply(data)
        return None

    def _shown(self) -> bytes:
        return response_bytes(
            200,
            msgspec.json.encode(
                [
                    {
                        "name": one.name,
                        "address": one.authority.decode(),
                        "weight": one.weight,
                        "healthy": one.healthy,
                        "closed": one.closed,
                        "version": one.version,
                        "canary_share": self._router.share if one is self._router.canary else 0.0,
                        "trajectories": one.trajectories,
                        "in_flight": one.in_flight,
                        "idle": one.idle,
                    }
                    for one in self._router.upstreams
                ]
            ),
        )

    def _share(self, name: str, request: Request) -> None:
        """Set an engine's weight.

        Raises:
            Refused: 404, 405 or 422, with what to send instead.
        """
        upstream = self._router.named(name)
        if upstream is None:
            known = ", ".join(one.name for one in self._router.upstreams)
            raise Refused(404, "unknown_upstream", f"no engine is called {name[:100]!r}; there are {known}")
        if request.method != b"PUT":
            raise Refused(405, "method_not_allowed", "a weight is put", allow="PUT")
        try:
            weight = msgspec.json.decode(request.body, type=_Share).weight
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(422, "invalid_weight", f'{error}; send {{"weight": 0.1}}', param="weight") from error
        others = any(one.weight > 0 for one in self._router.upstreams if one is not upstream)
        if not 0 <= weight < 1e9 or not (weight or others):
            raise Refused(
                422, "invalid_weight", "a weight is 0 or more, and one engine must be above 0", param="weight"
            )
        upstream.weight = weight
