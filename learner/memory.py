"""`Memory`: one directory a version with what the learner needs to go on from it.

    <state>/learner/v000008/    cursor.json, batch.safetensors, optimizer.safetensors (or one a rank)
    <state>/learner/v000009/    cursor.json, batch.safetensors

The full state (fp32 masters, moments, a moving reference) is six times the bytes of bf16 weights, so it is written with
every `STATE_EVERY`th update alone. Beside each version lies the batch that made it, as the trainer took it: what lacks
a state of its own has that of its nearest ancestor with one, and the updates since, made again (`Recovery`).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.messages import FileDigest
from actors.messages.files import write_whole
from learner.batch import TrajectoryBatch
from learner.cursor import CHAIN, SCHEMA, Cursor
from learner.errors import CheckpointInvalid
from learner.versions import digest, digests, remove_directory, sweep, write_directory

CURSOR, BATCH = "cursor.json", "batch.safetensors"
STATE_EVERY = 8
"""Updates from one full state to the next. With bf16 weights an update writes 7 times their bytes at 1, 1.75 times at 8
and 1.4 times at 16; a restart makes up to one less than that many updates again."""


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """An update to be made again."""

    version: int
    """That it makes."""
    batch: Path
    seed: int


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How the optimizer of a version is found again."""

    version: int
    """Where that begins."""
    state: Path | None = None
    """Directory of the full state of that version; None if its optimizer starts afresh."""
    updates: tuple[Again, ...] = ()
    """What is made again from there, the oldest first."""
    broken: str = ""
    """Why this does not lead to the version that was asked for; empty if it does."""
    unsound: tuple[str, ...] = ()
    """States on the way there that were passed over, and why; harmless where updates lead past them."""
    kept: bool = True
    """False: nothing is damaged, the memory of so old a version is not kept."""

    @property
    def afresh(self) -> bool:
        """Whether nothing is known of the optimizer."""
        return self.state is None and not self.updates


class Memory:
    """The directory of these directories. Blocking."""

    def __init__(self, directory: Path) -> None:
        """
        Args:
            directory: created on first use.
        """
        self._directory = directory

    def path(self, version: int) -> Path:
        """Where that of `version` is, or would be."""
        return self._directory / f"v{version:06d}"

    def read(self, version: int) -> Cursor:
        """The cursor beside `version`; CheckpointInvalid if it is absent, or of another one."""
        directory = self.path(version)
        try:
            cursor = msgspec.json.decode((directory / CURSOR).read_bytes(), type=Cursor)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointInvalid(f"learner/{directory.name}: {error}") from error
        if cursor.version != version or cursor.schema != SCHEMA or not cursor.chain:
            raise CheckpointInvalid(f"learner/{directory.name}: a cursor of version {cursor.version}")
        return cursor

    def recovery(self, version: int) -> Recovery:
        """How to find the optimizer of `version` again; every file that this rests on is read and compared.

        Where a file is missing or altered, the nearest sound state before it is what there is, without updates.
        """
        updates: list[Again] = []
        unsound: list[str] = []
        broken, at = "", version

        def found(state: Path | None) -> Recovery:
            again = () if broken else tuple(reversed(updates))
            return Recovery(version=at, state=state, updates=again, broken=broken, unsound=tuple(unsound))

        for cursor in self._line(version):
            at, directory = cursor.version, self.path(cursor.version)
            if cursor.optimizer:
                problem = self._unsound(cursor)
                if not problem:
                    return found(directory)
                unsound.append(problem)
            if cursor.updates == 0:
                return found(None)
            made = cursor.made
            if made is None:
                broken = broken or next(reversed(unsound), f"learner/{directory.name} has no optimizer")
                break
            try:
                problem = "" if digest(directory / BATCH).sha256 == made.batch else "its digest differs"
            except OSError as error:
                problem = str(error.strerror)
            if problem:
                broken = broken or f"learner/{directory.name}/{BATCH}: {problem}"
            updates.append(Again(version=at, batch=directory / BATCH, seed=made.seed))
            at = made.parent
        else:
            broken = broken or f"learner/{self.path(at).name} is not there"
        kept = self.path(version).is_dir()
        return Recovery(version=version, broken=broken, unsound=tuple(unsound), kept=kept)

    def line(self, version: int) -> list[int]:
        """Versions whose directories `recovery` of `version` rests on if all are sound, the newest first."""
        versions: list[int] = []
        for cursor in self._line(version):
            versions.append(cursor.version)
            if cursor.optimizer:
                break
        return versions

    def recent(self, states: int) -> list[int]:
        """Versions from the `states`-newest full state on, ascending; all if there are fewer."""
        versions = self._numbers()
        full = [version for version in versions if any(self.path(version).glob("optimizer*.safetensors"))]
        return [version for version in versions if version >= full[-states]] if len(full) >= states else versions

    def since(self, version: int) -> int | None:
        """`Cursor.since` of `version`; None if its memory is not kept."""
        try:
            return self.read(version).since
        except CheckpointInvalid:
            return None

    def write(
        self,
        cursor: Cursor,
        *,
        save_state: Callable[[Path], Sequence[FileDigest]] | None,
        batch: TrajectoryBatch | None = None,
    ) -> Cursor:
        """Make the directory of `cursor.version`; returns the cursor as it was written. `batch` is what made the
        version, if `cursor.made` says how. After an OSError nothing has appeared."""
        target = self.path(cursor.version)
        remove_directory(target)  # debris of a kill between the two renames

        def content(aside: Path) -> Cursor:
            written = msgspec.structs.replace(cursor, optimizer="")
            if batch is not None and cursor.made is not None:
                batch.save(aside / BATCH)
                made = msgspec.structs.replace(cursor.made, batch=digest(aside / BATCH).sha256)
                written = msgspec.structs.replace(written, made=made)
            if save_state is not None:
                known = save_state(aside)
                written = msgspec.structs.replace(written, optimizer=_optimizer_digest(aside, known))
            (aside / CURSOR).write_bytes(msgspec.json.encode(written))
            return written

        return write_directory(target, content)

    def forget(self, orders: Collection[str]) -> int:
        """Remove the batches of `orders`, as far as they lie here; how many."""
        removed = 0
        for version in self._numbers():
            try:
                made = self.read(version).made
            except CheckpointInvalid:
                continue
            path = self.path(version) / BATCH
            if made is not None and made.order in orders and path.is_file():
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    def rewrite(self, cursor: Cursor) -> None:
        """Put `cursor` in the place of the one of its version; one rename, and the optimizer stays as it is."""
        write_whole(self.path(cursor.version) / CURSOR, msgspec.json.encode(cursor))

    def above(self, newest: int) -> list[str]:
        """Names of what no version was committed for."""
        return [self.path(version).name for version in self._numbers() if version > newest]

    def clear(self, names: Collection[str]) -> None:
        """Remove directories by name."""
        for name in names:
            remove_directory(self._directory / name)

    def keep(self, versions: Collection[int]) -> None:
        """Remove all but those of `versions`."""
        names = {self.path(version).name for version in versions}
        self.clear([path.name for path in self._directory.glob("v*") if path.name not in names])

    def sweep(self) -> None:
        """Remove what a killed process left half written or half deleted."""
        sweep(self._directory)

    def _numbers(self) -> list[int]:
        return sorted(int(path.name.removeprefix("v")) for path in self._directory.glob("v*"))

    def _line(self, version: int) -> Iterator[Cursor]:
        """The cursors of `version` and of what it was made from, as far as they are there."""
        for _ in range(CHAIN):
            try:
                cursor = self.read(version)
            except CheckpointInvalid:
                return
            yield cursor
            if cursor.made is None:
                return
            version = cursor.made.parent

    def _unsound(self, cursor: Cursor) -> str:
        """Why what lies beside `cursor` is not the optimizer that it names; empty if it is."""
        name = self.path(cursor.version).name
        try:
            same = _optimizer_digest(self.path(cursor.version)) == cursor.optimizer
        except OSError as error:
            return f"learner/{name}: {error}"
        return "" if same else f"learner/{name}: the optimizer's digest differs"


def _optimizer_digest(directory: Path, known: Sequence[FileDigest] = ()) -> str:
    """sha256 of the optimizer's file, or over the digests of its shards; OSError if there is none."""
    shards = digests(directory.glob("optimizer-*-of-*.safetensors"), known)
    if not shards:
        return digests([directory / "optimizer.safetensors"], known)[0].sha256
    return sha256("".join(f"{shard.name} {shard.sha256}\n" for shard in shards).encode()).hexdigest()
