"""Forgetting by source, end to end: store, lessons, batch files, the actors' memory; and which weights saw it.

    span of the selector shut -> find -> note in the audit trail -> store -> batch files -> lessons -> actors -> disk

What is to be done is journalled before anything goes: a daemon that dies on the way goes on where it was (`resume`).
Weights are not unlearned; the versions that saw something are listed, and to go back behind them is an order of its own
(`evolved rollback`).
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.messages import Directive, derived_id, new_id
from actors.store import Store
from actors.store.erasing import Scope, Selector, Touched
from daemon.errors import OrderRefused
from learner.memory import Memory

_log = structlog.get_logger(__name__)
_JOURNAL = "forgetting/journal"
_NAMED = 100
"""Trajectories named in the audit trail; the others are counted."""
MAX_TRAJECTORIES = 10_000
"""Named in one request."""


ForgetLessons = Callable[[Store, Sequence[str], Callable[[], float]], Awaitable[Any]]
"""Takes trajectories out of the lessons that were drawn from them, again too; what became of these, as a Struct."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or would go."""

    dry_run: bool
    trajectories: int
    exchanges: int
    feedback: int
    batches: int
    """Orders that held some of it."""
    unanswered: tuple[str, ...] = ()
    """Orders that no version has come of yet: ask again with --dry-run by trajectory, whether one did."""
    versions: tuple[Touched, ...] = ()
    """Weight versions that saw some of it."""
    lessons: tuple[str, ...] = ()
    """Drawn from it, alone or among others."""
    experience: Any = None
    """What became of them."""
    files: int = 0
    """Batch files that were removed, the learner's own copies among them."""
    notice: str = ""
    """Id of its record in the audit trail; empty if there was nothing to forget."""
    folded: bool = True
    """False: the database's files still hold what was deleted, until they are overwritten by themselves."""


class _Journal(msgspec.Struct, frozen=True):
    selector: Selector
    scope: Scope
    lessons: tuple[str, ...]


class Forgetter:
    """Takes orders to forget from the control API, one at a time."""

    def __init__(
        self,
        *,
        store: Store,
        lessons: ForgetLessons,
        memory: Path,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            memory: directory of the learner's memory (`learner.memory`), which keeps the last batches for a restart.
        """
        self._store, self._lessons, self._clock = store, lessons, clock
        self._memory = Memory(memory)
        self._one = anyio.Lock()

    async def resume(self) -> bool:
        """Finish what an earlier life began; False if it had finished all.

        Raises:
            DependencyUnavailable: the store is away; call again.
        """
        async with self._one:
            return await self._resume()

    async def _resume(self) -> bool:
        data = await self._store.state_get(_JOURNAL)
        if not data:
            return False
        journal = msgspec.msgpack.decode(data, type=_Journal)
        await self._carry_out(journal)
        return True

    async def plan(self, selector: Selector) -> Forgotten:
        """What would go; nothing is touched.

        Raises:
            OrderRefused: a selector that selects nothing, or too much by name.
        """
        _check(selector)
        scope = await self._store.find(selector)
        return _told(scope, await self._drawn_from(scope), dry_run=True)

    async def forget(self, selector: Selector, reason: str, by: str = "") -> Forgotten:
        """Forget it. Done again, it finds nothing more.

        Raises:
            OrderRefused: a selector that selects nothing, or too much by name; no reason.
        """
        _check(selector)
        if not reason.strip():
            raise OrderRefused(422, "why? give a reason, it is kept in the audit trail")
        async with self._one:
            await self._resume()
            # First of all nothing more of it is written: what is found afterwards is all that there is.
            await self._store.tombstone(selector, Scope(trajectories=selector.trajectories))
            scope = await self._store.find(selector)
            lessons = await self._drawn_from(scope)
            told = _told(scope, lessons, dry_run=False)
            if scope.empty and not lessons:
                return told
            notice = _notice(selector, told, scope, reason, by, self._clock())
            journal = _Journal(selector, scope, lessons)
            await self._store.save([notice])
            await self._store.state_put(_JOURNAL, msgspec.msgpack.encode(journal))
            experience, files, folded = await self._carry_out(journal)
            return msgspec.structs.replace(told, experience=experience, files=files, folded=folded, notice=notice.id)

    async def _carry_out(self, journal: _Journal) -> tuple[Any, int, bool]:
        scope = journal.scope
        await self._store.tombstone(journal.selector, scope)
        await self._store.erase(scope)
        files = await anyio.to_thread.run_sync(_remove, scope.files)
        files += await anyio.to_thread.run_sync(self._memory.forget, scope.batches)
        experience = await self._lessons(self._store, scope.trajectories, self._clock)
        self._store.edits += 1
        await self._store.state_put(_JOURNAL, b"")
        folded = await self._store.fold()
        _log.info(
            "forgotten", trajectories=len(scope.trajectories), exchanges=len(scope.exchanges),
            feedback=len(scope.feedback), lessons=len(journal.lessons), files=files, folded=folded,
            versions=[touched.version for touched in scope.versions],
        )  # fmt: skip
        return experience, files, folded

    async def _drawn_from(self, scope: Scope) -> tuple[str, ...]:
        """Lessons with one of the trajectories among their sources."""
        runs = set(scope.trajectories)
        return tuple(lesson.id for lesson in await self._store.experiences() if runs.intersection(lesson.sources))


def _check(selector: Selector) -> None:
    if not (selector.trajectories or selector.tenant or selector.caller):
        raise OrderRefused(422, 'what? send {"trajectories": [...]}, {"tenant": "..."} or {"source": "KEY ID"}')
    if len(selector.trajectories) > MAX_TRAJECTORIES:
        raise OrderRefused(422, f"{len(selector.trajectories)} trajectories; at most {MAX_TRAJECTORIES} at a time")


def _told(scope: Scope, lessons: tuple[str, ...], *, dry_run: bool) -> Forgotten:
    return Forgotten(
        dry_run=dry_run,
        trajectories=len(scope.trajectories) - scope.gone,
        exchanges=len(scope.exchanges),
        feedback=len(scope.feedback),
        batches=len(scope.batches),
        unanswered=scope.unanswered,
        versions=scope.versions,
        lessons=lessons,
    )


def _notice(selector: Selector, told: Forgotten, scope: Scope, reason: str, by: str, now: float) -> Directive:
    """What the audit trail keeps: ids, names and counts, nothing that was said."""
    details = {
        "forget": ", ".join(
            word for word, given in (
                ("trajectories", selector.trajectories), ("tenant", selector.tenant), ("source", selector.caller),
            ) if given
        ),
        "tenant": selector.tenant,
        "source": selector.caller,
        "trajectories": str(told.trajectories),
        "trajectory_ids": ",".join(scope.trajectories[:_NAMED]),
        "exchanges": str(told.exchanges),
        "feedback": str(told.feedback),
        "lessons": str(len(told.lessons)),
        "versions": ",".join(str(touched.version) for touched in told.versions),
        "by": by,
    }  # fmt: skip
    return Directive(
        id=derived_id("directive", "forget", new_id()),
        kind="notice",
        reason=f"forget: {reason.strip()}",
        origin="control",
        created=now,
        details={name: value for name, value in details.items() if value},
    )


def _remove(paths: Sequence[str]) -> int:
    removed = 0
    for path in map(Path, paths):
        if path.is_file():
            path.unlink(missing_ok=True)
            removed += 1
    return removed
