"""kill -9 at every line of the swap protocol: the engine is never left paused, and the next daemon finds its way.

A table of points: the request to the engine that is under way when the daemon dies, held up before or after the engine
has acted on it. The swap program lives in a session of its own and goes on; a second table kills it too. Runs on the
embedded engine here, and on a real vLLM in tests/vllm/test_swap_kill.py.
"""

import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import numpy as np
import pytest

from actors.messages import Serving
from actors.store.policy import LOADED
from adapters.engines.vllm import VllmEngine
from tests.support.epochs import seen_epoch
from tests.support.patience import Late, until, within
from tests.support.swapping import Door, SwapDaemon, door, open_store, promote, swap_programs

pytestmark = [
    pytest.mark.anyio, pytest.mark.chaos, pytest.mark.torch, pytest.mark.promise, pytest.mark.timeout(within(300)),
]  # fmt: skip
IDS = [260, 72, 101, 108, 108, 111, 33, 44]

DAEMON_DIES = [
    ("weight_info", 1, "before"),  # the daemon's own look, before anything
    ("weight_info", 2, "before"),  # from here on: the swap program
    ("render", 1, "before"),
    ("weight_info", 3, "before"),
    ("pause", 1, "before"),
    ("pause", 1, "after"),
    ("load", 1, "before"),
    ("load", 1, "after"),
    ("update_weight_version", 1, "before"),
    ("update_weight_version", 1, "after"),
    ("resume", 1, "before"),
    ("resume", 1, "after"),
    ("weight_info", 4, "before"),
    ("render", 2, "before"),
    ("generate", 1, "before"),
    ("generate", 1, "after"),
    ("weight_info", 5, "before"),  # the daemon again: it has the report, and the books do not
]
BOTH_DIE = [
    ("weight_info", 3, "before"),
    ("pause", 1, "after"),
    ("load", 1, "before"),
    ("load", 1, "after"),
    ("update_weight_version", 1, "after"),
    ("weight_info", 4, "before"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Bench:
    def __init__(self, engine: VllmEngine, versions: Path, state: Path, url: str) -> None:
        self.engine, self.versions, self.state, self.url = engine, versions, state, url
        self.daemons: list[SwapDaemon] = []

    async def serve(self, version: int) -> np.ndarray:
        """Make the engine serve `version`, and say how it answers then."""
        await self.engine.pause()
        await self.engine.load(self.versions / f"v{version:06d}", epoch=seen_epoch(self.url))
        await self.engine.label(version)
        await self.engine.resume()
        return await self.engine.log_probs(IDS)

    def start(self, url: str) -> None:
        self.daemons.append(SwapDaemon(self.state, self.versions, url))

    async def settled(self) -> bool:
        """It serves the promoted version, and the books say so."""
        store = open_store(self.state)
        told = await store.newest(Serving, engine="serving")
        await store.aclose()
        last = next((one for one in told if one.result in LOADED), None)
        serving = last is not None and (last.result, last.version) == ("swapped", 1)
        return serving and await self.engine.version() == 1 and not await self.engine.is_paused()

    async def unpaused(self) -> bool:
        """It takes requests, and nobody is at work on it."""
        return not swap_programs(self.state) and not await self.engine.is_paused()

    async def kill(self, point: tuple[str, int, str], held: Door, *, program: bool) -> None:
        """kill -9 of the daemon, and of the `program` too if asked, when the request at `point` is under way."""
        with anyio.fail_after(within()):
            await held.reached.wait()
        if program:
            for pid in swap_programs(self.state):
                os.kill(pid, signal.SIGKILL)
        self.daemons[-1].kill()
        held.gate.set()


@pytest.fixture
async def bench(url, numbered, tmp_path):
    async with VllmEngine(url) as engine:
        bench = Bench(engine, numbered, tmp_path, url)
        bench.after = await bench.serve(1)
        bench.before = await bench.serve(0)
        await promote(tmp_path, 1, numbered / "v000001")
        await first_look(bench)
        yield bench
        for daemon in bench.daemons:
            daemon.kill()


async def first_look(bench: Bench) -> None:
    """The books of a daemon that ran before: the engine came up with version 0."""
    store = open_store(bench.state)
    path = str(bench.versions / "v000000")
    await store.save(
        [Serving(id="s0", engine="serving", version=0, previous=-1, path=path, result="started", since=1.0)]
    )
    await store.aclose()


async def promised(done: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for what must come; what has not after two minutes is a broken promise, and not a slow machine."""
    try:
        await until(done, what, 120)
    except Late as late:
        raise AssertionError(str(late)) from None


def named(point: tuple[str, int, str]) -> str:
    return "-".join(map(str, point))


@pytest.mark.parametrize("point", DAEMON_DIES, ids=named)
async def test_the_daemon_dies_and_the_engine_goes_on(bench: Bench, point) -> None:
    async with door(bench.url, point) as (held, url):
        bench.start(url)
        await bench.kill(point, held, program=False)
        # Without a restart: whatever was begun is brought to its end, and nobody waits behind a pause.
        await promised(bench.unpaused, "the swap program ends, the engine is not paused")
        served = await bench.engine.version()
        assert np.allclose(
            (await bench.engine.log_probs(IDS))[1:], (bench.after if served else bench.before)[1:], atol=1e-4
        ), "the label is that of the weights"
        bench.start(url)
        await promised(bench.settled, f"reconciled (log: {log(bench)})")
    assert np.allclose((await bench.engine.log_probs(IDS))[1:], bench.after[1:], atol=1e-4)


@pytest.mark.parametrize("point", BOTH_DIE, ids=named)
async def test_daemon_and_program_die_and_the_next_daemon_resumes_the_engine(bench: Bench, point) -> None:
    async with door(bench.url, point) as (held, url):
        bench.start(url)
        await bench.kill(point, held, program=True)
        await until(lambda: not swap_programs(bench.state), "the swap program is dead")
        bench.start(url)
        await promised(bench.unpaused, f"resumed (log: {log(bench)})")
        await promised(bench.settled, f"reconciled (log: {log(bench)})")
    assert np.allclose((await bench.engine.log_probs(IDS))[1:], bench.after[1:], atol=1e-4)


async def test_the_program_alone_dies_and_the_same_daemon_cleans_up_and_tries_again(bench: Bench) -> None:
    point = ("load", 1, "after")
    async with door(bench.url, point) as (held, url):
        bench.start(url)
        with anyio.fail_after(within()):
            await held.reached.wait()
        (pid,) = swap_programs(bench.state)
        os.kill(pid, signal.SIGKILL)
        held.gate.set()
        await promised(bench.unpaused, f"resumed (log: {log(bench)})")
        await promised(bench.settled, f"reconciled (log: {log(bench)})")
    store = open_store(bench.state)
    results = [(item.result, item.version) for item in reversed(await store.newest(Serving, engine="serving"))]
    await store.aclose()
    assert results == [("started", 0), ("rolled_back", 1), ("swapped", 1)]


async def test_an_engine_that_somebody_left_paused_is_resumed(bench: Bench) -> None:
    shutil.rmtree(bench.state / "swaps", ignore_errors=True)
    await bench.engine.pause()
    bench.start(bench.url)
    await promised(bench.settled, f"reconciled (log: {log(bench)})")


def log(bench: Bench) -> str:
    return str(bench.state / "daemon.log")
