"""`Snapshots`: which lessons there were when a weight version came, so that memory can go back with the weights.

    v000012.json                  version, when, which embedder, how many lessons, the file and its digest
    pool-<digest>.safetensors     ids (uint8, joined), ends (int64, (n,)), revisions (int64, (n,))

A snapshot names revisions; the lessons themselves stay in the store, so what was forgotten there does not come back by
this way. Versions between which nothing was learned share a file, whose digest is the pool's version. Only the newest
are kept, and whatever serves.
"""

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

import anyio.to_thread
import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from actors.experience.retrieval.errors import SnapshotMissing, SnapshotRefused
from actors.messages.files import write_whole

_FORMAT = 1


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of one."""

    format: int = _FORMAT
    version: int
    """Of the weights."""
    pool: str
    """The pool's version: SHA-256 of the file, in hex."""
    lessons: int
    embedder: str
    dimension: int
    created: float
    """Unix seconds; of the weight version's record."""


class Snapshots:
    """A directory of snapshots.

    Args:
        keep: how many, at least 1.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, max(1, keep)

    async def versions(self) -> list[int]:
        """Weight versions that have one, ascending."""
        return await anyio.to_thread.run_sync(self._versions)

    async def write(
        self,
        version: int,
        revisions: Collection[tuple[str, int]],
        *,
        embedder: str,
        dimension: int,
        created: float,
        serving: Collection[int] = (),
    ) -> Snapshot:
        """Keep (id, revision) of all lessons for `version`; one that is there already stays. Old ones go, but not those
        of versions in `serving`.

        Raises:
            OSError: the disk is full, or the directory cannot be written.
        """

        def run() -> Snapshot:
            try:
                return self._manifest(version)
            except (SnapshotMissing, SnapshotRefused):
                pass
            self._directory.mkdir(parents=True, exist_ok=True)
            data = _pack(sorted(revisions))
            found = Snapshot(
                version=version, pool=hashlib.sha256(data).hexdigest(), lessons=len(revisions), embedder=embedder,
                dimension=dimension, created=created,
            )  # fmt: skip
            file = self._directory / _file(found.pool)
            if not file.exists():
                write_whole(file, data)
            manifest = msgspec.json.format(msgspec.json.encode(found)) + b"\n"
            write_whole(self._directory / _name(version), manifest)
            self._prune({version, *serving})
            return found

        return await anyio.to_thread.run_sync(run)

    async def read(self, version: int) -> tuple[Snapshot, list[tuple[str, int]]]:
        """The snapshot for `version` with its (id, revision).

        Raises:
            SnapshotMissing: there is none; says which there are.
            SnapshotRefused: its file is not what it should be.
        """

        def run() -> tuple[Snapshot, list[tuple[str, int]]]:
            found = self._manifest(version)
            file = self._directory / _file(found.pool)
            try:
                data = file.read_bytes()
            except OSError as error:
                raise SnapshotRefused(f"snapshot of version {version}: {error}") from error
            if hashlib.sha256(data).hexdigest() != found.pool:
                raise SnapshotRefused(f"snapshot of version {version}: {file} is not what its manifest says")
            return found, _unpack(data, version)

        return await anyio.to_thread.run_sync(run)

    def _manifest(self, version: int) -> Snapshot:
        try:
            found = msgspec.json.decode((self._directory / _name(version)).read_bytes(), type=Snapshot)
        except FileNotFoundError:
            there = ", ".join(map(str, self._versions())) or "none"
            raise SnapshotMissing(f"no snapshot of the lessons for version {version}; there are: {there}") from None
        except (OSError, msgspec.DecodeError) as error:
            raise SnapshotRefused(f"snapshot of version {version}: {error}") from error
        if found.format != _FORMAT or found.version != version or not found.pool.isalnum():
            raise SnapshotRefused(f"snapshot of version {version}: its manifest is not of this kind")
        return found

    def _versions(self) -> list[int]:
        return sorted(int(path.stem[1:]) for path in self._directory.glob("v*.json") if path.stem[1:].isdigit())

    def _prune(self, wanted: Collection[int]) -> None:
        versions = self._versions()
        for version in versions[: -self._keep]:
            if version not in wanted:
                (self._directory / _name(version)).unlink(missing_ok=True)
        used: set[str] = set()
        for version in self._versions():
            try:
                used.add(_file(self._manifest(version).pool))
            except SnapshotRefused:
                continue
        for path in (*self._directory.glob("pool-*"), *self._directory.glob(".*.part")):  # these of a kill
            if path.name not in used:
                path.unlink(missing_ok=True)


def _name(version: int) -> str:
    return f"v{version:06d}.json"


def _file(pool: str) -> str:
    return f"pool-{pool}.safetensors"


def _pack(revisions: Iterable[tuple[str, int]]) -> bytes:
    pairs = list(revisions)
    ids = [key.encode("utf-8", "surrogatepass") for key, _ in pairs]
    return save(
        {
            "ids": np.frombuffer(b"".join(ids), dtype=np.uint8),
            "ends": np.cumsum([len(key) for key in ids], dtype=np.int64),
            "revisions": np.array([revision for _, revision in pairs], dtype=np.int64),
        }
    )


def _unpack(data: bytes, version: int) -> list[tuple[str, int]]:
    try:
        parts = load(data)
        ids, ends = parts["ids"].tobytes(), parts["ends"].tolist()
        starts = [0, *ends[:-1]]
        keys = [ids[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=False)]
        return list(zip(keys, parts["revisions"].tolist(), strict=True))
    except (SafetensorError, KeyError, ValueError) as error:
        raise SnapshotRefused(f"snapshot of version {version}: {error}") from error
