"""Two daemons, one engine: nobody starts a swap on top of another one, whether it sees the other's files or not."""

import os
import signal
import time
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from actors.ports.errors import EngineUnavailable
from actors.store import Store
from actors.store.leases import give_back, standing
from adapters.engines.vllm import VllmEngine
from daemon.upkeep.swaps import Swaps
from tests.support.keys import unsigned_weights
from tests.support.patience import until, within
from tests.support.swapping import door, swap_programs

pytestmark = [
    pytest.mark.anyio, pytest.mark.chaos, pytest.mark.torch, pytest.mark.promise, pytest.mark.timeout(within(300)),
]  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def fresh(url: str, numbered: Path) -> str:
    """An engine that serves version 0."""
    async with VllmEngine(url) as engine:
        await engine.load(numbered / "v000000")
        await engine.label(0)
        await engine.resume()
    return url


@pytest.fixture
async def store(tmp_path: Path):
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=time.time)
    await store.open()
    yield store
    await store.aclose()


class Side:
    """What one daemon swaps with."""

    def __init__(self, store: Store, directory: Path, engine: VllmEngine, versions: Path, seconds: float = 60.0):
        self.directory, self.versions = directory, versions
        self.swaps = Swaps(
            directory / "swaps", {"serving": engine}, inline=frozenset(), weights=unsigned_weights(),
            store=store, holder=directory.name, seconds=seconds,
        )  # fmt: skip

    async def swap(self, version: int):
        path, good = (self.versions / f"v{number:06d}" for number in (version, 0))
        manifest = sha256((path / "manifest.json").read_bytes()).hexdigest()
        return await self.swaps.swap("serving", path, version, manifest=manifest, last_good=good, last_version=0)

    async def dies_while(self, version: int, held) -> None:
        """It begins a swap, and is gone when the request at the door is under way; its program goes on."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.swap, version)
            with anyio.fail_after(within()):
                await held.reached.wait()
            group.cancel_scope.cancel()


async def test_a_swap_is_over_for_everybody_once_its_outcome_is_known(store, fresh, numbered, tmp_path) -> None:
    async with VllmEngine(fresh, name="serving") as engine:
        one, two = (Side(store, tmp_path / name, engine, numbered) for name in ("one", "two"))
        assert (await one.swap(1)).result == "swapped"
        assert await two.swaps.collect("serving") is None
        assert (await two.swap(0)).result == "swapped"
        assert await engine.version() == 0


async def test_who_sees_the_files_waits_for_the_program_and_has_its_outcome(store, fresh, numbered, tmp_path) -> None:
    async with door(fresh, ("load", 1, "before")) as (held, through), VllmEngine(through, name="serving") as engine:
        one, two = (Side(store, tmp_path / "shared", engine, numbered) for _ in range(2))
        await one.dies_while(1, held)
        with pytest.raises(EngineUnavailable, match="under way"):
            await two.swap(1)
        held.gate.set()
        report = await two.swaps.collect("serving")
        assert report is not None
        assert (report.result, report.version) == ("swapped", 1)
        assert held.count == 1, "one load"
        assert not (await store.ask(standing, "swap:serving")).seconds_left


async def test_who_does_not_see_them_starts_nothing_until_the_engine_says_that_it_is_done(
    store, fresh, numbered, tmp_path
) -> None:
    async with door(fresh, ("load", 1, "before")) as (held, through), VllmEngine(through, name="serving") as engine:
        one, two = (Side(store, tmp_path / name, engine, numbered) for name in ("one", "two"))
        await one.dies_while(1, held)
        for attempt in (two.swaps.collect("serving"), two.swap(1)):
            with pytest.raises(EngineUnavailable, match=r"swap by one may be under way"):
                await attempt
        assert await engine.is_paused(), "nobody resumed it under the program's hands"
        held.gate.set()
        await until(lambda: not swap_programs(tmp_path / "one"), "the program ends", 120)
        assert await two.swaps.collect("serving") is None
        assert await engine.version() == 1
        assert held.count == 1
        assert (await two.swap(0)).result == "swapped"


async def test_what_another_daemon_came_after_is_not_finished_when_the_first_one_is_back(
    store, fresh, numbered, tmp_path
) -> None:
    async with door(fresh, ("load", 1, "before")) as (held, through), VllmEngine(through, name="serving") as engine:
        one, two = (Side(store, tmp_path / name, engine, numbered) for name in ("one", "two"))
        await one.dies_while(1, held)
        for pid in swap_programs(tmp_path / "one"):
            os.kill(pid, signal.SIGKILL)  # the whole machine is gone, in mid-pause
        held.gate.set()
        intent = await store.ask(standing, "swap:serving")
        await store.change(give_back, "swap:serving", intent.epoch)  # as if its time had passed
        await engine.resume()
        assert (await two.swap(1)).result == "swapped"
        # Its job says: go back to version 0. That was an hour ago.
        assert await one.swaps.collect("serving") is None
        assert await engine.version() == 1


async def test_the_program_stops_touching_the_engine_at_the_end_of_its_time(store, fresh, numbered, tmp_path) -> None:
    async with door(fresh, ("load", 1, "before")) as (held, through), VllmEngine(through, name="serving") as engine:
        one = Side(store, tmp_path / "one", engine, numbered, seconds=15.0)
        await one.dies_while(1, held)
        await until(lambda: not swap_programs(tmp_path / "one"), "the program ends", 120)
        assert not await engine.is_paused(), "resumed by the program"
        held.gate.set()
