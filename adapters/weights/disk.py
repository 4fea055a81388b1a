"""The pulling node's disk: room for what comes, names for what is whole, an end for what is old."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator, Set
from pathlib import Path

from actors.messages.files import fsync
from actors.ports.errors import WeightsDiskFull

PARTIAL = ".pull"
"""Ending of the hidden directory of a version that is on its way."""
_NAME = re.compile(r"v(\d{6,})")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ON_THE_WAY = 2
"""Versions that may be half here: what the gate asks for, and what is to be gone back to."""


def name(version: int) -> str:
    """What the directory of `version` is called."""
    return f"v{version:06d}"


def partial(directory: Path, version: int) -> Path:
    """Where `version` lies until it is whole."""
    return directory / f".{name(version)}{PARTIAL}"


def make_room(directory: Path, need: int, spare: int) -> None:
    """See that `need` bytes find room and `spare` are left. Raises WeightsDiskFull: they do not."""
    free = shutil.disk_usage(directory).free
    if free < need + spare:
        raise WeightsDiskFull(
            f"{directory}: {need} bytes are to come and {spare} to be left, {free} are "
            "free; free some, lower keep.versions, or move state_dir; what serves is untouched"
        )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a full disk into its named error. Raises WeightsDiskFull: no space, or no quota, is left."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise WeightsDiskFull(
            f"{path}: {error.strerror}; the version's partial files were removed, what serves is untouched; free some "
            "space or lower keep.versions"
        ) from error


def appear(aside: Path, target: Path) -> None:
    """Make the directory `aside` durable and give it its name, in one step."""
    for path in (*aside.iterdir(), aside):
        fsync(path)
    aside.rename(target)
    fsync(target.parent)


def sweep(directory: Path, version: int) -> None:
    """Remove what other versions left half here, but for the newest of them."""
    found = [path for path in directory.glob(f".v*{PARTIAL}") if path != partial(directory, version)]
    for path in sorted(found, key=_touched, reverse=True)[_ON_THE_WAY - 1 :]:
        remove(path)


def prune(directory: Path, keep: int, spared: Set[int]) -> list[int]:
    """Delete all versions but the newest `keep`, pinned ones, 0 and those `spared`; returns what was deleted.

    A list of pinned versions that cannot be read protects everything.
    """
    try:
        lines = (directory / "pinned").read_text().splitlines()
        pinned = {int(line.split()[0].removeprefix("v")) for line in lines if line.strip()}
    except FileNotFoundError:
        pinned = set[int]()
    except (OSError, ValueError):
        return []
    matches = (_NAME.fullmatch(path.name) for path in directory.iterdir())
    numbers = sorted(int(match[1]) for match in matches if match)
    old = [number for number in numbers[:-keep] if number not in pinned | {0} | spared]
    for number in old:
        remove(directory / name(number))
    return old


def remove(path: Path) -> None:
    """Take `path` out of sight in one step, then delete it."""
    aside = path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}.gone")
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _touched(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
