"""Three real daemons on one nats-server and one PostgreSQL, before real engines, with a tap and agents."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import msgspec
import sqlalchemy
import tomli_w

from actors.messages import SIGNATURE, Candidate
from actors.store import Store
from daemon.demo.processes import Child, module
from daemon.demo.world import answers
from daemon.settings.config import Config, load
from daemon.upkeep.provenance import Provenance
from tests.support import checkpoints
from tests.support.engines import embedded_engine
from tests.support.patience import SLOW, Late, until, within
from tests.support.pipeline import Agents
from tests.support.ports import free_ports
from tests.support.postgres import running_cluster
from tests.support.swapping import Door, door

NAMES = ("a", "b", "c")
LEASE_SECONDS = min(60.0, 15.0 * SLOW)
"""Long, so that no leader is deposed for being slow."""
SINGLETONS = ("assembler", "attributor", "curator", "experiencer", "gatekeeper", "swapper", "sentinel")


class Account(msgspec.Struct, frozen=True):
    """What the agents saw and what the store has of it."""

    exchanges: int
    lost: int
    doubled: int
    """Response ids that stand in the store twice, or in two trajectories."""
    loose: int
    """Exchanges in no trajectory."""
    trajectories: int
    unattributed: int
    attributed_twice: int
    client_errors: int


class Daemons:
    """The processes, in one state directory."""

    def __init__(self, directory: Path, store_url: str, ports: Mapping[str, int], engines: Mapping[str, str]) -> None:
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        self.logs = directory / "logs"
        table = {
            "state_dir": str(directory / "state"),
            "store": {"url": store_url},
            "broker": {"port": ports["broker"]},
            "engines": {name: {"url": engines[name]} for name in ("serving", "shadow")},
            "tap": {"port": ports["tap"], "admin_port": ports["admin"], "upstream": engines["direct"]},
            "cluster": {"lease_seconds": LEASE_SECONDS},
            "swapper": {"reconcile_seconds": 1.0},
            "assembler": {"idle_seconds": 60.0},
        }
        path = directory / "config.toml"
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        self.config: Config = load(path)
        self.tap_port, self._store_url = ports["tap"], store_url
        self._urls = {name: f"http://127.0.0.1:{ports[name]}" for name in NAMES}
        self.broker, self.tap = (
            self._child(name, module("daemon.cli", name, "--config", str(path))) for name in ("broker", "tap")
        )
        self.daemons = {
            name: self._child(
                f"daemon-{name}",
                module(
                    "daemon.cli", "run", "--config", str(path), "--set", f"control.port={ports[name]}",
                    "--set", f'cluster.name="{name}"',
                ),
            )
            for name in NAMES
        }  # fmt: skip
        self.http = httpx.AsyncClient(timeout=20.0, trust_env=False)
        self.versions = self.config.state / "versions"

    def _child(self, name: str, command: list[str]) -> Child:
        return Child(name, command, self.logs / f"{name}.log")

    async def start(self) -> None:
        self._sign(self.versions / "v000000")
        self.broker.start()
        self.tap.start()
        await until(lambda: asyncio.to_thread(answers, f"http://127.0.0.1:{self.tap_port}/health"), "the tap answers")
        for daemon in self.daemons.values():
            daemon.start()
        await self.all_up()

    async def all_up(self) -> None:
        """Wait until one leads, and every daemon is ready."""

        async def up() -> bool:
            seen = [await self.status(name) for name in NAMES]
            return all(seen) and sum(one["leader"]["here"] for one in seen) == 1 and all(_ready(one) for one in seen)

        await until(up, "three ready daemons, one leading", 240, every=0.2)

    async def status(self, name: str) -> dict[str, Any]:
        """Empty if it does not answer."""
        try:
            answer = await self.http.get(f"{self._urls[name]}/api/status")
            return answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return {}

    async def leader(self) -> str:
        """Who leads, once one does."""
        return await self._leading(NAMES, lambda seen: True)

    async def _leading(self, names: Iterable[str], also: Callable[[dict[str, Any]], bool]) -> str:
        """Which of `names` leads, once one does of which `also` holds."""
        found: list[str] = []
        last: dict[str, Any] = {}

        async def one_leads() -> bool:
            for name in names:
                last[name] = seen = await self.status(name)
                if seen and seen["leader"]["here"] and also(seen):
                    found.append(name)
            return bool(found)

        try:
            await until(one_leads, "one leads", 120)
        except Late as late:
            logs = {path.name: path.read_text(errors="replace")[-1500:] for path in self.logs.iterdir()}
            raise Late(f"{late}: {last}; {logs}") from None
        return found[0]

    async def order(self, name: str, kind: str, body: dict[str, Any]) -> httpx.Response:
        return await self.http.post(f"{self._urls[name]}/api/{kind}", json=body)

    async def taken_over(self, dead: str, began: float) -> tuple[str, float]:
        """Who leads after `dead`, with its singletons at work, and how long after `began` (monotonic) that was."""
        name = await self._leading([name for name in NAMES if name != dead], _ready)
        return name, time.monotonic() - began

    async def learned(self, number: int) -> None:
        """A version appears, as if the learner had made it."""
        path = checkpoints.write(self.versions / f"v{number:06d}", number + 1)
        checkpoints.write_manifest(path, number)
        content = self._sign(path)
        async with self.store() as store:
            await store.save(
                [
                    Candidate(
                        id=f"candidate-{number}",
                        version=number,
                        parent=0,
                        path=str(path),
                        files=(),
                        manifest=sha256(content).hexdigest(),
                        created=time.time(),
                    )
                ]
            )

    def _sign(self, path: Path) -> bytes:
        """The signed manifest."""
        content = (path / "manifest.json").read_bytes()
        key = Provenance(self.config.provenance, self.config.state).key("learner")
        (path / SIGNATURE).write_text(key.sign("manifest", content), encoding="ascii")
        return content

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = Store(self._store_url, clock=time.time)
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()

    async def swaps(self) -> list[tuple[int, str]]:
        """(version, result) of what the books have of the serving engine, oldest first."""
        async with self.store() as store:
            return [(one.version, one.result) for one in reversed(await store.servings("serving", 1000))]

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """Lines of a daemon's log."""
        text = (self.logs / f"daemon-{name}.log").read_text(errors="replace")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def account(self, agents: Agents) -> Account:
        """The agents' ids against the rows."""
        rows = self.ask("SELECT response_id, trajectory_id FROM exchanges WHERE response_id <> ''")
        runs = self.ask("SELECT id, attributed FROM trajectories WHERE source = 'production' AND side_of = ''")
        sent = self.ask("SELECT output_id FROM outbox WHERE actor = 'attributor' AND subject = 'trajectory.attributed'")
        stored = Counter(response for response, _ in rows)
        told = Counter(output.removeprefix("trajectory.attributed:") for (output,) in sent)
        seen = [response for run in agents.runs for response in run]
        return Account(
            exchanges=len(seen),
            lost=sum(stored[response] == 0 for response in seen),
            doubled=sum(number > 1 for number in stored.values()) + len(stored.keys() - set(seen)),
            loose=sum(not trajectory for _, trajectory in rows),
            trajectories=len(runs),
            unattributed=sum(not attributed or told[run] == 0 for run, attributed in runs),
            attributed_twice=sum(told[run] > 1 for run, _ in runs) + len(told.keys() - {run for run, _ in runs}),
            client_errors=agents.errors.total(),
        )

    def steps(self) -> Counter[str]:
        """In how many trajectories each exchange is a step."""
        from actors.messages import Attributed, decode

        found: Counter[str] = Counter()
        for (body,) in self.ask("SELECT body FROM trajectories WHERE source = 'production'"):
            message = decode(bytes(body))
            run = message.trajectory if isinstance(message, Attributed) else message
            found.update(step.response_id for step in run.steps)
        return found

    def ask(self, query: str) -> list[Any]:
        engine = sqlalchemy.create_engine(self._store_url)
        try:
            with engine.connect() as connection:
                return list(connection.execute(sqlalchemy.text(query)).all())
        finally:
            engine.dispose()

    async def aclose(self) -> None:
        await self.http.aclose()
        for child in (*self.daemons.values(), self.tap, self.broker):
            with contextlib.suppress(ProcessLookupError):
                child.signal(signal.SIGCONT)
            await asyncio.to_thread(child.stop, within())


def _ready(status: dict[str, Any]) -> bool:
    """Whether its singletons are where they should be."""
    wanted = "ready" if status["leader"]["here"] else "standby"
    by_name = {actor["name"]: actor["status"] for actor in status["actors"]}
    return all(by_name.get(name) == wanted for name in SINGLETONS)


@contextlib.asynccontextmanager
async def three_daemons(directory: Path) -> AsyncIterator[tuple[Daemons, Door]]:
    """All of it, gone at the end, and the door before the serving engine, as the daemons see it."""
    ports = dict(zip(("broker", "tap", "admin", *NAMES), free_ports(6), strict=True))
    first = checkpoints.write(directory / "state" / "versions" / "v000000", 1)
    checkpoints.write_manifest(first, 0)
    options = ("--dev-mode", "--weight-version", "0", "--threads", "1")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running_cluster())
        url = cluster.url(cluster.create(empty=True))  # the daemons make the tables, all at once
        serving, shadow = (
            stack.enter_context(embedded_engine(first, *options, name="bench")) for _ in ("serving", "shadow")
        )
        async with door(serving, ("load", -1, "")) as (held, seen_at):
            engines = {"direct": serving, "serving": seen_at, "shadow": shadow}
            daemons = Daemons(directory, url, ports, engines)
            try:
                await daemons.start()
                yield daemons, held
            finally:
                await daemons.aclose()


def kill(child: Child, number: int) -> float:
    """Send a signal; when that was (monotonic)."""
    pid = child.pid
    assert pid is not None, f"{child.name} is dead"
    os.kill(pid, number)
    return time.monotonic()
