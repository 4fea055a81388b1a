"""The registrations of run time on disk: one JSON file that only our user reads, written aside and renamed."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.messages.files import write_whole
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
    write_whole(path, msgspec.json.format(msgspec.json.encode(entries), indent=1), mode=0o600)
