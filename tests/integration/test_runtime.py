"""The runtime: calls to the host loop, their cancellation, and signals."""

import asyncio
import contextlib
import os
import random
import signal
import socket

import anyio
import pytest
import sniffio

from actors.system.errors import HostCallCancelled
from actors.system.notify import Notify
from actors.system.runtime import run
from actors.system.supervisor import Supervisor
from tests.support.patience import until


def test_actors_run_on_trio_and_calls_on_the_host():
    async def on_host():
        return type(asyncio.get_running_loop()).__module__

    async def fail(words):
        raise LookupError(words)

    async def main(host):
        with pytest.raises(LookupError, match="from the host"):
            await host(fail, words="from the host")
        return sniffio.current_async_library(), await host(on_host)

    assert run(main) == ("trio", "uvloop")


def test_a_cancelled_caller_waits_until_its_call_has_ended():
    events, began = [], []

    async def stubborn():
        try:
            began.append(1)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.05)
            events.append("call ended")

    async def main(host):
        async with anyio.create_task_group() as group:
            group.start_soon(host, stubborn)
            await until(lambda: began, "the call begins")
            group.cancel_scope.cancel()
        events.append("caller goes on")

    run(main)
    assert events == ["call ended", "caller goes on"]


def test_a_call_that_the_host_cancels_is_an_error_not_a_cancellation():
    async def cancels_itself():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def main(host):
        with pytest.raises(HostCallCancelled):
            await host(cancels_itself)

    run(main)


def test_many_calls_under_random_cancellation_stay_sound():
    rng = random.Random(4)
    outcomes = {"value": 0, "cancelled": 0}

    async def call(n, seconds):
        await asyncio.sleep(seconds)
        return n

    async def one(host, n):
        with anyio.move_on_after(rng.uniform(0, 0.02)):
            assert await host(call, n, rng.uniform(0, 0.02)) == n
            outcomes["value"] += 1
            return
        outcomes["cancelled"] += 1

    async def main(host):
        for _ in range(10):
            async with anyio.create_task_group() as group:
                for n in range(50):
                    group.start_soon(one, host, n)

    run(main)
    assert sum(outcomes.values()) == 500
    assert all(outcomes.values())


def test_ctrl_c_without_a_supervisor_unwinds_the_actors():
    unwound = []

    async def main(host):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await anyio.sleep(20)
        finally:
            unwound.append(1)

    with pytest.raises(KeyboardInterrupt):
        run(main)
    assert unwound == [1]


def test_sigterm_drains(tmp_path):
    path, finished, told = str(tmp_path / "notify"), [], []

    async def main(host):
        notify = Notify.from_environment({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "300000"})
        supervisor = Supervisor(rng=random.Random(1), notify=notify, drain_seconds=5)

        async def worker(lifecycle):
            lifecycle.ready()
            await lifecycle.pause(30)
            finished.append(1)

        async def operator(lifecycle):
            lifecycle.ready()
            await until(lambda: {"READY=1", "WATCHDOG=1"} <= set(heard()), "it is ready, and the watchdog fed")
            os.kill(os.getpid(), signal.SIGTERM)

        supervisor.add("worker", worker)
        supervisor.add("operator", operator)
        return await supervisor.run()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)

        def heard():
            with contextlib.suppress(BlockingIOError):
                while True:
                    told.append(listener.recv(200).decode().split("\n")[0])
            return told

        assert run(main)
        assert heard()[-1] == "STOPPING=1"
    assert finished == [1]
