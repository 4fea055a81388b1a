"""What `test_broker_disk` runs in a mount namespace of its own: a broker whose disk takes no bytes, then does again."""

import os
import random
import subprocess
import sys
from pathlib import Path

import anyio
import nats
from nats.errors import Error

from actors.system.broker import Broker, BrokerSettings
from actors.system.lifecycle import Restart
from actors.system.supervisor import Supervisor
from tests.support.patience import until, within

TIMES = 2


def spoil(directory: Path, how: str) -> None:
    """So that nothing more can be written."""
    if how == "full":
        (directory / "ballast").write_bytes(b"b" * (8 << 20))
    else:
        subprocess.run(["chattr", "-R", "+i", directory / "broker"], check=True)


def mend(directory: Path, how: str) -> None:
    """As it was."""
    if how == "full":
        (directory / "ballast").unlink()
    else:
        subprocess.run(["chattr", "-R", "-i", directory / "broker"], check=True)


async def main(directory: Path, how: str) -> None:
    broker = Broker(directory / "broker", BrokerSettings(store_bytes=1 << 30))
    supervisor = Supervisor(rng=random.Random(0))
    supervisor.add("broker", broker.serve, Restart())
    async with anyio.create_task_group() as group:
        group.start_soon(supervisor.run)
        with anyio.fail_after(within()):
            await until(broker.credentials_path.exists, "the broker is up")
            told = broker.credentials
            client = await nats.connect(
                told.url, user=told.user, password=told.password, max_reconnect_attempts=-1, reconnect_time_wait=0.2
            )
            stream = client.jetstream()
            await stream.add_stream(name="T", subjects=["t"])
            confirmed = 0
            for _ in range(TIMES):
                spoil(directory, how)
                try:
                    while True:
                        await stream.publish("t", os.urandom(100_000), timeout=1.0)
                        confirmed += 1
                except (Error, TimeoutError):
                    pass
                mend(directory, how)
                while True:
                    try:
                        await stream.publish("t", b"after", timeout=1.0)
                        confirmed += 1
                        break
                    except (Error, TimeoutError):
                        await anyio.sleep(0.2)
                kept = (await stream.stream_info("T")).state.messages
                assert kept >= confirmed, (kept, confirmed)
                await stream.purge_stream("T")
                confirmed = 0
        await client.close()
        group.cancel_scope.cancel()
    print("goes on")


if __name__ == "__main__":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", sys.argv[1]], check=True)
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
