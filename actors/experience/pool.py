"""The lessons of all tenants, as far as they are held in memory: what changed, what is too many, what is the same.

A lesson is a revision of a record; here is the newest of each. Every change is noted with what was published before, so
that one revision says what a batch came to. For a goal's word there is one active practice at most. A tenant has room
for so many lessons: retired ones leave memory first (the store keeps them), then the quarantined, the candidates and
the active ones go, of each those that could be of least use.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import structlog

from actors.experience.lesson_ab_test import utility_bound
from actors.experience.lessons import read_practice, rivals
from actors.messages import Experience

_log = structlog.get_logger(__name__)
PRACTICES = frozenset({"rename", "precondition", "practice"})
"""Kinds that say how a goal is carried out, in the form that `lessons` reads."""
EVICTED = "evicted: the tenant's pool is full"
_TELLING = ("state", "kind", "reason", "content", "when_to_use", "sources", "detail")
"""Fields whose change is worth a revision."""


class LessonPool:
    """The newest revision of each lesson.

    Args:
        max_lessons: of one tenant, retired ones included.
    """

    def __init__(self, max_lessons: int) -> None:
        self.max_lessons = max_lessons
        self._lessons: dict[str, Experience] = {}
        self._changed: dict[str, Experience | None] = {}
        """By lesson: its last published revision, None if it has none."""
        self._base: dict[str, int] = {}
        """By tenant: the first revision of a lesson that is not in memory; above whatever left memory had."""
        self.counts: Counter[str] = Counter()
        """evicted, dropped_retired (they left memory), merged, refused_party, internalised, unlearnt, forgotten."""

    def __iter__(self) -> Iterator[Experience]:
        return iter(list(self._lessons.values()))

    def load(self, lessons: Iterable[Experience]) -> None:
        """Begin with what the store has."""
        self._lessons = {lesson.id: lesson for lesson in lessons}
        self._changed.clear()
        self._base.clear()
        self._trim()

    def get(self, id_: str) -> Experience | None:
        """The lesson as it is now."""
        return self._lessons.get(id_)

    def live(self, tenant: str) -> list[Experience]:
        """Lessons of `tenant` that are not retired."""
        return [lesson for lesson in self if lesson.tenant == tenant and lesson.state != "retired"]

    def absorb(self, lessons: Iterable[Experience]) -> list[Experience]:
        """Take over revisions that others wrote (an operator, an import, forgetting); returns those that were news."""
        news: list[Experience] = []
        for lesson in lessons:
            known = self._lessons.get(lesson.id)
            if known is None and lesson.state == "retired":
                continue  # it left memory
            # Where somebody else wrote the same revision first, ours was never written.
            if known is None or lesson.revision > known.revision or self._lost(known, lesson):
                self._lessons[lesson.id] = lesson
                self._changed.pop(lesson.id, None)
                self.counts["forgotten"] += lesson.reason == "forgotten"
                news.append(lesson)
        self._trim()
        return news

    def _lost(self, known: Experience, stored: Experience) -> bool:
        return stored.revision == known.revision and stored != known and known.id not in self._changed

    def put(self, lesson: Experience) -> None:
        """Add or change a lesson; an active practice takes the place of the others for its word. One in free text takes
        nobody's: whether two sentences contradict each other nobody here can read, and their trials tell them apart."""
        self._changed.setdefault(lesson.id, self._lessons.get(lesson.id))
        self._lessons[lesson.id] = lesson
        if lesson.state != "active" or lesson.kind not in PRACTICES or read_practice(lesson) is None:
            return
        for other in self.live(lesson.tenant):
            if other.id != lesson.id and other.kind in PRACTICES and rivals(lesson, other):
                self.retire(other, "another lesson took its place")

    def retire(self, lesson: Experience, reason: str) -> None:
        """Take `lesson` out of use."""
        self.put(msgspec.structs.replace(lesson, state="retired", reason=reason))

    def retire_about(self, gone: frozenset[str], tenant: str) -> None:
        """Retire what speaks of tools that are `gone`; what was learnt about them will not be needed again either."""
        for lesson in self:
            if lesson.tenant != tenant or not tools_of(lesson) & gone:
                continue
            if lesson.state != "retired" or lesson.reason == "internalised":
                self.retire(lesson, "its tool is gone")

    def revised(
        self, now: float, asked: Callable[[Experience], tuple[str, ...]] = lambda lesson: lesson.asked
    ) -> list[Experience]:
        """One revision for each lesson that changed since, however often it did on the way.

        Args:
            asked: in what words people ask for what a lesson is about.
        """
        self._trim()
        revised: list[Experience] = []
        for id_, before in self._changed.items():
            lesson = self._lessons[id_]
            if before is not None and all(getattr(lesson, name) == getattr(before, name) for name in _TELLING):
                continue
            moved = before is None or (lesson.state, lesson.kind) != (before.state, before.kind)
            revision = self._base.get(lesson.tenant, 0) if before is None else before.revision + 1
            # Trials are counted from the last change of state: more sources do not take them away.
            updated = now if moved else lesson.updated
            lesson = msgspec.structs.replace(lesson, revision=revision, updated=updated, asked=asked(lesson))
            self._lessons[id_] = lesson
            revised.append(lesson)
            _log.info(
                "lesson_revised", lesson=id_, state=lesson.state, kind=lesson.kind, revision=lesson.revision,
                reason=lesson.reason,
            )  # fmt: skip
        self._changed.clear()
        return revised

    def figures(self) -> Mapping[tuple[str, str, str], int]:
        """How many there are, by tenant, kind and state."""
        return Counter((lesson.tenant, lesson.kind, lesson.state) for lesson in self)

    def _trim(self) -> None:
        for tenant, held in Counter(lesson.tenant for lesson in self).items():
            if held > self.max_lessons:
                self._make_room(tenant, held - self.max_lessons)

    def _make_room(self, tenant: str, excess: int) -> None:
        mine = [lesson for lesson in self if lesson.tenant == tenant]
        # What is about to be published stays until it is.
        retired = sorted(
            (lesson for lesson in mine if lesson.state == "retired" and lesson.id not in self._changed),
            key=lambda lesson: lesson.updated,
        )
        for lesson in retired[:excess]:
            del self._lessons[lesson.id]
            self._base[tenant] = max(self._base.get(tenant, 0), lesson.revision + 1)
            self.counts["dropped_retired"] += 1
        leaving = sum(lesson.state == "retired" and lesson.id in self._changed for lesson in mine)
        # The untried may be the best of all; but whoever floods the pool with them must not drive out what is proven.
        rank = {"quarantined": 0, "candidate": 1, "active": 2}
        live = sorted(
            (lesson for lesson in mine if lesson.state != "retired"),
            key=lambda lesson: (rank[lesson.state], utility_bound(lesson), lesson.updated),
        )
        for lesson in live[: max(0, excess - len(retired) - leaving)]:
            self.retire(lesson, EVICTED)
            self.counts["evicted"] += 1


def tools_of(lesson: Experience) -> frozenset[str]:
    """Names of the tools that must exist for `lesson` to be of use."""
    if lesson.kind == "skill":
        return frozenset(str(call.get("tool")) for call in lesson.detail.get("calls", ()))
    if lesson.kind == "tool":
        return frozenset({lesson.when_to_use})
    practice = read_practice(lesson)
    return practice.tools if practice is not None else frozenset()
