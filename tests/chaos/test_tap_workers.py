"""A tap with two workers, as it is shipped: one port, one admin port, and what is left when one of them is killed."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import httpx
import pytest

from actors.messages.routes import Routes, write_routes
from daemon.tap.segments import spools
from daemon.tap.spool_reader import SpoolReader
from tests.support.engine import Asked, Engine, answer, running_engine
from tests.support.patience import until, wait_until, within
from tests.support.ports import free_ports
from tests.support.process import Process, alive

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(within(300)), pytest.mark.promise]


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


def kept(state: Path) -> set[str]:
    """Ids of the records in the spools of both workers."""
    records = [one for spool in spools(state / "spool", 2) for one in SpoolReader(spool).read(100_000, 1 << 30)]
    return {one.id.hex() for one in records}


@contextlib.contextmanager
def running(tmp_path: Path, engines: str, *, notify: str = "") -> Iterator[Tap]:
    port, admin_port = free_ports(2)
    told = ["tap.workers=2", f"tap.listen=127.0.0.1:{port}", f"tap.admin=127.0.0.1:{admin_port}", f"engines={engines}"]
    command = [sys.executable, "-m", "daemon.cli", "tap", "--set", f"state_dir={tmp_path}"]
    for assignment in told:
        command += ["--set", assignment]
    environment = os.environ | ({"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": "2000000"} if notify else {})
    with Process(command, tmp_path / "log", env=environment) as process:
        tap = Tap(port, admin_port, process, tmp_path)
        try:
            tap.until(lambda: tap.ask("/readyz").status_code == 200, "both workers serve")
            yield tap
        finally:
            process.stop()


@contextlib.asynccontextmanager
async def engine(name: str) -> AsyncIterator[int]:
    """Answers every call with its name and an id of its own."""

    async def named(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        choice = {"index": 0, "message": {"role": "assistant", "content": name}, "finish_reason": "stop"}
        await stream.send(answer(200, {"id": f"{name}-{len(engine.asked)}", "choices": [choice]}))
        return True

    async with running_engine() as running:
        running.script = named
        yield running.port


def conversation(number: int, turns: int) -> dict[str, object]:
    """The body of turn `turns` of conversation `number`, which is told by its opening alone."""
    messages = [{"role": "user", "content": f"conversation {number}"}]
    for turn in range(turns):
        messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": f"turn {turn}"}]
    return {"model": "m", "messages": messages}


def client() -> httpx.AsyncClient:
    """One connection."""
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    return httpx.AsyncClient(limits=limits, timeout=within(), verify=False)


async def call(tap: Tap, by: httpx.AsyncClient, number: int = 0, turns: int = 0) -> str:
    """The engine that answered; empty if the connection broke."""
    try:
        got = await by.post(tap.url, json=conversation(number, turns))
    except httpx.HTTPError:
        return ""
    return got.json()["choices"][0]["message"]["content"]


async def calls(tap: Tap, many: Sequence[httpx.AsyncClient]) -> list[str]:
    found: list[str] = []

    async def one(by: httpx.AsyncClient) -> None:
        found.append(await call(tap, by))

    async with anyio.create_task_group() as group:
        for by in many:
            group.start_soon(one, by)
    return found


async def figures(tap: Tap, name: str) -> dict[str, float]:
    return await anyio.to_thread.run_sync(tap.figures, f"evolved_tap_{name}")


async def test_a_killed_worker_breaks_its_own_connections_and_nobody_elses(tmp_path: Path) -> None:
    async with engine("e") as port:
        with running(tmp_path, f'[{{url="http://127.0.0.1:{port}",name="serving"}}]') as tap:
            answered = await _kill(tap)
    assert len(kept(tmp_path)) == answered


async def _kill(tap: Tap) -> int:
    """How many calls were answered."""
    clients: list[httpx.AsyncClient] = []
    held = {"0": 0.0}
    for _ in range(20):
        # Which worker takes a connection is the kernel's choice.
        fresh = [client() for _ in range(12)]
        clients += fresh
        assert all(await calls(tap, fresh))
        held = await figures(tap, "connections")
        if min(held.values()) > 0:
            break
    assert min(held.values()) > 0, held
    answered = len(clients)
    # What is handed to the scribe by now is written whatever happens to its worker.
    await until(
        lambda: anyio.to_thread.run_sync(lambda: len(kept(tap.state)) >= answered), "all answers are in the spool"
    )
    victim = min(held, key=lambda number: held[number])
    os.kill(tap.pids()[victim], signal.SIGKILL)
    again = await calls(tap, clients)
    assert again.count("") <= held[victim]
    new = [client() for _ in range(20)]
    assert all(await calls(tap, new))
    await anyio.to_thread.run_sync(tap.until, lambda: tap.ask("/readyz").status_code == 200, "it is started again")
    assert (await figures(tap, "worker_restarts_total"))[victim] == 1
    for one in (*clients, *new):
        await one.aclose()
    return answered + len(again) - again.count("") + len(new)


async def talk(tap: Tap, numbers: Iterable[int], turns: Iterable[int]) -> dict[int, set[str]]:
    """The engines that served each conversation; a connection for each turn, so that any worker may take it."""
    found: dict[int, set[str]] = {}
    gate = anyio.Semaphore(12)

    async def one(number: int) -> None:
        for turn in turns:
            async with gate, client() as by:
                found.setdefault(number, set()).add(await call(tap, by, number, turn))

    async with anyio.create_task_group() as group:
        for number in numbers:
            group.start_soon(one, number)
    return found


async def test_a_conversation_stays_at_its_engine_whichever_worker_takes_the_call(tmp_path: Path) -> None:
    def restarted() -> bool:
        return tap.figures("evolved_tap_worker_restarts_total")["1"] == 1 and (
            tap.figures("evolved_tap_siblings_heard_total").get("1", 0) > 0
        )

    def share() -> float:
        return min(tap.figures("evolved_tap_upstream_canary_share", 'engine="b"').values())

    async with engine("a") as one, engine("b") as two:
        engines = f'[{{url="http://127.0.0.1:{one}",name="a"}},{{url="http://127.0.0.1:{two}",name="b"}}]'
        with running(tmp_path, engines) as tap:
            at = await talk(tap, range(60), range(5))
            served, heard = await figures(tap, "requests_total"), await figures(tap, "siblings_heard_total")
            assert min(*served.values(), *heard.values()) > 0
            assert all(len(names) == 1 for names in at.values())
            assert not any((await figures(tap, "siblings_dropped_total")).values())

            # A worker that is started again is told by the other.
            os.kill(tap.pids()["1"], signal.SIGKILL)
            await anyio.to_thread.run_sync(tap.until, restarted, "it is started again and has been told")
            assert await talk(tap, range(60), range(5, 7)) == at
            served = await figures(tap, "requests_total")
            assert min(served.values()) > 0
            assert set.union(*at.values()) == {"a", "b"}

            write_routes(tmp_path / "routes.json", Routes(until=time.time() + 600, canary="b", share=0.25))
            await anyio.to_thread.run_sync(tap.until, lambda: share() == 0.25, "the canary is known to all workers")
            drawn = 300
            canary = sum(names == {"b"} for names in (await talk(tap, range(1000, 1000 + drawn), [0])).values())
            # Five standard deviations of a fair draw.
            assert abs(canary - 0.25 * drawn) < 5 * (drawn * 0.25 * 0.75) ** 0.5


def test_the_service_manager_hears_of_the_parent_only(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(within())
        engines = '[{url="http://127.0.0.1:9",name="a"},{url="http://127.0.0.1:9",name="b"}]'
        with running(tmp_path, engines, notify=str(tmp_path / "notify")) as tap:
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
