"""`<state>/daemon.lock`: daemons hold it together, a restore alone. The kernel lets it go when its process ends, in
whatever way that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon.errors import StartFailed

_NAME = "daemon.lock"


@contextmanager
def state_lock(state: Path, *, alone: bool = False) -> Iterator[None]:
    """Hold it. `alone`: nobody else may hold it; else other daemons may. Raises StartFailed: somebody holds it who
    excludes us, or the directory cannot be written to."""
    path = state / _NAME
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartFailed(
            f"{path}: {error.strerror}; state_dir must be a directory that this user may write to"
        ) from error
    try:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = "a daemon runs here" if alone else "a restore is under way here"
            what = "stop it first (systemctl stop evolved-daemon)" if alone else "wait for its end"
            raise StartFailed(f"{path} is held: {who}; {what}") from error
        yield
    finally:
        os.close(file)
