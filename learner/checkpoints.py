"""The learner's own memory: optimizer and cursor, paired with the version they belong to.

    <state>/learner/v000007/    cursor, batch, and with every eighth the optimizer (`memory.py`)
    <state>/versions/v000007/   the weights (`versions.py`)

The learner's directory of a version is renamed into place before the version's own, and that second rename is the
commit: a version that exists has a cursor that names the orders in it, and what its optimizer is found again from. What
lies above the newest version is debris of a kill and is removed. An order that trained nothing makes no version; it
goes into the newest one's cursor. So does going back: the head, which the next update starts from, is the last of that
cursor's chain and need not be the newest version. One rename is the commit of that, too.
"""

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from actors.messages import Answer, Candidate, FileDigest, derived_id
from actors.messages.signing import PublicKeys, SigningKey
from learner.batch import TrajectoryBatch
from learner.cursor import CHAIN, Cursor, Made, Reply, cut
from learner.errors import CheckpointInvalid, StateEmpty
from learner.memory import STATE_EVERY, Memory, Recovery
from learner.versions import Versions, weight_files

_log = structlog.get_logger(__name__)


class Checkpoints:
    """Versions and the learner's memory under one state directory. Blocking."""

    def __init__(
        self,
        state: Path,
        *,
        key: SigningKey | None = None,
        trusted: PublicKeys | None = None,
        keep: int = 8,
        state_every: int = STATE_EVERY,
    ) -> None:
        """`state` is known to the other processes too. `key` signs manifests and `trusted` checks them, None neither; a
        full state comes with every `state_every`th update."""
        self.versions = Versions(state / "versions", key=key, trusted=trusted)
        self._memory = Memory(state / "learner")
        self._keep, self._state_every = keep, state_every
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
    def head(self) -> Path:
        """Directory of the version that the next update starts from."""
        return self.versions.path(self.cursor.head)

    def open(self, warm_start: Path | None, now: float) -> Cursor:
        """Find where the learner stands and what goes with it; make version 0 of `warm_start` if there is nothing.

        A newest version that fails its checks is left where it is, and the one before it counts; its number is not used
        again. A head that fails them is left for the nearest sound version that it came of. StateEmpty: no version and
        no warm start; CheckpointInvalid: none that can be trusted.
        """
        self.versions.sweep()
        self._memory.sweep()
        if not self.versions.numbers():
            if warm_start is None:
                raise StateEmpty(f"no version in {self.versions.directory} and no warm start to begin from")
            self.initialise(warm_start, now)
        cursor, damaged = self._stand(verify=True)
        for version, reason in damaged.items():
            _log.error("version_unusable", version=version, reason=reason)
        if cursor is None:
            raise CheckpointInvalid(
                f"no version can be used: {'; '.join(damaged.values())}; where that names no remedy, put "
                f"{self.versions.directory.parent} back from a backup"
            )
        self._memory.clear(self._memory.above(cursor.version))
        self._cursor = cursor
        return cursor

    def look(self) -> tuple[Cursor | None, list[int]]:
        """Where a learner that opened this state would stand, by manifests alone, and the versions on disk.

        Nothing is changed, and one may be running on it.
        """
        return self._stand(verify=False)[0], self.versions.numbers()

    def initialise(self, warm_start: Path, now: float) -> None:
        """Version 0 out of the Hugging Face checkpoint in `warm_start`; CheckpointInvalid if it has no safetensors
        weights."""
        weights = weight_files(warm_start)
        index = warm_start / "model.safetensors.index.json"

        def copy(directory: Path) -> Sequence[FileDigest]:
            for path in (*weights, *([index] if len(weights) > 1 else [])):
                shutil.copyfile(path, directory / path.name)
            return ()

        self._memory.write(Cursor(version=0, chain=(0,)), save_state=None)
        self.versions.write(0, -1, copy, rest=warm_start, batch_ids=(), metrics={}, created=now)

    def commit(
        self,
        record: str,
        *,
        save: Callable[[Path], Sequence[FileDigest]],
        save_state: Callable[[Path], Sequence[FileDigest]],
        metrics: dict[str, float],
        now: float,
        no_gradient: dict[str, str] | None = None,
        batch: TrajectoryBatch | None = None,
        seed: int = 0,
    ) -> Candidate:
        """Write the next version, a child of the head, with `record` done in it; returns its announcement.

        `save` and `save_state` are the trainer's; a version that is found again from the state before it needs no
        state. `batch` and `seed` are what the trainer was given; without a batch, because the head's optimizer cannot
        be found again, only a full state will do. After an OSError nothing has changed.
        """
        before, version = self.cursor, self.highest + 1
        since = None if batch is None else self._memory.since(before.head)
        full = since is None or since + 1 >= self._state_every
        cursor = msgspec.structs.replace(
            before.with_done(record, version, None),
            version=version,
            chain=(*before.chain, version)[-CHAIN:],
            updates=before.updates + 1,
            made=None if since is None else Made(order=record, parent=before.head, seed=seed, batch=""),
            since=0 if since is None or full else since + 1,
        )
        cursor = self._memory.write(cursor, save_state=save_state if full else None, batch=batch)
        self.versions.write(
            version, before.head, save, rest=self.head, batch_ids=(record,), metrics=metrics, created=now,
            no_gradient=no_gradient,
        )  # fmt: skip
        self._cursor = cursor
        # The parent stays as well: after going back it may be far below the newest, and a child that fares badly goes
        # back to it.
        for old in self.versions.prune(self._keep, spared=cursor.chain[-2:]):
            _log.info("version_deleted", version=old)
        self._clear_memory()
        return self.versions.candidate(version)

    def done(self, record: str, reply: Reply | None = None) -> None:
        """Note that `record` is done without a new version, and what was answered; after an OSError it is not noted."""
        before = self.cursor
        noted = before.with_done(record, before.head, reply)
        self._rewrite(noted)

    def go_back(self, record: str, target: int, reply: Reply) -> None:
        """Let the next update start from `target`, a version that was found sound, with `record` done; what is above it
        stays on disk, unused."""
        before = self.cursor
        chain = cut(before.chain, target) if target in before.chain else self.versions.line(target, CHAIN)
        noted = before.with_done(record, target, reply)
        self._rewrite(msgspec.structs.replace(noted, chain=chain))

    def recovery(self, version: int) -> Recovery:
        """How the optimizer of `version` is found again; see `Memory.recovery`."""
        return self._memory.recovery(version)

    def said(self) -> float:
        """When the last word was said that is remembered, unix seconds; 0 for none."""
        times = [reply.created for reply in self.cursor.replies.values() if reply.created is not None]
        with contextlib.suppress(CheckpointInvalid):
            times.append(self.versions.read(self.cursor.version).created)
        return max(times, default=0.0)

    def answer(self, record: str, *, otherwise: Answer = "skipped") -> Candidate:
        """What is said of `record`, which is done; the same each time, for as long as it is remembered, then
        `otherwise`."""
        cursor = self.cursor
        at = cursor.finished(record)
        try:
            candidate = self.versions.candidate(cursor.head if at is None else at)
        except CheckpointInvalid:  # deleted since, so long ago was it
            candidate = self.versions.candidate(cursor.head)
        if record in candidate.batch_ids:
            return candidate
        reply = cursor.replies.get(record) or Reply(answer=otherwise)
        return msgspec.structs.replace(
            candidate,
            id=derived_id("candidate", candidate.version, record),
            batch_ids=() if reply.answer == "went_back" else (record,),
            metrics=reply.metrics,
            created=candidate.created if reply.created is None else reply.created,
            answer=reply.answer,
            no_gradient=reply.no_gradient,
        )

    def _stand(self, *, verify: bool) -> tuple[Cursor | None, dict[int, str]]:
        """Where to go on from, and what is damaged above it, the newest first."""
        versions, damaged = self.versions.numbers(), dict[int, str]()
        for version in reversed(versions):
            try:
                cursor = self._memory.read(version)
                if cursor.head == version:
                    self.versions.read(version, verify=verify)
                    return cursor, damaged
            except CheckpointInvalid as error:
                damaged[version] = str(error)
                continue
            # The learner went back: this version's own weights are not needed, those of its head are.
            for head in reversed(cursor.chain):
                try:
                    self.versions.read(head, verify=verify)
                except CheckpointInvalid as error:
                    if head in versions or head == cursor.head:
                        damaged[head] = str(error)
                    continue
                return msgspec.structs.replace(cursor, chain=cut(cursor.chain, head)), damaged
        return None, damaged

    def _rewrite(self, cursor: Cursor) -> None:
        self._memory.rewrite(cursor)
        self._cursor = cursor

    def _clear_memory(self) -> None:
        """Keep what the newest two versions are found again from, in case the newest is damaged, and what may be gone
        back to.

        That is the head, whatever serves, and all since the second newest full state. A list of pinned versions that
        cannot be read protects everything.
        """
        pins = self.versions.pins()
        if pins is None:
            return
        wanted = {*self.versions.numbers()[-2:], self.cursor.version, self.cursor.head} | pins.serving
        lines = {needed for version in wanted for needed in self._memory.line(version)}
        self._memory.keep(wanted | lines | set(self._memory.recent(2)))
