"""Restarts, escalation, stalls, readiness and draining."""

import itertools
import random

import anyio
import pytest

from actors.system.errors import Escalated
from actors.system.lifecycle import Restart
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor

pytestmark = pytest.mark.anyio


class Listener(Notify):
    """Keeps what systemd would have been told."""

    def __init__(self, watchdog_seconds=0.0):
        super().__init__("", watchdog_seconds)
        self.lines = []

    def _send(self, *lines):
        self.lines.append((lines[0], anyio.current_time()))


def make(**options):
    return Supervisor(rng=random.Random(1), **options)


def status(supervisor, name):
    return next(actor for actor in supervisor.state().actors if actor.name == name)


async def test_a_failing_task_is_restarted_alone():
    supervisor, lives, neighbours = make(), [], []

    async def flaky(lifecycle):
        lives.append(anyio.current_time())
        await anyio.sleep(1)
        if len(lives) < 3:
            raise RuntimeError("boom")

    async def steady(lifecycle):
        neighbours.append(1)
        await anyio.sleep(60)

    supervisor.add("flaky", flaky)
    supervisor.add("steady", steady)
    assert await supervisor.run(signals=False)
    assert (len(lives), len(neighbours)) == (3, 1)
    assert status(supervisor, "flaky").restarts == 2
    assert status(supervisor, "flaky").last_error == "RuntimeError: boom"


async def test_the_delay_between_restarts_doubles_with_jitter_up_to_its_limit():
    supervisor, lives = make(), []

    async def flaky(lifecycle):
        lives.append(anyio.current_time())
        if len(lives) < 8:
            raise RuntimeError

    supervisor.add("flaky", flaky, Restart(first_delay=1.0, max_delay=8.0, max_restarts=20, window=1000.0))
    await supervisor.run(signals=False)
    gaps = [later - earlier for earlier, later in itertools.pairwise(lives)]
    for gap, nominal in zip(gaps, [1, 2, 4, 8, 8, 8, 8], strict=True):
        assert 0.5 * nominal <= gap <= 1.5 * nominal
    assert len({round(gap / nominal, 6) for gap, nominal in zip(gaps, [1, 2, 4, 8, 8, 8, 8], strict=True)}) == 7


async def test_a_critical_task_that_keeps_failing_escalates_and_ends_the_others():
    supervisor, ended = make(), []

    async def broken(lifecycle):
        raise ValueError("again")

    async def other(lifecycle):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    supervisor.add("broken", broken, Restart(max_restarts=3))
    supervisor.add("other", other)
    with pytest.raises(Escalated) as caught:
        await supervisor.run(signals=False)
    assert caught.value.name == "broken"
    assert isinstance(caught.value.__cause__, ValueError)
    assert ended == [1]


async def test_ready_is_told_once_when_every_critical_task_is():
    listener = Listener()
    supervisor = make(notify=listener)

    async def quick(lifecycle):
        lifecycle.ready()
        await anyio.sleep(10)

    async def slow(lifecycle):
        await anyio.sleep(5)
        lifecycle.ready()
        await anyio.sleep(5)
        lifecycle.ready()

    async def optional(lifecycle):
        await anyio.sleep(10)

    supervisor.add("quick", quick)
    supervisor.add("slow", slow)
    supervisor.add("optional", optional, Restart(critical=False))
    began = anyio.current_time()
    await supervisor.run(signals=False)
    assert [(line, round(at - began)) for line, at in listener.lines] == [("READY=1", 5)]


async def test_a_silent_task_is_cancelled_and_restarted():
    supervisor, lives = make(), 0

    async def hangs_once(lifecycle):
        nonlocal lives
        lives += 1
        lifecycle.ready()
        if lives == 1:
            await anyio.sleep_forever()

    supervisor.add("hangs", hangs_once, Restart(stall_seconds=20.0))
    assert await supervisor.run(signals=False)
    assert lives == 2
    assert status(supervisor, "hangs").last_error.startswith("Stalled")


async def test_a_task_that_ignores_its_cancellation_starves_the_watchdog():
    listener = Listener(watchdog_seconds=10.0)
    supervisor = make(notify=listener)

    async def wedged(lifecycle):
        lifecycle.ready()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(200)

    supervisor.add("wedged", wedged, Restart(stall_seconds=20.0, max_restarts=0, critical=False))
    began = anyio.current_time()
    await supervisor.run(signals=False)
    fed = [at - began for line, at in listener.lines if line == "WATCHDOG=1"]
    assert [at for at in fed if at < 20]
    assert not [at for at in fed if 25 < at < 195]


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_drain_ends_pauses_lets_tasks_finish_and_cuts_off_what_still_runs_at_its_deadline(deaf):
    supervisor, done, pauses = make(drain_seconds=5), [], []

    async def worker(lifecycle):
        while not lifecycle.draining.is_set():
            await anyio.sleep(2)
            done.append(anyio.current_time())
        if deaf:
            await anyio.sleep_forever()

    async def sleeper(lifecycle):
        pauses.append((await lifecycle.pause(1000), anyio.current_time() - began))

    async def stop(lifecycle):
        await anyio.sleep(5)
        supervisor.drain()

    for task in (worker, sleeper, stop):
        supervisor.add(task.__name__, task)
    began = anyio.current_time()
    assert await supervisor.run(signals=False) is not deaf
    assert (len(done), pauses) == (3, [(False, pytest.approx(5.0))])
    assert anyio.current_time() - began == pytest.approx(10.0 if deaf else 6.0)
