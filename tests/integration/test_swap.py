"""The swap's program: a process of its own session that outlives whoever started it."""

import os
import signal
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.ports.errors import SwapFailed
from adapters.engines.swap import KEY_VARIABLE, collect, run_swap
from adapters.engines.swap_files import SwapJob, SwapOutcome
from tests.support import checkpoints
from tests.support.engine import answer, running_engine

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    directory = tmp_path_factory.mktemp("versions")
    checkpoints.write(directory / "a", 1)
    checkpoints.write(directory / "b", 2)
    return directory


class Admin:
    """The admin endpoints of an engine, scripted: loading `b` waits for the gate."""

    def __init__(self) -> None:
        self.paused, self.label, self.loaded = False, "1", "a"
        self.loading = anyio.Event()
        self.slow = False
        self.key = ""
        self.died: list[int] = []

    async def __call__(self, engine, asked, stream) -> bool:
        path = asked.line.split()[1].split(b"?")[0].decode()
        body: dict = {}
        if self.key and asked.headers.get("authorization") != f"Bearer {self.key}":
            await stream.send(answer(401, {"error": "Unauthorized"}))
            return True
        match path:
            case "/pause":
                self.paused = True
            case "/resume":
                self.paused = False
            case "/update_weight_version":
                self.label = asked.json["new_version"]
            case "/weight_info":
                body = {"weight_version": self.label}
            case "/collective_rpc" if asked.json["method"].startswith("evolved_"):
                await stream.send(answer(500, {"error": {"message": "no such method", "code": 500}}))
                return True
            case "/collective_rpc":
                wanted = Path(asked.json["kwargs"]["weights_path"]).name
                if self.slow and wanted == "b":
                    self.loading.set()
                    await engine.gate.wait()
                self.loaded = wanted
            case "/v1/models":
                body = {"data": [{"id": "tiny"}]}
            case "/v1/chat/completions/render":
                body = {"token_ids": [1, 2]}
            case "/inference/v1/generate":
                choice = {"token_ids": [1], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "length"}
                body = {"choices": [choice]}
        await stream.send(answer(200, body))
        return True


@pytest.fixture
async def engine():
    async with running_engine() as running:
        running.script = running.admin = Admin()
        yield running


def job(engine, versions: Path, tmp_path: Path, **changes) -> SwapJob:
    fields = {
        "engine": f"http://127.0.0.1:{engine.port}", "path": str(versions / "b"), "version": 2,
        "result": str(tmp_path / "swaps" / "serving.json"), "last_good": str(versions / "a"), "last_version": 1,
        "deadline": 20.0,
    }  # fmt: skip
    return SwapJob(**{**fields, **changes})


def child(work: SwapJob) -> int:
    """Process id of the program, found by the job in its arguments."""
    wanted = msgspec.json.encode(work)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted in arguments:
                return int(entry.name)
    raise AssertionError("the program does not run")


async def test_the_program_goes_on_when_nobody_waits_any_more_and_is_collected_once(engine, versions, tmp_path):
    work = job(engine, versions, tmp_path)
    engine.admin.slow = True
    async with anyio.create_task_group() as group:
        group.start_soon(run_swap, work)
        await engine.admin.loading.wait()
        assert os.getsid(child(work)) != os.getsid(0)
        group.cancel_scope.cancel()
    assert engine.admin.paused
    engine.gate.set()
    outcome = await collect(Path(work.result), wait=20)
    assert outcome is not None
    assert (outcome.result, outcome.version) == ("swapped", 2)
    assert not engine.admin.paused
    assert await collect(Path(work.result)) is None


async def test_a_program_that_is_killed_in_mid_swap_is_finished_by_whoever_collects(engine, versions, tmp_path):
    work = job(engine, versions, tmp_path)
    engine.admin.slow, engine.admin.key = True, "secret"
    async with anyio.create_task_group() as group:

        async def start() -> None:
            with pytest.raises(SwapFailed, match="no outcome"):
                await run_swap(work, environment={KEY_VARIABLE: "secret"})

        group.start_soon(start)
        await engine.admin.loading.wait()
        os.kill(child(work), signal.SIGKILL)
    engine.gate.set()
    assert engine.admin.paused
    outcome = await collect(Path(work.result), wait=20, key="secret")
    assert outcome is not None
    assert (outcome.result, outcome.version) == ("rolled_back", 1)
    assert (engine.admin.loaded, engine.admin.label, engine.admin.paused) == ("a", "1", False)
    assert await collect(Path(work.result)) is None


async def test_two_swaps_of_one_engine_do_not_run_together(engine, versions, tmp_path):
    work = job(engine, versions, tmp_path)
    engine.admin.slow = True
    outcomes: list[SwapOutcome] = []
    async with anyio.create_task_group() as group:

        async def first() -> None:
            outcomes.append(await run_swap(work))

        group.start_soon(first)
        await engine.admin.loading.wait()
        with pytest.raises(SwapFailed, match="another swap"):
            await run_swap(msgspec.structs.replace(work, version=3))
        with pytest.raises(SwapFailed, match="still runs"):
            await collect(Path(work.result), wait=0.2)
        engine.gate.set()
    assert [outcome.version for outcome in outcomes] == [2]
