"""`check`: where a learner would go on from, and whether everything there is as it was written. Needs no torch."""

from pathlib import Path
from typing import Any

import msgspec

from actors.messages.signing import PublicKeys
from learner.checkpoints import Checkpoints, Standing
from learner.cursor import Cursor
from learner.errors import CheckpointInvalid, StateEmpty
from learner.settings import LearnerSettings
from learner.versions import tensor_shapes, weight_files

SHOWN = 8
"""Orders that are named, the newest first."""


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """What `check` found."""

    state: str
    standing: Standing
    warm_start: str = ""
    """Where version 0 would come from, if there is no version yet."""
    damage: str = ""
    """What is broken and what to do; empty if the learner may run."""

    def report(self) -> dict[str, Any]:
        """For machines."""
        standing, cursor = self.standing, self.standing.cursor
        orders = [] if cursor is None else [{"id": order, "version": version} for order, version in cursor.done]
        return {
            "state": self.state,
            "damaged": bool(self.damage),
            "remedy": self.damage,
            "from": "nothing"
            if cursor is None and not self.warm_start
            else "warm start"
            if cursor is None
            else "version",
            "warm_start": self.warm_start,
            "version": None if cursor is None else cursor.head,
            "chain": [] if cursor is None else list(cursor.chain),
            "updates": 0 if cursor is None else cursor.updates,
            "optimizer": standing.moments,
            "replayed": 0 if standing.recovery is None else len(standing.recovery.updates),
            "orders": orders,
            "versions": list(standing.versions),
            "damaged_versions": {str(version): reason for version, reason in standing.damaged.items()},
            "debris": list(standing.debris),
        }

    def words(self) -> list[str]:
        """For people."""
        standing, cursor = self.standing, self.standing.cursor
        lines = [f"state {self.state}"]
        if cursor is not None:
            lines += _about(cursor, standing)
        elif self.warm_start:
            lines.append(f"no version yet: version 0 will be made of {self.warm_start}")
        lines += [f"version {version} is damaged: {reason}" for version, reason in sorted(standing.damaged.items())]
        if standing.debris:
            lines.append(f"half written when it was killed, removed at the start: {', '.join(standing.debris)}")
        return lines


def check(state: Path, settings: LearnerSettings, *, trusted: PublicKeys | None = None) -> Resumption:
    """Read everything that a start would need, digests and all; nothing is changed.

    Args:
        state: directory that the processes share.
        settings: for the warm start.
        trusted: checks the versions' signatures; None leaves them unchecked.

    Raises:
        StateEmpty: no version and no warm start.
        CheckpointInvalid: there is only a warm start, and it has no weights.
        OSError: the directory cannot be read.
    """
    standing = Checkpoints(state, trusted=trusted).look()
    if not standing.versions:
        if not settings.warm_start:
            raise StateEmpty(
                f"no version in {state / 'versions'} and no warm start: set learner.warm_start to a Hugging Face "
                "checkpoint, or state_dir to where the learner ran before"
            )
        for path in weight_files(Path(settings.warm_start)):
            tensor_shapes(path)
        if not (Path(settings.warm_start) / "config.json").is_file():
            raise CheckpointInvalid(f"{settings.warm_start} has no config.json")
        return Resumption(state=str(state), standing=standing, warm_start=settings.warm_start)
    return Resumption(state=str(state), standing=standing, damage=_damage(state, standing))


def _damage(state: Path, standing: Standing) -> str:
    cursor, recovery = standing.cursor, standing.recovery
    if not standing.damaged:
        if cursor is None or recovery is None or not recovery.kept:
            return ""
        return recovery.broken and (
            f"the optimizer of version {cursor.head} cannot be found again: {recovery.broken}; bring it back from a "
            f"backup, or run `evolved learner`, which goes on with {_optimizer(standing)}"
        )
    names = ", ".join(f"v{version:06d}" for version in sorted(standing.damaged))
    restore = f"bring {names} back from a backup, in {state / 'versions'} and {state / 'learner'} both"
    if standing.cursor is None:
        return f"no version is sound; {restore}, or begin anew with another state_dir"
    return (
        f"the state is damaged above version {standing.cursor.head}; {restore}, or run `evolved learner`, which "
        f"goes on from version {standing.cursor.head} without what was learned after it"
    )


def _about(cursor: Cursor, standing: Standing) -> list[str]:
    newest = [f"{order} (version {version})" for order, version in reversed(cursor.done[-SHOWN:])]
    more = f", and {len(cursor.done) - SHOWN} before" if len(cursor.done) > SHOWN else ""
    back = f" (it went back: version {cursor.version} is the newest)" if cursor.head != cursor.version else ""
    return [
        f"stands at version {cursor.head}{back}, after {cursor.updates} updates; the line that led there: "
        f"{' '.join(map(str, cursor.chain[-SHOWN:]))}",
        f"goes on with {_optimizer(standing)}",
        f"orders done: {', '.join(newest) or 'none'}{more}",
    ]


def _optimizer(standing: Standing) -> str:
    recovery = standing.recovery
    if recovery is None or recovery.afresh:
        return "an optimizer that starts afresh"
    if recovery.broken:
        return f"its weights and the optimizer of version {recovery.version}"
    again = f", after {len(recovery.updates)} updates since version {recovery.version} are made again"
    return f"its optimizer{again if recovery.updates else ''}"
