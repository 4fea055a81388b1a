"""The registrations of run time on disk: one JSON file that only our user reads, written aside and renamed."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from daemon.errors import StartFailed
from daemon.live.settings import Entry


def read(path: Path) -> list[Entry]:
    """The entries, none if there is no file.

    Raises:
        StartFailed: it cannot be read; nothing is overwritten.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Entry])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise StartFailed(
            f"{path}: {error}; repair it, or move it away: the APIs in it are then to be added again"
        ) from error


def write(path: Path, entries: Sequence[Entry]) -> None:
    """Put `entries` in the file's place.

    Raises:
        OSError: it cannot be written; what was there is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(entries), indent=1))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
