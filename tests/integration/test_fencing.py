"""A process that is stopped in mid-work and goes on when another one leads: none of its writes gets through."""

import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import anyio
import pytest

from actors.store import Store
from actors.system.leadership import LEADER
from tests.support.patience import until

pytestmark = pytest.mark.anyio
PROGRAM = """
import sys, time, anyio
from actors.store import Store
from actors.system.errors import DependencyUnavailable, Deposed
from actors.system.leadership import LEADER

async def main(url):
    store = Store(url, clock=time.time)
    await store.open()
    mine = await store.leases.take(LEADER, "stopped", 2.0)
    print("took", flush=True)
    with store.leases.fenced(LEADER, mine.epoch):
        for number in range(1_000_000):
            try:
                await store.state_put("written", str(number).encode())
            except Deposed as error:
                print("refused", number, flush=True)
                return
            except DependencyUnavailable:
                pass  # the server cut off the transaction that it was stopped in; done again, it is refused

anyio.run(main, sys.argv[1])
"""


async def written(store: Store) -> int:
    return int(await store.state_get("written") or -1)


async def test_a_process_that_was_stopped_for_longer_than_its_lease_writes_nothing(
    store_url: str,
) -> None:
    url = store_url
    store = Store(url, clock=time.time)
    await store.open()
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", PROGRAM, url]
    with Popen(command, stdout=PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": root}) as process:  # noqa: ASYNC220
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "took\n"

            async def works() -> bool:
                return await written(store) > 10

            async def taken() -> bool:
                try:
                    return (await store.leases.take(LEADER, "next", 30.0)).taken
                except Exception as error:  # the stopped one may hold a lock that the server has yet to take from it
                    print(repr(error))
                    return False

            await until(works, "it writes")
            process.send_signal(signal.SIGSTOP)
            if url.startswith("sqlite"):
                await clear_of_a_lock(store, process)
            await until(taken, "somebody else takes the lease")
            last = await written(store)
            process.send_signal(signal.SIGCONT)
            with anyio.fail_after(30):
                line = await anyio.to_thread.run_sync(process.stdout.readline)
            assert line.startswith("refused")
            assert await written(store) == last
        finally:
            process.kill()
    await store.aclose()


async def clear_of_a_lock(store: Store, process: "Popen[str]") -> None:
    """SQLite frees nobody's lock: stop the process again until it does not happen to be in a transaction."""
    for _ in range(100):
        with anyio.move_on_after(0.5):
            await store.leases.look("anything")
            return
        process.send_signal(signal.SIGCONT)
        await anyio.sleep(0.003)
        process.send_signal(signal.SIGSTOP)
