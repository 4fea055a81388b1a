"""Restarts, escalation, stalls, readiness and draining."""

import contextlib
import itertools
import random

import anyio
import pytest

from actors.system.errors import Escalated
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


def make(seed=1, **options):
    return Supervisor(rng=random.Random(seed), **options)


def status(supervisor, name):
    return next(actor for actor in supervisor.state() if actor.name == name)


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
        if len(lives) < 12:
            raise RuntimeError

    supervisor.add("flaky", flaky, max_restarts=20)
    await supervisor.run(signals=False)
    gaps = [later - earlier for earlier, later in itertools.pairwise(lives)]
    ratios = [gap / min(30.0, 0.1 * 2**number) for number, gap in enumerate(gaps)]
    assert all(0.5 <= ratio <= 1.5 for ratio in ratios)
    assert len({round(ratio, 6) for ratio in ratios}) == 11


async def test_a_critical_task_that_keeps_failing_escalates_and_ends_the_others():
    supervisor, ended = make(), []

    async def broken(lifecycle):
        raise ValueError("again")

    async def other(lifecycle):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    supervisor.add("broken", broken, max_restarts=3)
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
    supervisor.add("optional", optional, critical=False)
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

    supervisor.add("hangs", hangs_once, stall_seconds=20.0)
    assert await supervisor.run(signals=False)
    assert lives == 2
    assert status(supervisor, "hangs").last_error.startswith("Stalled")


async def test_the_shipped_rule_gives_a_crash_loop_up_within_minutes_whatever_the_jitter():
    for seed in range(20):
        supervisor = make(seed)

        async def broken(lifecycle):
            await anyio.sleep(0.2)
            raise ValueError("again")

        supervisor.add("broken", broken)
        began = anyio.current_time()
        with pytest.raises(Escalated):
            await supervisor.run(signals=False)
        assert anyio.current_time() - began < 180


async def test_what_is_not_critical_is_started_again_for_ever():
    supervisor, lives = make(), []

    async def broken(lifecycle):
        lives.append(1)
        if len(lives) < 40:
            raise ValueError("again")

    supervisor.add("broken", broken, critical=False)
    assert await supervisor.run(signals=False)
    assert len(lives) == 40


async def test_a_task_that_stalls_again_at_once_escalates_and_one_that_worked_meanwhile_does_not():
    for works, escalates in ((5.0, True), (300.0, False)):
        supervisor, lives = make(), []

        async def hangs(lifecycle, works=works, lives=lives):
            lives.append(1)
            if len(lives) == 3:
                return
            for _ in range(int(works)):
                lifecycle.beat()
                await anyio.sleep(1.0)
            await anyio.sleep_forever()

        supervisor.add("hangs", hangs, stall_seconds=20.0)
        with pytest.raises(Escalated) if escalates else contextlib.nullcontext():
            await supervisor.run(signals=False)
        assert len(lives) == (2 if escalates else 3)


async def test_a_critical_task_that_ignores_its_cancellation_ends_the_process_and_another_does_not():
    for critical in (True, False):
        left: list[float] = []
        supervisor = make(leave=lambda left=left: left.append(anyio.current_time()))

        async def wedged(lifecycle):
            if supervisor.state()[0].restarts:
                return
            lifecycle.ready()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(100)

        supervisor.add("wedged", wedged, stall_seconds=20.0, critical=critical)
        began = anyio.current_time()
        await supervisor.run(signals=False)
        assert bool(left) == critical
        assert not left or 50 <= left[0] - began < 53


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
