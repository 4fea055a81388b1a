"""One shipper a spool: daemons that share a machine share its tap's spool, and one of them empties it."""

import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from actors.system.lifecycle import Lifecycle

_LOOK_SECONDS = 0.5


def alone(directory: Path, task: Callable[[Lifecycle], Awaitable[None]]) -> Callable[[Lifecycle], Awaitable[None]]:
    """`task`, once no other process has `directory`; until then it stands by. The kernel frees what a dead one had."""

    async def run(lifecycle: Lifecycle) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(directory / ".shipper", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(descriptor):
                lifecycle.standby(f"another daemon empties {directory}")
                if not await lifecycle.pause(_LOOK_SECONDS):  # file locks have no event to wait for
                    return
            await task(lifecycle)
        finally:
            os.close(descriptor)

    return run


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
