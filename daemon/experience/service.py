"""The experience pool as people and programs use it: look, search, add, revise, carry elsewhere.

    control API  ->  `ExperiencePool`  ->  store, navigator; changed lessons  ->  experience.lesson, the actors' memory

Lessons are written by the experiencer; what an operator changes is one more revision, with the reason, and a notice in
the audit trail.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import structlog

from actors.messages import (
    Attributed,
    Directive,
    Experience,
    ExperienceKind,
    ExperienceState,
    derived_id,
    new_id,
)
from actors.store import Store
from actors.system.errors import ActorSystemError
from daemon.errors import OrderRefused
from daemon.experience.transfer import lesson_id, read, require_valid, write

_log = structlog.get_logger(__name__)
MAX_K, MAX_LISTED = 100, 1_000
_MAX_TEXT, _MAX_REASON = 32_000, 1_000
_SOURCES = 100

Change = Literal["activate", "retire", "release"]
_CHANGES: Mapping[Change, tuple[frozenset[ExperienceState], ExperienceState]] = {
    "activate": (frozenset({"candidate", "retired"}), "active"),
    "retire": (frozenset({"candidate", "active", "quarantined"}), "retired"),
    "release": (frozenset({"quarantined"}), "candidate"),
}
"""From which states, to which."""


Search = Callable[
    [str, str, int, Sequence[ExperienceKind] | None, Sequence[ExperienceState] | None],
    Awaitable[Sequence[tuple[float, Experience]]],
]
"""At most so many lessons of a tenant with their scores, best first; `Navigator.search` is one."""
Redact = Callable[[str], tuple[str, dict[str, int]]]
"""Takes secrets and personal data out; `adapters.redaction.Redactor.text` does."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson of a list."""

    lesson: Experience
    score: float | None = None
    """In a search: how well it fits, more is better."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory that a lesson was drawn from."""

    id: str
    known: bool
    """False: the store no longer has it."""
    goal: str = ""
    outcome: float | None = None
    ended: float = 0.0


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """All there is of a lesson."""

    lesson: Experience
    revisions: list[Experience]
    """Newest first."""
    sources: list[Origin]
    """At most a hundred."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an import."""

    lessons: int
    added: int
    known: int
    """Were here already, and stay as they are."""
    forgotten: int
    """Left out: a source of theirs was forgotten here."""
    quarantined: int
    """Of the added."""
    dry_run: bool = False


class ExperiencePool:
    """What the control API asks."""

    def __init__(
        self,
        *,
        store: Store,
        search: Search,
        redact: Redact,
        send: Callable[[Sequence[Experience]], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            send: publishes lessons that changed, so that the navigators hear of them.
        """
        self._store, self._search, self._redact = store, search, redact
        self._send, self._clock = send, clock

    async def listed(
        self, *, tenant: str = "", state: str = "", kind: str = "", q: str = "", limit: int = 100
    ) -> list[Listed]:
        """Lessons, last changed first; `q` is looked for in their words."""
        words = q.casefold()
        found = [
            lesson
            for lesson in await self._store.experiences(state or None)
            if (not tenant or lesson.tenant == tenant)
            and (not kind or lesson.kind == kind)
            and (not words or words in f"{lesson.when_to_use}\n{lesson.content}".casefold())
        ]
        return [Listed(lesson=lesson) for lesson in found[: min(limit, MAX_LISTED)]]

    async def one(self, experience_id: str) -> Detail:
        """
        Raises:
            OrderRefused: 404.
        """
        revisions = await self._store.revisions_of(experience_id)
        if not revisions:
            raise unknown(experience_id)
        sources = [await self._origin(key) for key in revisions[0].sources[:_SOURCES]]
        return Detail(lesson=revisions[0], revisions=revisions, sources=sources)

    async def _origin(self, key: str) -> Origin:
        found = await self._store.trajectory(key)
        if found is None:
            return Origin(id=key, known=False)
        run = found.trajectory if isinstance(found, Attributed) else found
        return Origin(id=key, known=True, goal=run.goal, outcome=run.outcome, ended=run.ended)

    async def search(
        self,
        text: str,
        *,
        tenant: str,
        k: int,
        kinds: Sequence[ExperienceKind] | None,
        states: Sequence[ExperienceState] | None,
    ) -> list[Listed]:
        """The lessons that fit `text` best.

        Raises:
            OrderRefused: 422 the question.
        """
        if not text.strip() or len(text) > _MAX_TEXT:
            raise OrderRefused(422, f"text: what are you about to do? 1 to {_MAX_TEXT:,} characters")
        if not 1 <= k <= MAX_K:
            raise OrderRefused(422, f"k is {k}; 1 to {MAX_K}")
        found = await self._search(text, tenant, k, kinds, states)
        return [Listed(lesson=lesson, score=score) for score, lesson in found]

    async def add(self, lesson: Experience, reason: str, by: str) -> tuple[Experience, bool]:
        """Add a lesson of an operator's own, as a candidate; one that is there already is answered as it is.

        Args:
            lesson: its words, kind, tenant and detail; the rest follows.

        Raises:
            OrderRefused: 422 a field that is empty or too long.
        """
        require_valid(lesson.tenant, lesson.when_to_use, lesson.content, lesson.detail)
        lesson = self._redacted(lesson)
        reason = self._clean(reason, "reason", _MAX_REASON) or "added by hand"
        made = Experience(
            id=lesson.id, tenant=lesson.tenant, when_to_use=lesson.when_to_use, content=lesson.content,
            kind=lesson.kind, origin="operator", detail=lesson.detail, reason=reason, updated=self._clock(),
        )  # fmt: skip
        if await self._store.add_experiences([made]):
            return (await self._store.revisions_of(made.id))[0], False
        await self._told("add", reason, by, {"experience": made.id, "tenant": made.tenant})
        await self._changed([made])
        return made, True

    async def change(self, experience_id: str, change: Change, reason: str, by: str) -> Experience:
        """Activate, retire or release a lesson.

        Raises:
            OrderRefused: 404, 409 not from its state, 422 no reason.
        """
        reason = self._clean(reason, "reason", _MAX_REASON)
        if not reason:
            raise OrderRefused(422, "why? give a reason, it is kept with the lesson")
        before, after = _CHANGES[change]

        def revise(lesson: Experience) -> Experience:
            if lesson.state not in before:
                possible = [name for name, (states, _) in _CHANGES.items() if lesson.state in states]
                raise OrderRefused(409, f"the lesson is {lesson.state}; possible: {', '.join(possible)}")
            return msgspec.structs.replace(lesson, state=after, reason=reason)

        revised = await self._store.revise(experience_id, revise)
        if revised is None:
            raise unknown(experience_id)
        await self._told(change, reason, by, {"experience": revised.id, "state": after, "tenant": revised.tenant})
        await self._changed([revised])
        return revised

    async def exported(self, *, tenant: str = "", state: str = "", kind: str = "") -> str:
        """Lessons as JSONL (see `daemon.experience.transfer`)."""
        found = [
            lesson
            for lesson in await self._store.experiences(state or None)
            if (not tenant or lesson.tenant == tenant) and (not kind or lesson.kind == kind)
        ]
        return write(found, self._clock())

    async def imported(
        self, text: str, *, tenants: Mapping[str, str], quarantine: bool, dry_run: bool, by: str
    ) -> Imported:
        """Take lessons in, all or none.

        Raises:
            OrderRefused: names the line that is in the way.
        """
        lessons = read(text, tenants=tenants, quarantine=quarantine, now=self._clock())
        lessons = [self._redacted(lesson) for lesson in lessons]
        gone = await self._store.tombstoned(sorted({key for lesson in lessons for key in lesson.sources}))
        kept = [lesson for lesson in lessons if not gone.intersection(lesson.sources)]
        if dry_run:
            here = {lesson.id for lesson in await self._store.experiences()}
            there = here & {lesson.id for lesson in kept}
        else:
            there = await self._store.add_experiences(kept)
        added = [lesson for lesson in {lesson.id: lesson for lesson in kept}.values() if lesson.id not in there]
        if added and not dry_run:
            await self._told("import", f"{len(added)} lessons", by, {"lessons": str(len(added))})
            await self._changed(added)
        return Imported(
            lessons=len(lessons), added=len(added), known=len(there), forgotten=len(lessons) - len(kept),
            quarantined=sum(lesson.state == "quarantined" for lesson in added), dry_run=dry_run,
        )  # fmt: skip

    def _redacted(self, lesson: Experience) -> Experience:
        when, content = self._redact(lesson.when_to_use)[0], self._redact(lesson.content)[0]
        return msgspec.structs.replace(
            lesson, id=lesson_id(lesson.tenant, when, content), when_to_use=when, content=content,
            detail=self._scrubbed(lesson.detail),
        )  # fmt: skip

    def _scrubbed(self, value: Any) -> Any:
        """JSON-able `value` with its texts redacted: as one text its syntax could suffer."""
        match value:
            case str():
                return self._redact(value)[0]
            case dict():
                return {key: self._scrubbed(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case list():
                return [self._scrubbed(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value

    def _clean(self, text: str, name: str, most: int) -> str:
        if len(text) > most:
            raise OrderRefused(422, f"{name} has {len(text):,} characters, at most {most:,}")
        return self._redact(text.strip())[0]

    async def _told(self, what: str, reason: str, by: str, details: dict[str, str]) -> None:
        """Put on record in the audit trail what an operator did."""
        told = Directive(
            id=derived_id("directive", "experience", new_id()), kind="notice", reason=f"experience {what}: {reason}",
            origin="control", created=self._clock(), details={**details, **({"by": by} if by else {})},
        )  # fmt: skip
        await self._store.save([told])
        _log.info("experience_changed", what=what, **details)

    async def _changed(self, lessons: Sequence[Experience]) -> None:
        self._store.edits += 1
        try:
            await self._send(lessons)
        except ActorSystemError as error:
            # They are stored, and navigators look there from time to time.
            _log.warning("lessons_not_published", lessons=len(lessons), reason=str(error))


def unknown(experience_id: str) -> OrderRefused:
    """The refusal where there is no such lesson."""
    return OrderRefused(404, f"no lesson {experience_id}; `evolved experience list` shows those that there are")
