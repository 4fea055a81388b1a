"""Claim checks: a payload above the broker's limit goes to a directory that all processes share; the record carries the
name of its file.

That is the payload's digest: writing one twice is a no-op, other bytes are noticed, and a name from a record can never
lead out of the directory. Files are swept once every stream must have forgotten the records that point to them.
"""

import hashlib
import re
from pathlib import Path

from actors.messages.files import write_whole
from actors.system.errors import PayloadMissing

CLAIM_HEADER = "Evolved-Claim"
"""Of a record: its claim."""
_NAME = re.compile(r"[0-9a-f]{64}\.blob")


class ClaimStore:
    """The shared directory. Blocking: to be called in a worker thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, data: bytes) -> str:
        """Write `data` durably; its claim."""
        target = self._directory / f"{hashlib.sha256(data).hexdigest()}.blob"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if target.exists() and target.stat().st_size == len(data):
            target.touch()
        else:
            write_whole(target, data)
        return target.name

    def get(self, claim: str) -> bytes:
        """The payload."""
        if not _NAME.fullmatch(claim):
            raise PayloadMissing(f"claim {claim!r} is no blob name")
        try:
            data = (self._directory / claim).read_bytes()
        except OSError as error:
            raise PayloadMissing(f"blob {claim}: {error.strerror}") from error
        if f"{hashlib.sha256(data).hexdigest()}.blob" != claim:
            raise PayloadMissing(f"blob {claim} has other content than its claim says")
        return data

    def sweep(self, before: float) -> int:
        """Delete blobs last written before `before` (unix seconds); returns how many."""
        removed = 0
        for path in self._directory.iterdir() if self._directory.is_dir() else ():
            if path.suffix in (".blob", ".part") and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)
                removed += 1
        return removed
