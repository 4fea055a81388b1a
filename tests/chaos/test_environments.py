"""Environments in worker processes, by the hundred, dying again and again, and left by a parent that was killed."""

import itertools
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from actors.ports.errors import EnvironmentFailed
from tests.support.patience import until, wait_until
from tests.support.process import Process
from tests.support.working import TROUBLE, doing, workers

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.anyio, pytest.mark.chaos]


async def test_two_hundred_episodes_are_played_at_once():
    async with workers(max_instances=200, step_seconds=60) as environment:
        task, played = environment.sample(0, "train", None), list[str]()

        async def play() -> None:
            episode = await environment.reset(task)
            for _ in range(3):
                played.append((await doing(episode, "count")).text)
            await until(lambda: environment.instances == 200 or environment.closed > 0, "all are open at once")
            await episode.aclose()

        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(play)
        assert sorted(played) == ["1"] * 200 + ["2"] * 200 + ["3"] * 200
        assert (environment.opened, environment.instances, environment.closed) == (200, 0, 200)


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
    log = tmp_path / "log"
    with Process([sys.executable, "-c", program], log, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as parent:
        parent.until(lambda: log.read_text().endswith("\n"), what="the workers are started")
        sessions = {int(pid) for pid in log.read_text().split()}
        parent.until(lambda: len(members(sessions)) >= 6, what="two workers and four episodes that hang")
        assert len(members(sessions)) == 6
        os.kill(parent.pid, signal.SIGKILL)  # it alone: the rest must see to its own end
        parent.wait()
        wait_until(lambda: not members(sessions), "the workers and their episodes are gone")


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
