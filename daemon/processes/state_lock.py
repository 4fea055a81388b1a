"""File locks of processes. The kernel lets one go when its process ends, in whatever way that ends."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from actors.messages.files import lock
from daemon.errors import StartFailed

_NAME = "daemon.lock"


@contextmanager
def held(path: Path, refused: str, *, shared: bool = False, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, with others that want it `shared`, after waiting for so long. Raises StartFailed: it
    cannot be written, or somebody holds it who excludes us, as `refused` says."""
    end = time.monotonic() + seconds
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = lock(path, shared=shared)
            break
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise StartFailed(f"{path} is held: {refused}") from error
        except OSError as error:
            raise StartFailed(
                f"{path}: {error.strerror}; state_dir must be a directory that this user may write to"
            ) from error
        time.sleep(0.1)  # before anything runs that could be kept waiting
    try:
        yield
    finally:
        os.close(file)


def state_lock(state: Path, *, alone: bool = False) -> AbstractContextManager[None]:
    """Hold `<state>/daemon.lock`: daemons do together, a restore `alone`."""
    restoring = "a daemon runs here; stop it first (systemctl stop evolved-daemon)"
    return held(
        state / _NAME, restoring if alone else "a restore is under way here; wait for its end", shared=not alone
    )
