"""kill -9 at every line of the swap protocol: the engine is never left paused, and the next daemon finds its way.

A table of points: the request to the engine that is under way when the daemon dies, held up before or after the engine
has acted on it. The swap program lives in a session of its own and goes on; a second table kills it too.
"""

import os
import shutil
import signal
from hashlib import sha256
from pathlib import Path

import anyio
import numpy as np
import pytest

from actors.messages import Serving
from adapters.engines.client import EngineClient
from tests.support import checkpoints
from tests.support.engines import embedded_engine
from tests.support.swapping import SwapDaemon, door, open_store, promote, swap_programs, until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.torch, pytest.mark.timeout(120)]
IDS = [260, 72, 101, 108, 108, 111, 33, 44]
UNPAUSED_SECONDS, RECONCILED_SECONDS = 20.0, 10.0

DAEMON_DIES = [
    ("weight_info", 1, "before"),  # the daemon's own look, before anything
    ("weight_info", 2, "before"),  # from here on: the swap program
    ("pause", 1, "before"),
    ("pause", 1, "after"),
    ("collective_rpc", 1, "before"),
    ("collective_rpc", 1, "after"),
    ("update_weight_version", 1, "before"),
    ("update_weight_version", 1, "after"),
    ("resume", 1, "before"),
    ("resume", 1, "after"),
    ("weight_info", 3, "before"),
    ("render", 1, "before"),
    ("generate", 1, "after"),
    ("weight_info", 4, "before"),  # the daemon again: it has the report, and the books do not
]
BOTH_DIE = [
    ("pause", 1, "after"),
    ("collective_rpc", 1, "after"),
    ("update_weight_version", 1, "after"),
    ("weight_info", 3, "before"),
]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def versions(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("versions")
    for number in (0, 1):
        path = checkpoints.write(directory / f"v{number:06d}", number + 1)
        checkpoints.write_manifest(path, number)
    return directory


@pytest.fixture(scope="module")
def url(versions):
    with embedded_engine(versions / "v000000", "--dev-mode", "--weight-version", "0") as url:
        yield url


class Bench:
    def __init__(self, engine: EngineClient, versions: Path, state: Path, url: str) -> None:
        self.engine, self.versions, self.state, self.url = engine, versions, state, url
        self.daemons: list[SwapDaemon] = []

    async def serve(self, version: int) -> np.ndarray:
        """Make the engine serve `version`, and say how it answers then."""
        await self.engine.pause()
        await self.engine.load(self.versions / f"v{version:06d}")
        await self.engine.label(version)
        await self.engine.resume()
        return await self.engine.log_probs(IDS)

    def start(self, url: str) -> None:
        self.daemons.append(SwapDaemon(self.state, self.versions, url))

    async def settled(self) -> bool:
        """It serves the promoted version, and the books say so."""
        store = open_store(self.state)
        last = await store.last_serving("serving")
        await store.aclose()
        serving = last is not None and (last.result, last.version) == ("swapped", 1)
        return serving and await self.engine.version() == 1 and not await self.engine.is_paused()


@pytest.fixture
async def bench(url, versions, tmp_path):
    async with EngineClient(url) as engine:
        bench = Bench(engine, versions, tmp_path, url)
        bench.after = await bench.serve(1)
        bench.before = await bench.serve(0)
        manifest = sha256((versions / "v000001" / "manifest.json").read_bytes()).hexdigest()
        await promote(tmp_path, 1, versions / "v000001", manifest)
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


@pytest.mark.parametrize("point", DAEMON_DIES, ids=lambda point: "-".join(map(str, point)))
async def test_the_daemon_dies_and_the_engine_goes_on(bench: Bench, point) -> None:
    await first_look(bench)
    async with door(bench.url, point) as (held, url):
        bench.start(url)
        with anyio.fail_after(30):
            await held.reached.wait()
        bench.daemons[-1].kill()
        held.gate.set()
        # Without a restart: whatever was begun is brought to its end, and nobody waits behind a pause.
        await until(lambda: not swap_programs(bench.state), UNPAUSED_SECONDS, "the swap program ends")
        assert not await bench.engine.is_paused()
        served = await bench.engine.version()
        assert np.allclose(
            (await bench.engine.log_probs(IDS))[1:], (bench.after if served else bench.before)[1:], atol=1e-4
        ), "the label is that of the weights"
        bench.start(url)
        took = await until(bench.settled, RECONCILED_SECONDS, f"reconciled (log: {log(bench)})")
    assert np.allclose((await bench.engine.log_probs(IDS))[1:], bench.after[1:], atol=1e-4)
    print(f"{'-'.join(map(str, point))}: reconciled {took:.2f} s after the restart")


@pytest.mark.parametrize("point", BOTH_DIE, ids=lambda point: "-".join(map(str, point)))
async def test_daemon_and_program_die_and_the_next_daemon_resumes_the_engine(bench: Bench, point) -> None:
    await first_look(bench)
    async with door(bench.url, point) as (held, url):
        bench.start(url)
        with anyio.fail_after(30):
            await held.reached.wait()
        for pid in swap_programs(bench.state):
            os.kill(pid, signal.SIGKILL)
        bench.daemons[-1].kill()
        held.gate.set()
        await until(lambda: not swap_programs(bench.state), 5.0, "the swap program is dead")
        bench.start(url)
        took = await until(bench.settled, RECONCILED_SECONDS, f"reconciled (log: {log(bench)})")
    assert np.allclose((await bench.engine.log_probs(IDS))[1:], bench.after[1:], atol=1e-4)
    print(f"{'-'.join(map(str, point))}: reconciled {took:.2f} s after the restart")


async def test_the_program_alone_dies_and_the_same_daemon_cleans_up_and_tries_again(bench: Bench) -> None:
    await first_look(bench)
    async with door(bench.url, ("collective_rpc", 1, "after")) as (held, url):
        bench.start(url)
        with anyio.fail_after(30):
            await held.reached.wait()
        (pid,) = swap_programs(bench.state)
        os.kill(pid, signal.SIGKILL)
        held.gate.set()
        await until(bench.settled, RECONCILED_SECONDS, f"reconciled (log: {log(bench)})")
    store = open_store(bench.state)
    results = [(item.result, item.version) for item in reversed(await store.servings("serving"))]
    await store.aclose()
    assert results == [("started", 0), ("rolled_back", 1), ("swapped", 1)]


async def test_an_engine_that_somebody_left_paused_is_resumed(bench: Bench) -> None:
    await first_look(bench)
    shutil.rmtree(bench.state / "swaps", ignore_errors=True)
    await bench.engine.pause()
    bench.start(bench.url)
    await until(bench.settled, RECONCILED_SECONDS, f"reconciled (log: {log(bench)})")


def log(bench: Bench) -> str:
    return str(bench.state / "daemon.log")
