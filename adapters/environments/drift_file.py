"""A drift file: how a procedural world is told, while it runs, that its tools have changed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from actors.messages.files import write_whole
from actors.ports.errors import EnvironmentFailed

T = TypeVar("T")


class DriftRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What such a file holds."""

    def write(self, path: Path) -> None:
        """Make this the drift of all desks that read `path`; atomic, so that no desk reads half of it."""
        write_whole(path, msgspec.json.encode(self), sync=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The drift that `path` holds; none if there is no such file.

        Raises:
            EnvironmentFailed: the file is not a drift.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return cls()
        except (OSError, msgspec.DecodeError) as error:
            raise EnvironmentFailed(f"cannot read the desk's drift from {path}: {error}") from error


def tool(name: str, parameters: Sequence[str]) -> dict[str, Any]:
    """A desk's tool in OpenAI's form; all its parameters are text, and needed."""
    properties = {key: {"type": "string"} for key in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


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
