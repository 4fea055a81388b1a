"""Which engine a conversation is with: one table in memory that all taps of a machine share.

    32,768 sets of eight slots, the newest first; a slot is 12 bytes of the key's digest and 4 of the engine's name's

A set is written with one assignment, and without a lock: where two taps write the same set at the same moment, one
conversation is forgotten and drawn anew. It lies in a file of a file system in memory, never on a disk, which could
make agents wait. There it outlives the taps, and a conversation stays with its engine when they are started again.
"""

import hashlib
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

_SETS, _WAYS, _KEY, _SLOT = 1 << 15, 8, 12, 16
_SET = _WAYS * _SLOT
_BYTES = _SETS * _SET
_MEMORY = Path("/dev/shm")  # noqa: S108 - the file is ours alone, or it is not opened

log = structlog.get_logger(__name__)


class RouteTable:
    """Keys, ids or openings, and the names of engines."""

    def __init__(self, engines: Iterable[str], path: Path | None = None) -> None:
        """With a `path`, taps share it. Whatever cannot be shared is remembered by this tap alone, and said so."""
        self._engines = {name: hashlib.blake2b(name.encode(), digest_size=_SLOT - _KEY).digest() for name in engines}
        self._names = {digest: name for name, digest in self._engines.items()}
        self._map = _shared(path) if path is not None else mmap.mmap(-1, _BYTES)

    def get(self, key: bytes) -> str | None:
        """The engine of `key`; None: not known, or no engine of these."""
        digest, at = _place(key)
        slots = self._map[at : at + _SET]
        found = slots.find(digest)
        return self._names.get(slots[found + _KEY : found + _SLOT]) if found >= 0 else None

    def put(self, key: bytes, engine: str) -> None:
        """Remember it; of a full set the key that was put longest ago is forgotten."""
        digest, at = _place(key)
        slots = self._map[at : at + _SET]
        found = slots.find(digest)
        others = slots if found < 0 else slots[:found] + slots[found + _SLOT :]
        self._map[at : at + _SET] = (digest + self._engines[engine] + others)[:_SET]


def table_path(environment: Mapping[str, str], spool: Path) -> Path:
    """Where the taps that share `spool` have their table: in the service's runtime directory (systemd.exec(5)), else
    in the machine's shared memory."""
    directory = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    name = hashlib.blake2b(os.fsencode(spool), digest_size=8).hexdigest()
    return (Path(directory) if directory else _MEMORY) / f"evolved-routes-{os.geteuid()}-{name}"


def _place(key: bytes) -> tuple[bytes, int]:
    digest = hashlib.blake2b(key, digest_size=_KEY + 2).digest()
    return digest[:_KEY], (int.from_bytes(digest[_KEY:], "big") * _SETS >> 16) * _SET


def _shared(path: Path) -> mmap.mmap:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_uid != os.geteuid():
                raise PermissionError(f"{path} is another user's")
            os.posix_fallocate(file, 0, _BYTES)  # what has no room is an error here, and not a signal at a write
            return mmap.mmap(file, _BYTES)
        finally:
            os.close(file)
    except OSError as error:
        log.warning("routes_not_shared", path=str(path), error=str(error))
        return mmap.mmap(-1, _BYTES)
