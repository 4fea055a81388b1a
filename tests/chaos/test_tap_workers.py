"""A tap with two workers, as it is shipped: one port, one admin port, and what is left when one of them is killed."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from prometheus_client import CollectorRegistry

from actors.messages import decode
from actors.messages.routes import Routes, write_routes
from actors.system.lifecycle import Lifecycle, Restart, Unit
from actors.system.streams import TRAFFIC_EXCHANGE
from daemon.ingest.shipper import Shipper, ShipperMetrics, ShipperSettings
from daemon.tap.segments import spools
from daemon.tap.spool_reader import SpoolReader
from tests.support.patience import Late, until, wait_until, within
from tests.support.ports import free_ports
from tests.support.process import Process, alive
from tests.support.stub_bus import StubBus

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(within(300)), pytest.mark.promise]


class Tap:
    """Parent and workers."""

    def __init__(self, port: int, admin_port: int, process: Process, state: Path) -> None:
        self.port, self.admin_port, self.process, self.state = port, admin_port, process, state

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"

    def ask(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.admin_port}{path}", timeout=within())

    def figures(self, name: str, label: str = "") -> dict[str, float]:
        """A metric by worker, added up over its other labels, or of those alone that have `label`."""
        found: Counter[str] = Counter()
        for line in self.ask("/metrics").text.splitlines():
            if line.startswith((name + "{", name + " ")) and label in line:
                found[line.partition('worker="')[2].partition('"')[0]] += float(line.rpartition(" ")[2])
        return dict(found)

    def pids(self) -> dict[str, int]:
        """Of the workers, by number."""
        found: dict[str, int] = {}
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            told = next(one for one in environment if one.startswith(b"EVOLVED_TAP_WORKER="))
            found[told.partition(b"=")[2].split(b"/")[0].decode()] = int(pid)
        return found

    def until(self, done: Callable[[], bool], what: str) -> None:
        def there() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return done()
            return False

        self.process.until(there, what=what)

    def kept(self) -> int:
        """Records in the spools of both workers."""
        return sum(len(SpoolReader(one).read(100_000, 1 << 30)) for one in spools(self.state / "spool", 2))


@contextlib.contextmanager
def running(tmp_path: Path, settings: dict[str, object], *, notify: str = "") -> Iterator[Tap]:
    port, admin_port = free_ports(2)
    told = {"state_dir": str(tmp_path), "tap.workers": 2, "tap.port": port, "tap.admin_port": admin_port, **settings}
    command = [sys.executable, "-m", "daemon.cli", "tap"]
    for key, value in told.items():
        command += ["--set", f"{key}={value}"]
    environment = os.environ | ({"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": "2000000"} if notify else {})
    with Process(command, tmp_path / "log", env=environment) as process:
        tap = Tap(port, admin_port, process, tmp_path)
        try:
            tap.until(lambda: tap.ask("/readyz").status_code == 200, "both workers serve")
            yield tap
        finally:
            process.stop()
            print(process.tail())


@contextlib.asynccontextmanager
async def engine(name: str) -> AsyncIterator[int]:
    """Answers every call with its name and an id of its own."""
    made = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0"
                )
                await reader.readexactly(int(size.partition(b":")[2]))
                made += 1
                message = {"role": "assistant", "content": name}
                body = json.dumps(
                    {"id": f"{name}-{made}", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
                ).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def conversation(number: int, turns: int) -> dict[str, object]:
    """The body of turn `turns` of conversation `number`, which is told by its opening alone."""
    messages = [{"role": "user", "content": f"conversation {number}"}]
    for turn in range(turns):
        messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": f"turn {turn}"}]
    return {"model": "m", "messages": messages}


async def shipped(directories: list[Path], wanted: int) -> list[str]:
    """What a shipper makes of the spools: the ids on the bus, in order."""
    bus, draining = StubBus(), anyio.Event()
    subscription = await bus.subscribe("test", [TRAFFIC_EXCHANGE])
    shipper = Shipper(
        directories, bus, settings=ShipperSettings(), metrics=ShipperMetrics(CollectorRegistry()),
        rng=random.Random(1),
    )  # fmt: skip
    unit = Unit("shipper", lambda lifecycle: anyio.lowlevel.checkpoint(), Restart())
    found: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(shipper.run, Lifecycle(unit, draining, lambda: None))

        async def fetch() -> bool:
            found.extend(decode(one.data).id for one in await subscription.fetch(100, 1.0))
            return len(found) >= wanted

        with contextlib.suppress(Late):  # what has not come by then is lost: for the caller to say
            await until(fetch, f"{wanted} records", 120)
        await fetch()  # what would come twice, comes now
        draining.set()
    return found


def test_a_killed_worker_breaks_its_own_connections_and_nobody_elses(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine("e") as port:
            with running(tmp_path, {"tap.upstream": f"http://127.0.0.1:{port}"}) as tap:
                answered = await _kill(tap)
            found = await shipped(spools(tap.state / "spool", 2), answered)
            assert len(found) == answered
            assert len(set(found)) == answered

    async def _kill(tap: Tap) -> int:
        clients: list[httpx.AsyncClient] = []
        answered = 0

        async def call(client: httpx.AsyncClient, number: int = 0) -> bool:
            nonlocal answered
            try:
                answer = await client.post(tap.url, json=conversation(number, 0))
            except httpx.HTTPError:
                return False
            answered += answer.status_code == 200
            return answer.status_code == 200

        def connect() -> httpx.AsyncClient:
            return httpx.AsyncClient(
                limits=httpx.Limits(max_connections=1, max_keepalive_connections=1), timeout=within(), verify=False
            )

        held: dict[str, float] = {}
        for _ in range(20):
            # Which worker takes a connection is the kernel's choice.
            fresh = [connect() for _ in range(12)]
            clients += fresh
            assert all(await asyncio.gather(*(call(one) for one in fresh)))
            held = await asyncio.to_thread(tap.figures, "evolved_tap_connections")
            if min(held.values()) > 0:
                break
        assert min(held.values()) > 0, held
        # What is handed to the scribe by now is written whatever happens to its worker.
        await until(lambda: asyncio.to_thread(lambda: tap.kept() >= answered), "all answers are in the spool")
        victim = min(held, key=lambda number: held[number])
        os.kill(tap.pids()[victim], signal.SIGKILL)
        again = await asyncio.gather(*(call(one) for one in clients))
        print(f"connections by worker {held}; killed {victim}; broken {again.count(False)}")
        assert again.count(False) <= held[victim]
        new = [connect() for _ in range(20)]
        assert all(await asyncio.gather(*(call(one) for one in new)))
        await asyncio.to_thread(tap.until, lambda: tap.ask("/readyz").status_code == 200, "it is started again")
        assert (await asyncio.to_thread(tap.figures, "evolved_tap_worker_restarts_total"))[victim] == 1
        for one in (*clients, *new):
            await one.aclose()
        return answered

    asyncio.run(main())


def test_a_conversation_stays_at_its_engine_whichever_worker_takes_the_call(tmp_path: Path) -> None:
    turns, conversations = 5, 60

    async def main() -> None:
        async with engine("a") as one, engine("b") as two:
            upstreams = f'[{{url="http://127.0.0.1:{one}",name="a"}},{{url="http://127.0.0.1:{two}",name="b"}}]'
            with running(tmp_path, {"tap.upstreams": upstreams}) as tap:
                at: dict[int, list[str]] = {number: [] for number in range(conversations)}
                gate = asyncio.Semaphore(12)

                async def talk(number: int, turns: Iterable[int]) -> None:
                    for turn in turns:
                        # A connection for each turn: any worker may take it.
                        async with gate, httpx.AsyncClient(timeout=within(), verify=False) as client:
                            answer = await client.post(tap.url, json=conversation(number, turn))
                        at[number].append(answer.json()["choices"][0]["message"]["content"])

                await asyncio.gather(*(talk(number, range(turns)) for number in at))
                served = await asyncio.to_thread(tap.figures, "evolved_tap_requests_total")
                heard = await asyncio.to_thread(tap.figures, "evolved_tap_siblings_heard_total")
                dropped = await asyncio.to_thread(tap.figures, "evolved_tap_siblings_dropped_total")
                moved = [number for number, names in at.items() if len(set(names)) > 1]
                print(f"calls by worker {served}; heard {heard}, dropped {dropped}; moved: {len(moved)}")
                assert min(served.values()) > 0
                assert min(heard.values()) > 0
                assert not moved
                assert not any(dropped.values())

                # A worker that is started again is told by the other.
                os.kill(tap.pids()["1"], signal.SIGKILL)
                await asyncio.to_thread(tap.until, lambda: _restarted(tap), "it is started again and has been told")
                await asyncio.gather(*(talk(number, range(turns, turns + 2)) for number in at))
                served = await asyncio.to_thread(tap.figures, "evolved_tap_requests_total")
                moved = [number for number, names in at.items() if len(set(names)) > 1]
                print(f"after a kill: calls by worker {served}; moved: {len(moved)}")
                assert min(served.values()) > 0
                assert not moved
                assert {names[0] for names in at.values()} == {"a", "b"}

                write_routes(tmp_path / "routes.json", Routes(until=time.time() + 600, canary="b", share=0.25))
                await asyncio.to_thread(tap.until, lambda: _share(tap) == 0.25, "the canary is known to all workers")
                canary = 0

                async def start(number: int) -> None:
                    nonlocal canary
                    async with gate, httpx.AsyncClient(timeout=within(), verify=False) as client:
                        answer = await client.post(tap.url, json=conversation(number, 0))
                    canary += answer.json()["choices"][0]["message"]["content"] == "b"

                drawn = 300
                await asyncio.gather(*(start(1000 + number) for number in range(drawn)))
                print(f"canary: {canary} of {drawn} new trajectories at a share of 0.25")
                # Five standard deviations of a fair draw.
                assert abs(canary - 0.25 * drawn) < 5 * (drawn * 0.25 * 0.75) ** 0.5

    def _restarted(tap: Tap) -> bool:
        heard = tap.figures("evolved_tap_siblings_heard_total")
        return tap.figures("evolved_tap_worker_restarts_total")["1"] == 1 and heard.get("1", 0) > 0

    def _share(tap: Tap) -> float:
        return min(tap.figures("evolved_tap_upstream_canary_share", 'engine="b"').values())

    asyncio.run(main())


def test_the_service_manager_hears_of_the_parent_only(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(within())
        upstreams = '[{url="http://127.0.0.1:9",name="a"},{url="http://127.0.0.1:9",name="b"}]'
        with running(tmp_path, {"tap.upstreams": upstreams}, notify=str(tmp_path / "notify")) as tap:
            assert b"READY=1" in manager.recv(4096)
            assert b"WATCHDOG=1" in manager.recv(4096)
            assert tap.ask("/elsewhere").status_code == 404
            for pid in tap.pids().values():
                assert b"LISTEN_FDS" not in Path(f"/proc/{pid}/environ").read_bytes()
            pids = tap.pids()
            # A worker whose parent is gone must not stay behind with the port.
            os.kill(tap.process.pid, signal.SIGKILL)
            tap.process.wait()
            wait_until(lambda: not any(alive(pid) for pid in pids.values()), "no orphaned workers")
