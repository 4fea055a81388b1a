"""A broker whose disk takes no bytes for a while: nothing confirmed is lost, and it goes on by itself.

It runs below this file, in a mount namespace of its own; the daemon ends a server that writes no more.
"""

import os
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import nats
import pytest
from nats.errors import Error

from actors.system.broker import read_credentials
from actors.system.broker_health import heal
from actors.system.supervisor import Supervisor
from tests.support.installation import Installation
from tests.support.nats import same_loop
from tests.support.patience import until, within

TIMES = 2


def spoil(directory: Path, how: str) -> None:
    """So that nothing more can be written."""
    if how == "full":
        (directory / "ballast").write_bytes(b"b" * (8 << 20))
    else:
        subprocess.run(["chattr", "-R", "+i", directory / "state" / "broker"], check=True)


def mend(directory: Path, how: str) -> None:
    """As it was."""
    if how == "full":
        (directory / "ballast").unlink()
    else:
        subprocess.run(["chattr", "-R", "-i", directory / "state" / "broker"], check=True)


async def main(directory: Path, how: str) -> None:
    here = Installation(directory, limits={"streams_gb": 1.0})
    broker, place = here.child("broker", "broker"), here.config.state / "broker"
    supervisor = Supervisor(rng=random.Random(0))
    supervisor.add("broker", partial(heal, place, same_loop))

    async def started_again() -> None:
        while True:
            broker.check()
            await anyio.sleep(0.2)

    broker.start()
    async with anyio.create_task_group() as group:
        group.start_soon(supervisor.run)
        group.start_soon(started_again)
        with anyio.fail_after(within()):
            await until(lambda: here.broker_listens, "the broker is up")
            told = read_credentials(place / "credentials.json")
            client = await nats.connect(
                told.url, user=told.user, password=told.password, max_reconnect_attempts=-1, reconnect_time_wait=0.2
            )
            stream = client.jetstream()
            await stream.add_stream(name="T", subjects=["t"])

            async def confirmed(data: bytes) -> bool:
                try:
                    await stream.publish("t", data, timeout=1.0)
                except (Error, TimeoutError):
                    return False
                return True

            for _ in range(TIMES):
                spoil(directory, how)
                number = 0
                while await confirmed(os.urandom(100_000)):
                    number += 1
                mend(directory, how)
                await until(lambda: confirmed(b"after"), "it takes bytes again")
                kept = (await stream.stream_info("T")).state.messages
                assert kept > number, (kept, number)
                await stream.purge_stream("T")
        await client.close()
        group.cancel_scope.cancel()
    broker.stop()
    print("goes on", broker.restarts)


@pytest.mark.parametrize("how", ["full", "immutable"])
def test_a_broker_whose_disk_took_no_bytes_goes_on_without_hands(tmp_path: Path, how: str) -> None:
    if how == "immutable" and (os.geteuid() != 0 or shutil.which("chattr") is None):
        pytest.skip("root and chattr are needed")
    own = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "--propagation", "private"]
    done = subprocess.run(
        [*own, sys.executable, __file__, tmp_path, how],
        capture_output=True, text=True, check=False, timeout=within(), env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"goes on {TIMES}" in done.stdout


if __name__ == "__main__":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", sys.argv[1]], check=True)
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
