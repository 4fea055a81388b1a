"""What happens outside the worlds: hostile text, workers that die or hang, attempts that nobody closes."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from actors.messages import ToolCall
from actors.ports.errors import EnvironmentFailed
from tests.bfcl.conftest import PYTHON
from tests.support.bfcl_runs import ask_official
from tests.support.patience import SLOW, wait_until
from tests.support.process import Process, alive

pytestmark = pytest.mark.anyio
TASK = "multi_turn_base_0"
DEADLINE = 2.0 * SLOW


def calling(name: str, /, **arguments: object) -> list[ToolCall]:
    return [ToolCall(name, json.dumps(arguments), "c")]


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_text_of_the_model_is_never_evaluated(bfcl, tmp_path):
    """The payload works in the official driver, which evaluates it, and does nothing here, wherever it stands."""
    mark = tmp_path / "evaluated"
    payload = f"__import__('os').makedirs({str(mark)!r})"
    await anyio.to_thread.run_sync(ask_official, PYTHON, [(TASK, [[[payload]], [], [], []])])
    assert mark.exists(), "the payload is harmless: this test would show nothing"
    mark.rmdir()
    episode = await bfcl.reset(bfcl.task(TASK))
    calls = [
        ToolCall(payload, "{}", "name"),
        ToolCall(f"pwd() or {payload}", "{}", "expression"),
        ToolCall("cd", payload, "arguments"),
        ToolCall("cd", json.dumps({"folder": payload}), "value"),
        ToolCall("cd", json.dumps({payload: "document"}), "key"),
        ToolCall("_load_scenario", '{"scenario": {}}', "private"),
        ToolCall("__init__", "{}", "special"),
        ToolCall("print", '{"self": "builtin"}', "builtin"),
    ]
    seen = await episode.step(calls, payload)
    assert not mark.exists()
    assert all("rror" in message["content"] for message in seen.messages)
    assert await episode.state() == await (await bfcl.reset(bfcl.task(TASK))).state()


async def test_the_worker_sees_none_of_our_variables_and_no_terminal_of_ours(bfcl, monkeypatch):
    monkeypatch.setenv("EVOLVED_SECRET", "do-not-tell")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    episode = await bfcl.reset(bfcl.task(TASK))
    (pid,) = bfcl.pool.pids
    names = {entry.partition("=")[0] for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if entry}
    assert names == {"PATH", "LANG", "TZ", "BFCL_WORKER_MEMORY"}
    assert os.getsid(pid) != os.getsid(0)
    await episode.aclose()


async def test_a_worker_killed_in_a_step_loses_its_attempts_and_the_next_reset_works(bfcl):
    episode, other = [await bfcl.reset(bfcl.task(TASK)) for _ in range(2)]
    (pid,) = bfcl.pool.pids
    os.kill(pid, signal.SIGSTOP)  # so that the step is under way for sure when it is killed

    async def stepping() -> None:
        with pytest.raises(EnvironmentFailed, match="the worker has died"):
            await episode.step(calling("pwd"), "")

    async with anyio.create_task_group() as group:
        group.start_soon(stepping)
        await anyio.wait_all_tasks_blocked()
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match="the worker has died"):
        await other.step(calling("pwd"), "")
    with pytest.raises(EnvironmentFailed):
        await other.evaluate()
    assert bfcl.pool.deaths == 1
    assert len(bfcl.pool) == 0
    again = await bfcl.reset(bfcl.task(TASK))
    assert "workspace" in (await again.step(calling("pwd"), "")).text
    assert bfcl.pool.pids != [pid]
    for each in (episode, other, again):
        await each.aclose()


async def test_a_worker_that_hangs_is_killed_at_the_deadline(opened):
    async with opened(workers=1, deadline=DEADLINE) as bfcl:
        episode = await bfcl.reset(bfcl.task(TASK))
        (pid,) = bfcl.pool.pids
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EnvironmentFailed, match="no answer to 'call' in"):
            await episode.step(calling("pwd"), "")
        assert not alive(pid)
        again = await bfcl.reset(bfcl.task(TASK))
        assert await again.evaluate() == 0.0


async def test_a_caller_who_gives_up_does_not_keep_a_hanging_worker_alive(opened):
    """A shorter deadline of the caller's must not leave the hang for the next one to find."""
    async with opened(workers=1, deadline=DEADLINE) as bfcl:
        episode = await bfcl.reset(bfcl.task(TASK))
        (pid,) = bfcl.pool.pids
        os.kill(pid, signal.SIGSTOP)
        with contextlib.suppress(EnvironmentFailed), anyio.move_on_after(0.2):
            await episode.step(calling("pwd"), "")
        assert not alive(pid)
        await (await bfcl.reset(bfcl.task(TASK))).aclose()


async def test_one_worker_dying_leaves_the_other_ones_attempts_alone(opened):
    async with opened(workers=2) as bfcl:
        episodes = [await bfcl.reset(bfcl.task(TASK)) for _ in range(4)]
        os.kill(bfcl.pool.pids[0], signal.SIGKILL)
        alive = 0
        for episode in episodes:
            with contextlib.suppress(EnvironmentFailed):
                await episode.step(calling("pwd"), "")
                alive += 1
        assert alive == 2


async def test_workers_that_die_again_and_again_are_not_started_for_ever(opened):
    now = [0.0]
    async with opened(workers=1, clock=lambda: now[0]) as bfcl:
        for _ in range(5):
            episode = await bfcl.reset(bfcl.task(TASK))
            os.kill(bfcl.pool.pids[0], signal.SIGKILL)
            with pytest.raises(EnvironmentFailed):
                await episode.step(calling("pwd"), "")
        with pytest.raises(EnvironmentFailed, match="died 5 times within 60 seconds"):
            await bfcl.reset(bfcl.task(TASK))
        now[0] = 61.0
        await (await bfcl.reset(bfcl.task(TASK))).aclose()
        assert bfcl.pool.deaths == 5


async def test_attempts_are_limited_by_a_setting_that_the_error_names_also_for_those_who_come_at_once(opened):
    async with opened(workers=1, max_instances=3) as bfcl:
        begun, refused = [], []

        async def attempt() -> None:
            try:
                begun.append(await bfcl.reset(bfcl.task(TASK)))
            except EnvironmentFailed as error:
                refused.append(str(error))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(attempt)
        assert refused == [refused[0]] * 5
        assert "3 attempts are open, max_instances is 3" in refused[0]
        await begun[0].aclose()
        assert len(bfcl.pool) == 2
        with pytest.raises(EnvironmentFailed, match="closed"):
            await begun[0].step(calling("pwd"), "")
        await bfcl.reset(bfcl.task(TASK))


async def test_an_attempt_that_nobody_closes_is_freed_and_says_so(opened):
    now = [0.0]
    async with opened(workers=1, idle_seconds=10.0, clock=lambda: now[0]) as bfcl:
        abandoned, used = [await bfcl.reset(bfcl.task(TASK)) for _ in range(2)]
        now[0] = 8.0
        await used.step(calling("pwd"), "")
        now[0] = 12.0
        await bfcl.reset(bfcl.task(TASK))
        assert bfcl.pool.reaped == 1
        assert len(bfcl.pool) == 2
        with pytest.raises(EnvironmentFailed, match="left alone for so long"):
            await abandoned.step(calling("pwd"), "")
        assert not (await used.step(calling("pwd"), "")).done


STARTS_AND_WAITS = f"""
import sys, time, anyio
from adapters.environments.bfcl import BfclEnvironment
environment = BfclEnvironment({str(PYTHON)!r}, workers=1)
async def main():
    await environment.reset(environment.task({TASK!r}))
anyio.run(main)
print(environment.pool.pids[0], flush=True)
time.sleep(600)
"""


def test_workers_end_when_their_daemon_is_killed(tmp_path):
    log = tmp_path / "log"
    with Process([sys.executable, "-c", STARTS_AND_WAITS], log) as daemon:
        daemon.until(lambda: log.read_text().endswith("\n"))
        pid = int(log.read_text().splitlines()[-1])
        assert alive(pid)
        os.kill(daemon.pid, signal.SIGKILL)  # it alone
        daemon.wait()
        wait_until(lambda: not alive(pid), "the worker is gone")
