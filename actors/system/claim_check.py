"""Claim checks: a payload above the broker's limit goes to a directory that all processes share; the record carries its
name, digest and size.

Files are named by their digest, so writing one twice is a no-op, and a name from a record can never lead out of the
directory. They are swept once every stream must have forgotten the records that point to them.
"""

import hashlib
import os
import re
from pathlib import Path

import msgspec

from actors.messages.files import write_whole
from actors.system.errors import PayloadMissing

CLAIM_HEADER = "Evolved-Claim"
"""Of a record: its claim, as JSON."""
_NAME = re.compile(r"[0-9a-f]{64}\.blob")


class Claim(msgspec.Struct, frozen=True):
    """Where a payload lies."""

    path: str
    """File name inside the shared directory."""
    sha256: str
    size: int
    """Bytes."""


class ClaimStore:
    """The shared directory. Blocking: to be called in a worker thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, data: bytes) -> Claim:
        """Write `data` durably."""
        digest = hashlib.sha256(data).hexdigest()
        target = self._directory / f"{digest}.blob"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if target.exists() and target.stat().st_size == len(data):
            os.utime(target)
            return Claim(target.name, digest, len(data))
        write_whole(target, data)
        return Claim(target.name, digest, len(data))

    def get(self, claim: Claim) -> bytes:
        """The payload."""
        if not _NAME.fullmatch(claim.path):
            raise PayloadMissing(f"claim path {claim.path!r} is no blob name")
        try:
            data = (self._directory / claim.path).read_bytes()
        except OSError as error:
            raise PayloadMissing(f"blob {claim.path}: {error.strerror}") from error
        if len(data) != claim.size or hashlib.sha256(data).hexdigest() != claim.sha256:
            raise PayloadMissing(f"blob {claim.path} has other content than its claim says")
        return data

    def sweep(self, before: float) -> int:
        """Delete blobs last written before `before` (unix seconds); returns how many."""
        removed = 0
        if not self._directory.is_dir():
            return 0
        for path in self._directory.iterdir():
            if path.suffix in (".blob", ".part") and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)
                removed += 1
        return removed
