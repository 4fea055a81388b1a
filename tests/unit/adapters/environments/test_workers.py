"""Worker processes: what hangs, crashes or talks without end costs its episode; nothing stays behind or leaks in."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.messages import ToolCall
from adapters.environments import Cloneable, Environment, Episode, Observation, Stateful
from adapters.environments.workers import WorkerEnvironment
from adapters.errors import AdapterNotSetUp, EnvironmentFailed

TROUBLE = "tests.support.troublesome:Troublesome"
TRAVEL = "adapters.environments.travel:TravelDesk"
ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.anyio
on_both_loops = pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
"""The contract suite runs on both; here, what depends on how sockets and cancellation work."""


@asynccontextmanager
async def workers(target: str = TROUBLE, /, **options: Any) -> AsyncIterator[WorkerEnvironment]:
    environment = WorkerEnvironment(target, **{"workers": 1, **options})
    try:
        yield environment
    finally:
        await environment.aclose()


async def begun(environment: WorkerEnvironment) -> Episode:
    return await environment.reset(environment.sample(0, "train", None))


async def doing(episode: Episode, name: str) -> Observation:
    return await episode.step([ToolCall(name, "{}", "call-0")], "")


def as_protocol(environment: WorkerEnvironment) -> Environment:
    return environment


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def soon(true: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not true():  # noqa: ASYNC110  # processes have no event
            await anyio.sleep(0.02)


@on_both_loops
@pytest.mark.parametrize("trouble", ["crash", "segfault"])
async def test_a_crash_costs_its_episode_and_nothing_else(trouble: str):
    async with workers() as environment:
        bad, good = await begun(environment), await begun(environment)
        await doing(good, "count")
        with pytest.raises(EnvironmentFailed, match="process ended"):
            await doing(bad, trouble)
        with pytest.raises(EnvironmentFailed):
            await bad.evaluate()
        assert (await doing(good, "count")).text == "2"
        assert (environment.deaths, environment.lost, environment.restarts, environment.instances) == (1, 0, 0, 1)
        await bad.aclose()
        await good.aclose()
        assert environment.instances == 0


@on_both_loops
@pytest.mark.parametrize("trouble", ["hang", "sleep"])
async def test_a_hung_step_is_ended_at_its_deadline_and_its_neighbours_play_on(trouble: str):
    async with workers(step_seconds=0.5) as environment:
        bad, good = await begun(environment), await begun(environment)
        seen: list[str] = []

        async def hang() -> None:
            with pytest.raises(EnvironmentFailed, match=r"did not answer within 0\.5 s"):
                await doing(bad, trouble)

        async with anyio.create_task_group() as group:
            group.start_soon(hang)
            for _ in range(5):
                seen.append((await doing(good, "count")).text)
        assert seen == ["1", "2", "3", "4", "5"]
        assert (environment.timeouts, environment.deaths, environment.restarts) == (1, 0, 0)
        await good.aclose()


async def test_a_hang_in_reset_costs_no_more_than_that_episode():
    async with workers(options={"bad": "hang-reset"}, start_seconds=2.0) as environment:
        with pytest.raises(EnvironmentFailed, match="did not answer within 2 s"):
            await begun(environment)
        assert (environment.timeouts, environment.instances, environment.restarts) == (1, 0, 0)


async def test_megabytes_are_not_taken():
    async with workers(max_bytes=1 << 20) as environment:
        bad = await begun(environment)
        with pytest.raises(EnvironmentFailed, match="max_bytes"):
            await doing(bad, "talk")
        assert (environment.oversized, environment.instances) == (1, 0)
        await (await begun(environment)).aclose()


async def test_an_exception_in_step_is_told_without_a_traceback_and_the_episode_goes_on():
    async with workers() as environment:
        episode = await begun(environment)
        with pytest.raises(EnvironmentFailed, match=r"^RuntimeError: a bug of the environment$"):
            await doing(episode, "raise")
        assert (await doing(episode, "count")).text == "2"
        await episode.aclose()


async def test_two_hundred_episodes_are_played_at_once():
    async with workers(max_instances=200, step_seconds=60) as environment:
        task, played = environment.sample(0, "train", None), list[str]()

        async def play() -> None:
            episode = await environment.reset(task)
            for _ in range(3):
                played.append((await doing(episode, "count")).text)
            await soon(lambda: environment.instances == 200 or environment.closed > 0)
            await episode.aclose()

        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(play)
        assert sorted(played) == ["1"] * 200 + ["2"] * 200 + ["3"] * 200
        assert (environment.opened, environment.instances, environment.closed) == (200, 0, 200)


async def test_there_are_no_more_episodes_than_the_cap_and_the_error_names_it():
    async with workers(max_instances=3) as environment:
        held = [await begun(environment) for _ in range(3)]
        with pytest.raises(EnvironmentFailed, match="max_instances"):
            await begun(environment)
        assert environment.capped == 1
        await held[0].aclose()
        await (await begun(environment)).aclose()


async def test_episodes_that_nobody_uses_are_ended():
    now = [0.0]
    async with workers(idle_seconds=60.0, clock=lambda: now[0]) as environment:
        abandoned = await begun(environment)
        now[0] = 50.0
        used = await begun(environment)
        now[0] = 100.0
        await begun(environment)
        assert (environment.reaped, environment.instances) == (1, 2)
        with pytest.raises(EnvironmentFailed, match="not used for 60 s"):
            await doing(abandoned, "count")
        assert (await doing(used, "count")).text == "1"


async def test_a_killed_worker_is_started_again_and_its_episodes_are_counted_as_lost():
    async with workers(backoff=0.0) as environment:
        episodes = [await begun(environment) for _ in range(3)]
        before = environment.pids[0]
        os.kill(before, signal.SIGKILL)
        await soon(lambda: not alive(before))
        fresh = await begun(environment)
        assert (environment.lost, environment.restarts, environment.instances) == (3, 1, 1)
        assert (await doing(fresh, "count")).text == "1"
        with pytest.raises(EnvironmentFailed, match="worker ended"):
            await doing(episodes[0], "count")


async def test_a_worker_that_keeps_dying_is_started_less_and_less_often():
    now = [0.0]
    async with workers(backoff=20.0, clock=lambda: now[0], options={"bad": "sample"}) as environment:
        with pytest.raises(EnvironmentFailed):
            environment.sample(0, "train", None)
        starts = []
        for now[0] in map(float, range(0, 250, 5)):
            before = environment.restarts
            with pytest.raises(EnvironmentFailed):
                environment.sample(0, "train", None)
            starts += [now[0]] * (environment.restarts - before)
        gaps = [after - before for before, after in itertools.pairwise(starts)]
        assert gaps == sorted(gaps)
        assert 40 == gaps[0] < gaps[-1] == 60


async def test_a_question_that_hangs_ends_the_worker_and_the_next_one_is_answered():
    async with workers(options={"bad": "hang-sample"}, ask_seconds=0.5, backoff=0.0) as environment:
        with pytest.raises(EnvironmentFailed, match="ask_seconds"):
            environment.sample(0, "train", None)
        assert environment.timeouts == 1
        assert [tool["function"]["name"] for tool in environment.tools()] == ["finish"]
        assert environment.restarts == 1


async def test_the_environment_sees_no_variables_of_ours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    monkeypatch.setenv("WANTED", "by the environment")
    async with workers(keep=["WANTED"]) as environment:
        episode = await begun(environment)
        seen = (await doing(episode, "variables")).text
        await episode.aclose()
    assert "sk-planted" not in seen
    found = json.loads(seen[: seen.rindex("}") + 1].replace("'", '"'))
    assert set(found) - {"LC_CTYPE"} == {"PATH", "LANG", "HOME", "WANTED"}
    assert seen.endswith(found["HOME"])
    assert not Path(found["HOME"]).exists(), "the directory goes with the environment"


async def test_closing_ends_what_an_environment_started():
    async with workers() as environment:
        child = int((await doing(await begun(environment), "fork")).text)
        worker = environment.pids[0]
        assert alive(child)
    await soon(lambda: not alive(child) and not alive(worker))
    with pytest.raises(EnvironmentFailed, match="closed"):
        await environment.reset(None)  # type: ignore[arg-type]


@on_both_loops
async def test_a_cancelled_step_ends_its_episode_only():
    async with workers() as environment:
        one, other = await begun(environment), await begun(environment)
        with anyio.move_on_after(0.3) as scope:
            await doing(one, "hang")
        assert scope.cancelled_caught
        await one.aclose()
        assert (await doing(other, "count")).text == "1"
        assert environment.instances == 1


async def test_state_and_clone_are_there_where_the_environment_has_them():
    async with workers(TRAVEL) as desk, workers() as other:
        episode, plain = await begun(desk), await begun(other)
        assert isinstance(episode, Stateful)
        assert isinstance(episode, Cloneable)
        assert not isinstance(plain, Stateful | Cloneable)


async def test_a_clone_outlives_what_it_was_cloned_from():
    async with workers(TRAVEL) as desk:
        episode = await begun(desk)
        assert isinstance(episode, Cloneable)
        twin = await episode.clone()
        await episode.aclose()
        assert (await doing(twin, "finish")).text
        assert (desk.instances, desk.deaths) == (1, 0)
        await twin.aclose()


async def test_an_environment_that_cannot_be_built_is_refused_at_once():
    for target, options, words in (
        (TROUBLE, {"bad": "build"}, "no data"),
        (TROUBLE, {"unknown": 1}, "unexpected keyword"),
        ("no_such_module:Thing", {}, "no_such_module"),
        ("nowhere", {}, "module:Class"),
    ):
        with pytest.raises(AdapterNotSetUp, match=words):
            WorkerEnvironment(target, options)


async def test_a_family_that_does_not_exist_is_a_value_error_here_too():
    async with workers() as environment:
        with pytest.raises(ValueError, match="no family 'X'"):
            environment.sample(0, "train", "X")
        assert as_protocol(environment).profile().name == environment.name == "troublesome"


def test_when_the_parent_is_killed_the_workers_and_their_episodes_go(tmp_path: Path):
    program = f"""
import anyio
from adapters.environments.workers import WorkerEnvironment
from actors.messages import ToolCall

async def main():
    environment = WorkerEnvironment({TROUBLE!r}, workers=2)
    episodes = [await environment.reset(environment.sample(0, "train", None)) for _ in range(4)]
    print(*environment.pids, flush=True)
    async with anyio.create_task_group() as group:
        for episode in episodes:
            group.start_soon(episode.step, [ToolCall("hang", "{{}}")], "")

anyio.run(main)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    sessions = {int(pid) for pid in parent.stdout.readline().split()}
    end = time.monotonic() + 30
    while len(members(sessions)) < 6 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(members(sessions)) == 6, "two workers and four episodes that hang"
    parent.kill()
    parent.wait()
    while members(sessions) and time.monotonic() < end:
        time.sleep(0.05)
    assert not members(sessions)


def members(sessions: set[int]) -> list[int]:
    """Processes of these sessions that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in sessions and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found
