"""The admin port of a tap with several workers: answers for all of them.

GET  /metrics              each worker's figures under the label `worker`, 0 to N-1, and the parent's own
GET  /healthz              200 while a worker serves
GET  /readyz               200 while all do
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from daemon.tap.admission import Admission
from daemon.tap.agent import AgentConnection
from daemon.tap.call import Call
from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, response_bytes
from daemon.tap.metrics import Counts
from daemon.tap.request import Head, Request
from daemon.tap.settings import TapSettings

_ASK_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_FORWARDED = (b"authorization", b"x-evolved-key")

log = structlog.get_logger(__name__)


class Known(Protocol):
    """What the admin page knows of a worker."""

    number: int
    ready: bool
    restarts: int
    admin_path: Path


class _Collected:
    """A collector of what was gathered for one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


class WorkersAdmin:
    """Serves the admin port."""

    def __init__(self, settings: TapSettings, workers: Sequence[Known]) -> None:
        """
        Raises:
            InvalidTapSettings: the admin host can be reached by others, and there is no admin key.
        """
        self._workers = workers
        self._door = Admission(settings.door, clock=time.time)
        self._door.check_admin_host("tap.admin", settings.admin_host)
        self._agents: set[AgentConnection] = set()
        self._counts = Counts()
        self._answers: set[asyncio.Task[None]] = set()

    def connection(self) -> AgentConnection:
        parser = RequestParser(
            max_header_bytes=1 << 16,
            max_body_bytes=1 << 16,
            clock=time.time,
            admit=self.admit,
        )
        return AgentConnection(self.answer, parser, self._agents, self._counts, max_connections=256)

    async def watch(self) -> None:
        """Deadlines of connections, and keys that change; for ever."""
        while True:
            await asyncio.sleep(0.5)
            self._door.reload()
            now = time.monotonic()
            for agent in [one for one in self._agents if one.due <= now]:
                agent.late()

    def close(self) -> None:
        for task in self._answers:
            task.cancel()
        for agent in tuple(self._agents):
            agent.cut()

    def admit(self, head: Head) -> None:
        self._door.admit_admin(head)

    def answer(self, request: Request, agent: AgentConnection) -> Call | None:
        path = request.path
        if path in (b"/healthz", b"/readyz"):
            ready = sum(one.ready for one in self._workers)
            good = ready == len(self._workers) if path == b"/readyz" else ready > 0
            body = msgspec.json.encode({"status": "ok" if good else "degraded", "workers": ready})
            agent.reply(response_bytes(200 if good else 503, body, close=agent.closing))
            return None
        self.admit(request.head)
        if path != b"/metrics":
            raise Refused(404, "unknown_path", "here are /metrics, /healthz and /readyz")
        agent.within(_ANSWER_SECONDS, "admin")
        task = asyncio.get_running_loop().create_task(self._gather(request, agent))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return None

    async def _gather(self, request: Request, agent: AgentConnection) -> None:
        live = [one for one in self._workers if one.ready]
        found = await asyncio.gather(*(_ask(one.admin_path, request) for one in live), return_exceptions=True)
        texts: list[tuple[int, bytes]] = []
        for one, got in zip(live, found, strict=True):
            if isinstance(got, BaseException):
                log.warning("tap_worker_no_answer", worker=one.number, error=repr(got))
            elif got[0] == 200:
                texts.append((one.number, got[1]))
        agent.reply(response_bytes(200, self._metrics(texts), content_type=CONTENT_TYPE_LATEST))

    def _metrics(self, texts: Sequence[tuple[int, bytes]]) -> bytes:
        families: dict[str, Metric] = {}
        for number, body in texts:
            for family in text_string_to_metric_families(body.decode()):
                into = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    into.add_sample(sample.name, {**sample.labels, "worker": str(number)}, sample.value)
        ready = GaugeMetricFamily("evolved_tap_worker_ready", "1 if the worker serves.", labels=["worker"])
        restarts = CounterMetricFamily(
            "evolved_tap_worker_restarts", "Times that it was started again.", labels=["worker"]
        )
        for one in self._workers:
            ready.add_metric([str(one.number)], float(one.ready))
            restarts.add_metric([str(one.number)], one.restarts)
        registry = CollectorRegistry()
        registry.register(_Collected([*families.values(), ready, restarts]))  # type: ignore[arg-type]
        return generate_latest(registry)


async def _ask(path: Path, request: Request) -> tuple[int, bytes]:
    """Status and body of a worker's answer to a scrape, by the key of `request`."""
    async with asyncio.timeout(_ASK_SECONDS):
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            lines = [b"GET /metrics HTTP/1.1", b"host: localhost", b"connection: close"]
            lines += [name + b": " + value for name in _FORWARDED if (value := request.header(name))]
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            return int(head.split(b" ", 2)[1]), body
        finally:
            writer.close()
