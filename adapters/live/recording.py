"""`Recordings`: earlier answers of live APIs, found by the call that they answered; what shadow runs are told from.

One JSON file each, named after the call's digest, oldest thrown away first. The digest is keyed: a call may hold a
short password, which a plain hash would let anybody guess who reads the directory. Arguments themselves are not kept.
"""

import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import anyio
import msgspec

from actors.messages.files import write_whole
from actors.ports.errors import AdapterNotSetUp

_KEY = "digest.key"
_KEY_BYTES = 32
_LARGEST = 1 << 18
_ENTRIES = 4_000
"""A gigabyte at the very most; an answer has a few kilobytes."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, scrubbed."""

    api: str
    tool: str
    time: float
    """Unix seconds when it was given."""
    text: str
    structured: Any = None
    status: int = 0
    truncated: bool = False


class Recordings:
    """A directory of answers; safe to share between APIs.

    Args:
        directory: made if it is not there, for this user alone.

    Raises:
        AdapterNotSetUp: it cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()
        self._kept: dict[str, None] = {}
        """Digests, oldest first."""
        self.counts: Counter[str] = Counter()
        """kept, found, evicted, unreadable, too_large, failed."""
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._key = _key(directory / _KEY)
            found = [
                (entry.stat(), Path(entry.name)) for entry in os.scandir(directory) if entry.name.endswith(".json")
            ]
        except OSError as error:
            raise AdapterNotSetUp(f"the directory of recorded answers, {directory}: {error.strerror}") from None
        for _, path in sorted(found, key=lambda one: one[0].st_mtime_ns):
            self._kept[path.stem] = None

    def digest(self, api: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """The call's address: the same call always has the same, whatever the order of its arguments."""
        call = json.dumps([api, tool, arguments], sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.blake2b(call.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).hexdigest()

    async def get(self, digest: str) -> Recorded | None:
        if digest not in self._kept:
            return None
        return await anyio.to_thread.run_sync(self._get, digest)

    async def put(self, digest: str, answer: Recorded) -> None:
        """Keep an answer, in place of an earlier one. A disk that does not take it is counted, not raised."""
        await anyio.to_thread.run_sync(self._put, digest, answer)

    def _get(self, digest: str) -> Recorded | None:
        with self._lock:
            try:
                found = msgspec.json.decode((self._directory / f"{digest}.json").read_bytes(), type=Recorded)
            except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
                self.counts["unreadable"] += 1
                self._drop(digest)
                return None
            self.counts["found"] += 1
            return found

    def _put(self, digest: str, answer: Recorded) -> None:
        try:
            data = msgspec.json.encode(answer)
        except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
            self.counts["failed"] += 1
            return
        if len(data) > _LARGEST:
            self.counts["too_large"] += 1
            return
        with self._lock:
            path = self._directory / f"{digest}.json"
            try:
                write_whole(path, data, sync=False)
            except OSError:
                self.counts["failed"] += 1
                return
            self._kept.pop(digest, None)
            self._kept[digest] = None
            self.counts["kept"] += 1
            while len(self._kept) > _ENTRIES:
                self.counts["evicted"] += 1
                self._drop(next(iter(self._kept)))

    def _drop(self, digest: str) -> None:
        self._kept.pop(digest, None)
        (self._directory / f"{digest}.json").unlink(missing_ok=True)


def _key(path: Path) -> bytes:
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    except FileExistsError:
        pass
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise AdapterNotSetUp(f"{path} is damaged: remove it, and the recorded answers beside it with it")
    return key
