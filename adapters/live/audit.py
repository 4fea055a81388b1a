"""`AuditLog`: every call of a live API, one line of JSON each: when, which, with what result; never with what words.

Append-only, rotated by size. A line that cannot be written is kept, and while it is, nothing may be executed: what has
an effect outside is always found here.
"""

import os
from collections import Counter, deque
from pathlib import Path
from threading import Lock
from typing import Any

import anyio
import msgspec
import structlog

from actors.ports.errors import LiveApiUnavailable

_log = structlog.get_logger(__name__)
_MOST_WAITING = 1000
_MAX_BYTES = 16 << 20
"""Of one file; at that it is put aside and a new one begun."""
_FILES = 8
"""Files put aside; the oldest goes."""


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    time: float
    """Unix seconds when it ended."""
    api: str
    tool: str
    call: str
    """Keyed digest of API, tool and arguments: equal calls have equal ones."""
    mode: str
    source: str
    """live, recorded, simulated, refused; empty if it failed."""
    outcome: str
    """ok, error (the API's own), refused, or the name of what went wrong."""
    status: int = 0
    """HTTP's, if there was one."""
    ms: float = 0.0
    why: str = ""
    """Why it was refused."""


class AuditLog:
    """One file, shared by all APIs of a daemon; `close()` at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._waiting: deque[bytes] = deque()
        self._file: Any = None
        self._size = 0
        self._broken = False
        self.counts: Counter[str] = Counter()
        """written, failed, dropped, rotated."""

    async def ready(self) -> None:
        """
        Raises:
            LiveApiUnavailable: lines wait that cannot be written.
        """
        if self._waiting:
            await anyio.to_thread.run_sync(self._flush)
        if self._waiting:
            raise LiveApiUnavailable(f"the audit log {self._path} cannot be written; nothing is executed until it can")

    async def write(self, line: AuditLine) -> None:
        """Write a line; also while its caller is being cancelled. Raises nothing."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._write, line)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, line: AuditLine) -> None:
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                self._waiting.popleft()
                self.counts["dropped"] += 1
            self._waiting.append(msgspec.json.encode(line) + b"\n")
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            try:
                while self._waiting:
                    self._append(self._waiting[0])
                    self._waiting.popleft()
                    self.counts["written"] += 1
            except OSError as error:
                self.counts["failed"] += 1
                self._file = None
                if not self._broken:
                    self._broken = True
                    _log.error("live_audit_broke", path=str(self._path), error=error.strerror)
                return
            if self._broken:
                self._broken = False
                _log.info("live_audit_recovered", path=str(self._path))

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Unbuffered: what was written is with the kernel, and a line is one write.
            self._file = open(self._path, "ab", buffering=0, opener=_private)  # noqa: SIM115  # closed in `close`
            self._size = os.fstat(self._file.fileno()).st_size
        if self._size and self._size + len(data) > _MAX_BYTES:
            self._rotate()
        self._file.write(data)
        self._size += len(data)

    def _rotate(self) -> None:
        for number in range(_FILES, 1, -1):
            older = self._path.with_suffix(f".{number - 1}{self._path.suffix}")
            if older.exists():
                older.replace(self._path.with_suffix(f".{number}{self._path.suffix}"))
        self._path.replace(self._path.with_suffix(f".1{self._path.suffix}"))
        self._file.close()
        self._file = open(self._path, "ab", buffering=0, opener=_private)  # noqa: SIM115  # closed in `close`
        self._size = 0
        self.counts["rotated"] += 1


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
