"""Two taps of one machine, as they are shipped: one port, a spool and a page each, and one of them is killed."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import httpx
import pytest

from actors.messages import Exchange, decode
from actors.messages.routes import Routes, write_routes
from daemon.tap.place import told
from daemon.tap.spool import SpoolReader, spools
from tests.support.engine import Asked, Engine, answer, running_engine
from tests.support.patience import wait_until, within
from tests.support.ports import free_ports
from tests.support.process import Process

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.timeout(within(300)), pytest.mark.promise]


class Tap:
    """One of them, through all its lives."""

    def __init__(self, number: int, command: list[str], state: Path) -> None:
        self.number, self._command, self._state = number, [*command, "--number", str(number)], state
        self.start()

    def start(self) -> None:
        self.process = Process(self._command, self._state / f"log.{self.number}")
        self.process.until(lambda: self.pages() and self.ask("/readyz"), what=f"tap {self.number} serves")

    def pages(self) -> list[str]:
        ours = (self.number, self.process.pid)
        return [one.admin for one in told(self._state / "spool") if (one.number, one.pid) == ours]

    def ask(self, path: str) -> str:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://{self.pages()[0]}{path}", timeout=within()).text
        return ""

    def figure(self, name: str, label: str = "") -> float:
        """A metric, added up over its labels, or over those alone that have `label`."""
        lines = [line for line in self.ask("/metrics").splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rpartition(" ")[2]) for line in lines if label in line)

    def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        self.process.process.wait()


class Taps:
    """Both."""

    def __init__(self, state: Path, engines: str) -> None:
        self.port, admin, self.mirror = free_ports(3)
        self.state = state
        settings = [
            f"tap.listen=127.0.0.1:{self.port}", f"tap.admin=127.0.0.1:{admin}",
            f"tap.mirror=127.0.0.1:{self.mirror}", f"engines={engines}",
        ]  # fmt: skip
        command = [sys.executable, "-m", "daemon.cli", "tap", "--set", f"state_dir={state}"]
        for assignment in settings:
            command += ["--set", assignment]
        self.both = [Tap(number, command, state) for number in range(2)]

    def figures(self, name: str, label: str = "") -> list[float]:
        return [tap.figure(f"evolved_tap_{name}", label) for tap in self.both]

    def kept(self) -> set[str]:
        """The answers in all spools, by the id that the engine gave them; by the record's id if there is none."""
        found = [one for spool in spools(self.state / "spool") for one in SpoolReader(spool).read(100_000, 1 << 30)]
        records = [decode(one.payload) for one in found]
        return {one.response_id or one.id for one in records if isinstance(one, Exchange)}


@contextlib.contextmanager
def running(state: Path, engines: str) -> Iterator[Taps]:
    taps = Taps(state, engines)
    try:
        yield taps
    finally:
        for tap in taps.both:
            tap.process.stop()


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


async def call(port: int, number: int = 0, turns: int = 0) -> tuple[int, str]:
    """Status and the engine that answered, over a connection of its own; 0 if it broke."""
    try:
        async with httpx.AsyncClient(timeout=within(), verify=False) as by:
            got = await by.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=conversation(number, turns))
    except httpx.HTTPError:
        return 0, ""
    return got.status_code, got.json()["choices"][0]["message"]["content"] if got.status_code == 200 else ""


async def talk(taps: Taps, numbers: Iterable[int], turns: Iterable[int]) -> dict[int, set[str]]:
    """The engines that served each conversation; a connection for each turn, so that any tap may take it."""
    found: dict[int, set[str]] = {}
    gate = anyio.Semaphore(12)

    async def one(number: int) -> None:
        for turn in turns:
            async with gate:
                found.setdefault(number, set()).add((await call(taps.port, number, turn))[1])

    async with anyio.create_task_group() as group:
        for number in numbers:
            group.start_soon(one, number)
    return found


async def test_both_keep_every_call_and_every_copy_and_have_a_page(tmp_path: Path) -> None:
    async with engine("e") as port:
        with running(tmp_path, f'[{{url="http://127.0.0.1:{port}",name="serving"}}]') as taps:
            ours = [await call(taps.port) for _ in range(40)]
            assert set(ours) == {(200, "e")}
            assert {status for status, _ in [await call(taps.mirror) for _ in range(40)]} == {204}
            await anyio.to_thread.run_sync(lambda: wait_until(lambda: len(taps.kept()) == 80, "all are in the spools"))
            served = await anyio.to_thread.run_sync(taps.figures, "requests_total")
            assert min(served) > 0, "the kernel spreads them"
            assert sum(served) == 80


async def test_one_that_is_killed_keeps_its_number_and_its_page_and_loses_nothing_but_the_last_moment(
    tmp_path: Path,
) -> None:
    answered: list[tuple[float, str]] = []
    killed: list[float] = []
    over = threading.Event()

    async with engine("e") as port:
        with running(tmp_path, f'[{{url="http://127.0.0.1:{port}",name="serving"}}]') as taps:
            victim, pages = taps.both[0], taps.both[0].pages()
            url = f"http://127.0.0.1:{taps.port}/v1/chat/completions"

            def agent() -> None:
                while not over.is_set():
                    with contextlib.suppress(httpx.HTTPError):
                        answered.append((time.monotonic(), httpx.post(url, json=conversation(0, 0)).json()["id"]))

            def kill() -> None:
                for _ in range(5):
                    wait_until(lambda enough=len(answered) + 30: len(answered) >= enough, "agents are answered")
                    killed.append(time.monotonic())
                    victim.kill()
                    victim.start()
                    assert victim.pages() == pages

            agents = [threading.Thread(target=agent) for _ in range(2)]
            for one in agents:
                one.start()
            try:
                await anyio.to_thread.run_sync(kill)
            finally:
                over.set()
                for one in agents:
                    await anyio.to_thread.run_sync(one.join)
            # What the tap had not handed to its recorder dies with it: of 20 ms, and more where the machine is busy.
            safe = {name for at, name in answered if not any(-0.5 < at - moment < 0.2 for moment in killed)}
            await anyio.to_thread.run_sync(lambda: wait_until(lambda: safe <= taps.kept(), "they are kept"))
            assert len(safe) > 50


async def test_a_conversation_stays_at_its_engine_whichever_tap_takes_the_call_and_when_both_are_started_again(
    tmp_path: Path,
) -> None:
    def restart() -> None:
        for tap in taps.both:
            tap.kill()
            tap.start()

    def share() -> float:
        return min(taps.figures("upstream_canary_share", 'engine="b"'))

    async with engine("a") as one, engine("b") as two:
        engines = f'[{{url="http://127.0.0.1:{one}",name="a"}},{{url="http://127.0.0.1:{two}",name="b"}}]'
        with running(tmp_path, engines) as taps:
            at = await talk(taps, range(60), range(5))
            assert min(await anyio.to_thread.run_sync(taps.figures, "requests_total")) > 0
            assert all(len(names) == 1 for names in at.values())
            assert set.union(*at.values()) == {"a", "b"}
            await anyio.to_thread.run_sync(restart)
            assert await talk(taps, range(60), range(5, 7)) == at

            write_routes(tmp_path / "routes.json", Routes(until=time.time() + 600, canary="b", share=0.25))
            await anyio.to_thread.run_sync(lambda: wait_until(lambda: share() == 0.25, "the canary is known to both"))
            drawn = 300
            canary = sum(names == {"b"} for names in (await talk(taps, range(1000, 1000 + drawn), [0])).values())
            # Five standard deviations of a fair draw.
            assert abs(canary - 0.25 * drawn) < 5 * (drawn * 0.25 * 0.75) ** 0.5
