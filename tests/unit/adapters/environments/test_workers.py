"""Worker processes: what hangs, crashes or talks without end costs its episode; nothing stays behind or leaks in."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports.environments import Stateful
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.workers import WorkerEnvironment
from tests.support.patience import until
from tests.support.process import alive
from tests.support.working import TROUBLE, begun, doing, workers

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("anyio_backend", "trouble", "options", "said", "figure"),
    [
        ("trio", "crash", {}, "process ended", "deaths"),
        ("asyncio", "crash", {}, "process ended", "deaths"),
        ("trio", "segfault", {}, "process ended", "deaths"),
        ("trio", "hang", {"step_seconds": 3.0}, "did not answer within 3 s", "timeouts"),
        ("trio", "sleep", {"step_seconds": 3.0}, "did not answer within 3 s", "timeouts"),
        ("trio", "talk", {"max_bytes": 1 << 20}, "max_bytes", "oversized"),
    ],
)
async def test_trouble_costs_its_episode_and_the_neighbour_plays_on(
    trouble: str, options: dict[str, Any], said: str, figure: str
):
    async with workers(**options) as environment:
        bad, good = await begun(environment), await begun(environment)

        async def spoil() -> None:
            with pytest.raises(EnvironmentFailed, match=said):
                await doing(bad, trouble)

        async with anyio.create_task_group() as group:
            group.start_soon(spoil)
            assert [(await doing(good, "count")).text for _ in range(5)] == ["1", "2", "3", "4", "5"]
        with pytest.raises(EnvironmentFailed):
            await bad.evaluate()
        counted = {name: getattr(environment, name) for name in ("deaths", "timeouts", "oversized", "lost", "restarts")}
        assert counted == dict.fromkeys(counted, 0) | {figure: 1}
        assert environment.instances == 1
        await bad.aclose()
        await good.aclose()
        assert environment.instances == 0


async def test_an_exception_costs_its_step_alone():
    async with workers() as environment:
        episode = await begun(environment)
        with pytest.raises(EnvironmentFailed, match=r"^RuntimeError: a bug of the environment$"):
            await doing(episode, "raise")
        assert (await doing(episode, "count")).text == "2"


async def test_a_hang_in_reset_costs_no_more_than_that_episode():
    async with workers(options={"bad": "hang-reset"}, start_seconds=2.0) as environment:
        with pytest.raises(EnvironmentFailed, match="did not answer within 2 s"):
            await begun(environment)
        assert (environment.timeouts, environment.instances, environment.restarts) == (1, 0, 0)


async def test_there_are_no_more_episodes_than_the_cap_and_those_that_nobody_uses_are_ended():
    now = [0.0]
    async with workers(max_instances=2, idle_seconds=60.0, clock=lambda: now[0]) as environment:
        abandoned = await begun(environment)
        now[0] = 50.0
        used = await begun(environment)
        with pytest.raises(EnvironmentFailed, match="max_instances"):
            await begun(environment)
        assert environment.capped == 1
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
        await until(lambda: not alive(before), "the worker is gone")
        fresh = await begun(environment)
        assert (environment.lost, environment.restarts, environment.instances) == (3, 1, 1)
        assert (await doing(fresh, "count")).text == "1"
        with pytest.raises(EnvironmentFailed, match="worker ended"):
            await doing(episodes[0], "count")


async def test_a_question_that_hangs_ends_the_worker_and_the_next_one_is_answered():
    async with workers(options={"bad": "hang-sample"}, ask_seconds=3.0, backoff=0.0) as environment:
        with pytest.raises(EnvironmentFailed, match="ask_seconds"):
            environment.sample(0, "train", None)
        assert [tool["function"]["name"] for tool in environment.tools()] == ["finish"]
        assert (environment.timeouts, environment.restarts) == (1, 1)


@pytest.mark.promise
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
    await until(lambda: not alive(child) and not alive(worker), "worker and child are gone")
    with pytest.raises(EnvironmentFailed, match="closed"):
        await environment.reset(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_a_cancelled_step_ends_its_episode_only():
    async with workers() as environment:
        one, other = await begun(environment), await begun(environment)
        assert not isinstance(one, Stateful), "the environment has no state to show"
        with anyio.move_on_after(0.3) as scope:
            await doing(one, "hang")
        assert scope.cancelled_caught
        await one.aclose()
        assert (await doing(other, "count")).text == "1"
        assert environment.instances == 1


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        (TROUBLE, {"unknown": 1}, "unexpected keyword"),
        ("no_such_module:Thing", {}, "no_such_module"),
        ("nowhere", {}, "module:Class"),
    ],
)
def test_an_environment_that_cannot_be_built_is_refused_at_once(target: str, options: dict[str, Any], words: str):
    with pytest.raises(AdapterNotSetUp, match=words):
        WorkerEnvironment(target, options)
