"""Two real daemons on one nats-server and one PostgreSQL, before real engines, with a tap and agents."""

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from actors.messages import SIGNATURE, Attributed, Candidate, Serving, decode
from daemon.upkeep.provenance import Provenance
from tests.support import checkpoints
from tests.support.databases import opened_store
from tests.support.engines import embedded_engine
from tests.support.installation import Tapped
from tests.support.patience import until, within
from tests.support.ports import free_ports
from tests.support.postgres import Cluster, running_cluster
from tests.support.swapping import Door, door

NAMES = ("a", "b")
ACTORS = ("assembler", "attributor", "curator", "experiencer", "gatekeeper", "swapper", "sentinel")


class Daemons(Tapped):
    """The processes, in one state directory."""

    def __init__(self, directory: Path, cluster: Cluster, database: str, engines: Mapping[str, str]) -> None:
        """`engines`: "direct" (what the tap asks), "serving" (the same, as the daemons see it) and "shadow"."""
        super().__init__(
            directory, profile="toy", database={"url": cluster.url(database)}, engines={"url": engines["serving"]},
            shadow={"url": engines["shadow"]}, runs={"idle_minutes": 1.0},
            trial={"runs": 10_000}, watch={"success": "tell"},  # what chance says of four versions is not the question
        )  # fmt: skip
        self._cluster, self._database, self._ways = cluster, database, directory / "postgres"
        ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self.tap = self.child("tap", "tap", "--set", f"engines.url={engines['direct']}")
        self.daemons = {
            name: self.child(
                f"daemon-{name}", "run", "--set", f"control.listen=127.0.0.1:{port}",
                "--set", f"database.url={cluster.url(database, at=self.join(name))}&application_name={name}",
            )
            for name, port in ports.items()
        }  # fmt: skip
        self.http = httpx.AsyncClient(timeout=20.0, trust_env=False)
        self.logs, self.versions = directory / "logs", self.config.state / "versions"

    async def start(self) -> None:
        self._sign(self.versions / "v000000")
        await self.start_tap()
        for daemon in self.daemons.values():
            daemon.start()
        await self.all_up()

    def join(self, name: str) -> Path:
        """The daemon has a way to the database, its own: a directory with the server's socket."""
        way = self._ways / name
        way.mkdir(parents=True, exist_ok=True)
        socket = f".s.PGSQL.{self._cluster.port}"
        (way / socket).symlink_to(self._cluster.directory / socket)
        return way

    def cut_off(self, name: str) -> None:
        """It has none, and the connections that it had are lost."""
        (self._ways / name / f".s.PGSQL.{self._cluster.port}").unlink()
        with self._cluster.connect(self._database) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (name,))

    async def all_up(self) -> None:
        """Wait until one leads, and the other waits; whoever ended is started again, as a service manager does it."""

        async def up() -> bool:
            for daemon in self.daemons.values():
                daemon.check()
            found = await self._ready()
            return len(found) == len(NAMES) and sum(found.values()) == 1

        await until(up, "one leads, the other waits", 240, every=0.2)

    async def leader(self, dead: str = "") -> str:
        """Who leads, with its actors at work; not `dead`, if it is asked after that one's end."""
        found: list[str] = []

        async def one_leads() -> bool:
            found.extend(name for name, leads in (await self._ready()).items() if leads and name != dead)
            return bool(found)

        await until(one_leads, "one leads", 120)
        return found[0]

    async def _ready(self) -> dict[str, bool]:
        """By the names of the daemons that are at work, or wait: whether it leads."""
        found: dict[str, bool] = {}
        for name in NAMES:
            status, seen = await self.status(name)
            if status == 503 and "waits to lead" in str(seen):
                found[name] = False
            elif status == 200:
                actors = {actor["name"]: actor["status"] for actor in seen["actors"]}
                if all(actors.get(actor) == "ready" for actor in ACTORS):
                    found[name] = True
        return found

    def epoch(self) -> int:
        """Of the lead."""
        return int(self.ask("SELECT epoch FROM leases WHERE name = 'leader'")[0][0])

    async def status(self, name: str) -> tuple[int, dict[str, Any]]:
        """Status and body of its answer; 0 without one."""
        try:
            answer = await self.http.get(f"{self._urls[name]}/api/status", timeout=2.0)
            return answer.status_code, answer.json()
        except (httpx.HTTPError, ValueError):
            return 0, {}

    async def order(self, name: str, kind: str, body: dict[str, Any]) -> httpx.Response:
        return await self.http.post(f"{self._urls[name]}/api/{kind}", json=body)

    async def learned(self, number: int) -> None:
        """A version appears, as if the learner had made it; its weights are those of all."""
        path = checkpoints.write(self.versions / f"v{number:06d}", 1)
        checkpoints.write_manifest(path, number)
        made = Candidate(
            id=f"candidate-{number}", version=number, parent=0, path=str(path), files=(),
            manifest=sha256(self._sign(path)).hexdigest(), created=time.time(),
        )  # fmt: skip
        async with opened_store(self.config.store_url) as store:
            await store.save([made])

    def _sign(self, path: Path) -> bytes:
        """The signed manifest."""
        content = (path / "manifest.json").read_bytes()
        key = Provenance(self.config.state).key("learner")
        (path / SIGNATURE).write_text(key.sign("manifest", content), encoding="ascii")
        return content

    async def swaps(self) -> list[tuple[int, str]]:
        """(version, result) of what the books have of the serving engine, oldest first."""
        async with opened_store(self.config.store_url) as store:
            return [(one.version, one.result) for one in reversed(await store.newest(Serving, 1000, engine="serving"))]

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """Lines of a daemon's log."""
        text = (self.logs / f"daemon-{name}.log").read_text(errors="replace")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def steps(self) -> Counter[str]:
        """In how many trajectories each exchange is a step."""
        found: Counter[str] = Counter()
        for (body,) in self.ask("SELECT body FROM trajectories WHERE source = 'production'"):
            message = decode(bytes(body))
            run = message.trajectory if isinstance(message, Attributed) else message
            found.update(step.response_id for step in run.steps)
        return found

    async def aclose(self) -> None:
        await self.http.aclose()
        for child in (*self.daemons.values(), self.tap, self.broker):
            with contextlib.suppress(ProcessLookupError):
                child.signal(signal.SIGCONT)
            await asyncio.to_thread(child.stop, within())


@contextlib.asynccontextmanager
async def two_daemons(directory: Path) -> AsyncIterator[tuple[Daemons, Door]]:
    """All of it, gone at the end, and the door before the serving engine, as the daemons see it."""
    first = checkpoints.write(directory / "state" / "versions" / "v000000", 1)
    checkpoints.write_manifest(first, 0)
    options = ("--dev-mode", "--weight-version", "0", "--threads", "1")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running_cluster())
        database = cluster.create(empty=True)  # the daemons make the tables, both at once
        serving, shadow = (
            stack.enter_context(embedded_engine(first, *options, name="bench")) for _ in ("serving", "shadow")
        )
        async with door(serving, ("load", -1, "")) as (held, seen_at):
            engines = {"direct": serving, "serving": seen_at, "shadow": shadow}
            daemons = Daemons(directory, cluster, database, engines)
            try:
                await daemons.start()
                yield daemons, held
            finally:
                await daemons.aclose()
