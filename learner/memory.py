"""`Memory`: one directory a version with what the learner needs to go on from it, the cursor and the optimizer.

<state>/learner/v000007/    optimizer.safetensors (or one a rank), cursor.json
"""

from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path

import msgspec
import structlog

from actors.messages.files import write_whole
from learner.cursor import SCHEMA, Cursor
from learner.errors import CheckpointInvalid
from learner.versions import debris, digest, remove_directory, sweep, write_directory

_log = structlog.get_logger(__name__)
CURSOR = "cursor.json"


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
        """The cursor beside `version`.

        Raises:
            CheckpointInvalid: absent, or of another version.
        """
        directory = self.path(version)
        try:
            cursor = msgspec.json.decode((directory / CURSOR).read_bytes(), type=Cursor)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointInvalid(f"learner/{directory.name}: {error}") from error
        if cursor.version != version or cursor.schema != SCHEMA or not cursor.chain:
            raise CheckpointInvalid(f"learner/{directory.name}: a cursor of version {cursor.version}")
        return cursor

    def check(self, cursor: Cursor) -> None:
        """
        Raises:
            CheckpointInvalid: what lies beside `cursor` is not the optimizer that it names.
        """
        directory = self.path(cursor.version)
        try:
            if cursor.optimizer and _optimizer_digest(directory) != cursor.optimizer:
                raise CheckpointInvalid(f"learner/{directory.name}: the optimizer's digest differs")
        except OSError as error:
            raise CheckpointInvalid(f"learner/{directory.name}: {error}") from error

    def moments(self, version: int) -> Path | None:
        """Directory of the optimizer that goes with `version`; None if it had none, or it is not kept or not sound."""
        directory = self.path(version)
        if not (directory / CURSOR).is_file():
            return None
        try:
            kept = self.read(version)
            self.check(kept)
        except CheckpointInvalid as error:
            _log.warning("moments_unusable", version=version, reason=str(error))
            return None
        return directory if kept.optimizer else None

    def write(self, cursor: Cursor, save_state: Callable[[Path], None] | None) -> Cursor:
        """Make the directory of `cursor.version`; returns the cursor as it was written.

        Args:
            save_state: writes optimizer.safetensors, or a file a rank; None for no optimizer.

        Raises:
            OSError: disk full; nothing has appeared.
        """
        target = self.path(cursor.version)
        remove_directory(target)  # debris of a kill between the two renames

        def content(aside: Path) -> Cursor:
            written = msgspec.structs.replace(cursor, optimizer="")
            if save_state is not None:
                save_state(aside)
                written = msgspec.structs.replace(cursor, optimizer=_optimizer_digest(aside))
            (aside / CURSOR).write_bytes(msgspec.json.encode(written))
            return written

        return write_directory(target, content)

    def rewrite(self, cursor: Cursor) -> None:
        """Put `cursor` in the place of the one of its version; one rename, and the optimizer stays as it is.

        Raises:
            OSError: the disk fails.
        """
        write_whole(self.path(cursor.version) / CURSOR, msgspec.json.encode(cursor), sync="directory")

    def above(self, newest: int) -> list[str]:
        """Names of what no version was committed for."""
        return sorted(path.name for path in self._directory.glob("v*") if int(path.name.removeprefix("v")) > newest)

    def clear(self, names: Collection[str]) -> None:
        """Remove directories by name."""
        for name in names:
            remove_directory(self._directory / name)

    def keep(self, versions: Collection[int]) -> None:
        """Remove all but those of `versions`."""
        names = {self.path(version).name for version in versions}
        self.clear([path.name for path in self._directory.glob("v*") if path.name not in names])

    def debris(self) -> list[str]:
        """What a killed process left half written or half deleted, by name."""
        return debris(self._directory)

    def sweep(self) -> None:
        """Remove what `debris` finds."""
        sweep(self._directory)


def _optimizer_digest(directory: Path) -> str:
    """sha256 of the optimizer's file, or over the digests of its shards.

    Raises:
        OSError: there is none.
    """
    shards = sorted(directory.glob("optimizer-*-of-*.safetensors"))
    if not shards:
        return digest(directory / "optimizer.safetensors").sha256
    return sha256("".join(f"{shard.name} {digest(shard).sha256}\n" for shard in shards).encode()).hexdigest()
