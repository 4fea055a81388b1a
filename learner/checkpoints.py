"""The learner's own memory: optimizer and cursor, paired with the version they belong to.

    <state>/learner/v000007/    optimizer.safetensors, cursor.json
    <state>/versions/v000007/   the weights (`versions.py`)

The learner's directory of a version is renamed into place before the version's own, and that second rename is the
commit: a version that exists has its optimizer and a cursor that names the orders in it. What lies above the newest
version is debris of a kill and is removed. An order that trained nothing makes no version; it goes into the newest
one's cursor.
"""

import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import structlog

from actors.messages import Candidate
from actors.signing import PublicKeys, SigningKey
from learner.credit import Running
from learner.errors import CheckpointInvalid, StateEmpty
from learner.versions import (
    Versions,
    debris,
    digest,
    fsync,
    remove_directory,
    sweep,
    weight_files,
    write_directory,
)

_log = structlog.get_logger(__name__)
CURSOR = "cursor.json"
CHAIN = 64
"""Versions of the present line that are remembered; what is older is stale under any setting."""
SCHEMA = 1


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where the learner stands."""

    schema: int = SCHEMA
    version: int
    chain: tuple[int, ...]
    """Versions that led to the present weights, the newest last; a rollback cuts it."""
    done: tuple[tuple[str, int], ...] = ()
    """Orders and directives that are done, the oldest first, and the newest version then."""
    running: dict[str, Running] = {}
    """Running outcome baselines by cluster."""
    updates: int = 0
    """Updates that changed the weights, ever."""
    optimizer: str = ""
    """sha256 of optimizer.safetensors, or over those of its shards; empty without."""

    def finished(self, record: str) -> int | None:
        """The newest version when `record` was done, None if it was not."""
        return next((version for done, version in reversed(self.done) if done == record), None)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What `Checkpoints.look` found."""

    versions: tuple[int, ...]
    """On disk, ascending."""
    damaged: dict[int, str]
    """Versions above the one to go on from, with what is wrong with each: their updates would be lost."""
    debris: tuple[str, ...]
    """Names of what a kill left half written; harmless, and removed by the next start."""
    cursor: Cursor | None
    """Where to go on from; None if there is nothing on disk, or nothing sound."""


class Checkpoints:
    """Versions and the learner's memory under one state directory. Blocking."""

    def __init__(
        self,
        state: Path,
        *,
        key: SigningKey | None = None,
        trusted: PublicKeys | None = None,
        remembered: int = 4096,
        keep: int = 8,
    ) -> None:
        """
        Args:
            state: directory that the other processes know too; versions lie in `versions` below it.
            key: signs manifests; None leaves them unsigned.
            trusted: checks them; None leaves them unchecked.
            remembered: orders that the cursor remembers.
            keep: newest versions to keep.
        """
        self.versions = Versions(state / "versions", key=key, trusted=trusted)
        self._memory = state / "learner"
        self._remembered, self._keep = remembered, keep
        self._cursor: Cursor | None = None

    @property
    def cursor(self) -> Cursor:
        """Where the learner stands; `open` comes first."""
        if self._cursor is None:
            raise StateEmpty("the state has not been opened")
        return self._cursor

    @property
    def highest(self) -> int:
        """Highest version number ever used, at least the newest version's."""
        return max(self.cursor.version, *self.versions.numbers())

    @property
    def newest(self) -> Path:
        """Directory of the newest version."""
        return self.versions.path(self.cursor.version)

    @property
    def memory(self) -> Path | None:
        """Directory of the optimizer that goes with the newest version, None if it starts afresh."""
        directory = self._memory / self.newest.name
        return directory if self.cursor.optimizer else None

    def open(self, warm_start: Path | None, now: float) -> Cursor:
        """Find the newest good version and what goes with it; make version 0 of `warm_start` if there is none.

        A newest version that fails its checks is left where it is, and the one before it counts; its number is not
        used again.

        Raises:
            StateEmpty: no version and no warm start.
            CheckpointInvalid: a warm start without weights, or no version on disk that can be trusted.
            OSError: the disk fails.
        """
        self.versions.sweep()
        sweep(self._memory)
        if not self.versions.numbers():
            if warm_start is None:
                raise StateEmpty(f"no version in {self.versions.directory} and no warm start to begin from")
            self.initialise(warm_start, now)
        problems: list[str] = []
        for version in reversed(self.versions.numbers()):
            try:
                self.versions.read(version, verify=True)
                self._cursor = self._read(version)
            except CheckpointInvalid as error:
                problems.append(str(error))
                _log.error("version_unusable", version=version, reason=str(error))
                continue
            self._clear_debris(version)
            return self._cursor
        raise CheckpointInvalid("; ".join(problems))

    def look(self, *, verify: bool = True) -> Standing:
        """Where a learner that opened this state would stand; nothing is changed, and one may be running on it.

        Args:
            verify: read the version's files and compare their digests, as `open` does; without it, manifests alone.

        Raises:
            OSError: the directory cannot be read.
        """
        damaged: dict[int, str] = {}
        cursor: Cursor | None = None
        for version in reversed(self.versions.numbers()):
            try:
                self.versions.read(version, verify=verify)
                cursor = self._read(version)
                break
            except CheckpointInvalid as error:
                damaged[version] = str(error)
        versions = self.versions.numbers()
        newest = f"v{versions[-1] if versions else -1:06d}"
        orphans = sorted(path.name for path in self._memory.glob("v*") if path.name > newest)
        return Standing(
            versions=tuple(versions),
            damaged=damaged,
            debris=tuple(debris(self.versions.directory) + debris(self._memory) + orphans),
            cursor=cursor,
        )

    def initialise(self, warm_start: Path, now: float) -> None:
        """Version 0 out of the Hugging Face checkpoint in `warm_start`.

        Raises:
            CheckpointInvalid: it has no safetensors weights.
        """
        weights = weight_files(warm_start)
        index = warm_start / "model.safetensors.index.json"

        def copy(directory: Path) -> None:
            for path in (*weights, *([index] if len(weights) > 1 else [])):
                shutil.copyfile(path, directory / path.name)

        self._write_memory(Cursor(version=0, chain=(0,)), None)
        self.versions.write(0, -1, copy, rest=warm_start, batch_ids=(), metrics={}, created=now)

    def commit(
        self,
        record: str,
        *,
        save: Callable[[Path], None],
        save_state: Callable[[Path], None] | None,
        running: dict[str, Running],
        metrics: dict[str, float],
        now: float,
        parent: int | None = None,
    ) -> Candidate:
        """Write the next version, with `record` done in it; returns its announcement.

        Args:
            save: writes model.safetensors into a directory.
            save_state: writes optimizer.safetensors into a directory; None lets the optimizer start afresh.
            parent: version that the weights come from, the newest by default; the chain goes on from there.

        Raises:
            OSError: disk full; the version before is still the newest.
            NonFiniteWeights: as raised by `save`.
        """
        before = self.cursor
        version = self.highest + 1
        origin = before.version if parent is None else parent
        kept = before.chain[: before.chain.index(origin) + 1] if origin in before.chain else (origin,)
        cursor = Cursor(
            version=version,
            chain=(*kept, version)[-CHAIN:],
            done=(*before.done, (record, version))[-self._remembered :],
            running=running,
            updates=before.updates + (save_state is not None),
        )
        cursor = self._write_memory(cursor, save_state)
        self.versions.write(version, origin, save, rest=self.newest, batch_ids=(record,), metrics=metrics, created=now)
        self._cursor = cursor
        for old in self.versions.prune(self._keep):
            _log.info("version_deleted", version=old)
        self._clear_memory(keep=version)
        return self.versions.candidate(version)

    def done(self, record: str, running: dict[str, Running]) -> None:
        """Note that `record` is done without a new version.

        Raises:
            OSError: the disk fails; the note was not taken.
        """
        before = self.cursor
        cursor = msgspec.structs.replace(
            before, done=(*before.done, (record, before.version))[-self._remembered :], running=running
        )
        directory = self._memory / self.newest.name
        aside = directory / f".{CURSOR}.part"
        aside.write_bytes(msgspec.json.encode(cursor))
        fsync(aside)
        os.replace(aside, directory / CURSOR)
        fsync(directory)
        self._cursor = cursor

    def _write_memory(self, cursor: Cursor, save_state: Callable[[Path], None] | None) -> Cursor:
        target = self._memory / f"v{cursor.version:06d}"
        remove_directory(target)  # debris of a kill between the two renames

        def content(aside: Path) -> Cursor:
            written = cursor
            if save_state is not None:
                save_state(aside)
                written = msgspec.structs.replace(cursor, optimizer=_optimizer_digest(aside))
            (aside / CURSOR).write_bytes(msgspec.json.encode(written))
            return written

        return write_directory(target, content)

    def _read(self, version: int) -> Cursor:
        directory = self._memory / f"v{version:06d}"
        try:
            cursor = msgspec.json.decode((directory / CURSOR).read_bytes(), type=Cursor)
            if cursor.optimizer and _optimizer_digest(directory) != cursor.optimizer:
                raise CheckpointInvalid(f"learner/{directory.name}: the optimizer's digest differs")
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointInvalid(f"learner/{directory.name}: {error}") from error
        if cursor.version != version or cursor.schema != SCHEMA:
            raise CheckpointInvalid(f"learner/{directory.name}: a cursor of version {cursor.version}")
        return cursor

    def _clear_debris(self, newest: int) -> None:
        """Remove memory that no version was committed for."""
        for path in self._memory.glob("v*"):
            if int(path.name.removeprefix("v")) > newest:
                remove_directory(path)

    def _clear_memory(self, keep: int) -> None:
        """Keep the memory of `keep` and of the version before it, in case the newest is damaged."""
        names = {f"v{version:06d}" for version in self.versions.numbers()[-2:]} | {f"v{keep:06d}"}
        for path in self._memory.glob("v*"):
            if path.name not in names:
                remove_directory(path)


def _optimizer_digest(directory: Path) -> str:
    """sha256 of the optimizer's file, or over the digests of its shards.

    Raises:
        OSError: there is none.
    """
    shards = sorted(directory.glob("optimizer-*-of-*.safetensors"))
    if not shards:
        return digest(directory / "optimizer.safetensors").sha256
    return sha256("".join(f"{shard.name} {digest(shard).sha256}\n" for shard in shards).encode()).hexdigest()
