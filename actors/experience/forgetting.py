"""Forgetting by source: lessons lose the trajectories that somebody wants gone, and end where nothing else is left.

A lesson that stands on forgotten trajectories alone is retired as "forgotten" and loses its words, which may be theirs;
so does a tool memory, which quotes results. Any other loses the source and its counters: its trials begin anew. Earlier
revisions are erased in the same transaction. Actors read the store again and follow.
"""

from collections.abc import Callable, Collection

import msgspec

from actors.messages import Experience
from actors.store import Store

REASON = "forgotten"
"""`Experience.reason` of what was forgotten."""
_QUOTING = ("tool",)
"""Kinds whose words quote single sources."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What forgetting changed, by lesson id."""

    retired: tuple[str, ...] = ()
    """Nothing else stood behind these."""
    trimmed: tuple[str, ...] = ()
    """These lost sources and counters."""

    @property
    def changed(self) -> tuple[str, ...]:
        """All of them."""
        return self.retired + self.trimmed


async def forget(store: Store, trajectory_ids: Collection[str], clock: Callable[[], float]) -> Forgotten:
    """Take `trajectory_ids` away from every lesson. Doing it twice changes nothing more.

    Raises:
        StoreUnavailable: nothing was changed.
    """
    gone = frozenset(trajectory_ids)
    if not gone:
        return Forgotten()
    retired: list[Experience] = []
    trimmed: list[Experience] = []
    for lesson in await store.experiences():
        if gone.isdisjoint(lesson.sources):
            continue
        left = tuple(source for source in lesson.sources if source not in gone)
        after = msgspec.structs.replace(
            lesson,
            sources=left,
            asked=(),
            independent=min(lesson.independent, len(left)),
            guided=(0, 0),
            unguided=(0, 0),
            revision=lesson.revision + 1,
            updated=clock(),
        )
        if left and lesson.kind not in _QUOTING:
            trimmed.append(after)
        else:
            ended = msgspec.structs.replace(after, sources=(), independent=0, state="retired", reason=REASON)
            retired.append(msgspec.structs.replace(ended, when_to_use="", content="", detail={}))
    await store.replace_experiences([*retired, *trimmed])
    return Forgotten(
        retired=tuple(lesson.id for lesson in retired), trimmed=tuple(lesson.id for lesson in trimmed)
    )  # fmt: skip
