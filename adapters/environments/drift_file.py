"""A drift file: how a procedural world is told, while it runs, that its tools have changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class DriftFile(Generic[T]):
    """A file that is read again when it has changed.

    Args:
        path: the file; None for a world that never drifts.
        read: what the file says; also asked for a file that was taken away.
        base: the world without drift.
    """

    def __init__(self, path: Path | None, read: Callable[[Path], T], base: T) -> None:
        self._path, self._read, self._now = path, read, base
        self._stamp: tuple[int, int] | None = None

    def now(self) -> T:
        """What the file says now.

        Raises:
            EnvironmentFailed: the file is not a drift.
        """
        if self._path is None:
            return self._now
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
        except FileNotFoundError:
            stamp = None
        if stamp != self._stamp:
            self._now = self._read(self._path)
            self._stamp = stamp
        return self._now
