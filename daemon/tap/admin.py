"""The tap's own page: metrics, and whether it lives.

GET  /metrics              Prometheus
GET  /healthz              200 while it serves (the engine's health is at /health of the other port)
GET  /readyz               the same: a tap that drains has closed its port

/metrics takes an operator's key, of scope `read`, once there is one.
"""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from daemon.tap.admission import Admission
from daemon.tap.agent import AgentConnection
from daemon.tap.errors import Refused
from daemon.tap.http import response_bytes
from daemon.tap.keys import check_host
from daemon.tap.request import Head, Request


class AdminRoute:
    """Answers on the admin port."""

    def __init__(self, registry: CollectorRegistry, door: Admission, host: str) -> None:
        """
        Raises:
            KeysUnusable: `host` can be reached by others, and there is no admin key.
        """
        check_host("tap.admin", host, door.ring)
        self._registry, self._door = registry, door

    def admit(self, head: Head) -> None:
        self._door.admit_admin(head)

    def answer(self, request: Request, agent: AgentConnection) -> None:
        path = request.path
        if path in (b"/healthz", b"/readyz"):
            agent.reply(response_bytes(200, b'{"status":"ok"}', close=agent.closing))
            return
        self.admit(request.head)
        if path != b"/metrics":
            raise Refused(404, "unknown_path", "here are /metrics, /healthz and /readyz")
        agent.reply(response_bytes(200, generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST))
