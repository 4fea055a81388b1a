"""The navigator: finds the lessons that fit a goal, for the guided share of the rollouts.

    experience.lesson -> [index] -> `lessons(goal)`

An index over the lessons that are active or on trial, one for each tenant: tenants never see each other's. A lesson
fits if the goal speaks of its intent, or is like it in the embedder's eyes. For each intent there is one lesson at
most, the most useful one; they are given in the order in which the goal speaks of them, which is how the policy was
shown several at once. Candidates are given in a share of the cases only: enough to try them, too few to harm.
"""

import random
from collections.abc import Sequence
from typing import Protocol

import faiss
import msgspec
import numpy as np
import structlog

from actors.calls import position
from actors.messages import Experience
from actors.system.actor import Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import EXPERIENCE_LESSON
from adapters.embedders import Embedder
from adapters.errors import EmbedderUnavailable

_log = structlog.get_logger(__name__)


class NavigatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How lessons are found."""

    enabled: bool = True
    """Off: no lesson is ever given; they are still drawn and kept."""
    k: int = 3
    """Lessons at most for one goal."""
    min_similarity: float = 0.5
    """Inner product with the goal from which on a lesson fits that the goal does not name."""
    trial_share: float = 0.5
    """Share of the questions in which a candidate is given, if there is no active lesson for its intent."""
    neighbours: int = 32
    """Lessons that are looked at for one goal."""
    refresh_seconds: float = 30.0
    """Between two looks at the store: where several daemons share the stream, each hears a part of the news."""
    batch: int = 64
    """Records taken at a time."""


class LessonStore(Protocol):
    """What the navigator reads."""

    async def experiences(self, state: str | None = ...) -> list[Experience]:
        """The latest revision of each lesson."""
        ...


class _Pool:
    """The lessons of one tenant with their index."""

    def __init__(
        self, lessons: Sequence[Experience], vectors: "np.ndarray[tuple[int, int], np.dtype[np.float32]]"
    ) -> None:
        self.lessons = lessons
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors))  # pyright: ignore[reportCallIssue]

    def nearest(
        self, vector: "np.ndarray[tuple[int, int], np.dtype[np.float32]]", n: int
    ) -> list[tuple[float, Experience]]:
        """(inner product, lesson) of the `n` nearest to `vector`, `(1, d)`; the nearest first."""
        found = self._index.search(vector, min(n, len(self.lessons)))  # pyright: ignore[reportCallIssue]
        return [
            (float(near), self.lessons[int(at)]) for near, at in zip(found[0][0], found[1][0], strict=True) if at >= 0
        ]


class Navigator:
    """Actor: lessons in; answers questions for lessons.

    Args:
        settings: how many, how like.
        store: the lessons that there are at the start.
        embedder: of goals and lessons.
        rng: decides which questions try a candidate.
    """

    name = "navigator"
    inputs = (EXPERIENCE_LESSON,)

    def __init__(
        self, settings: NavigatorSettings, *, store: LessonStore, embedder: Embedder, rng: random.Random
    ) -> None:
        self._settings, self._store, self._embedder, self._rng = settings, store, embedder, rng
        self._lessons: dict[str, Experience] = {}
        self._vectors: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
        """By text of a lesson: revisions share it."""
        self._pools: dict[str, _Pool] = {}
        """By tenant; missing where lessons changed since."""
        self._changes = 0

    @property
    def batch(self) -> int:
        return self._settings.batch

    @property
    def tick_seconds(self) -> float | None:
        return self._settings.refresh_seconds

    async def start(self) -> None:
        """Read the lessons."""
        self._take(await self._store.experiences())

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Take in lessons; an older revision never replaces a newer one."""
        self._take([received.message for received in batch if isinstance(received.message, Experience)])
        return Result()

    async def tick(self) -> Result:
        """Read the lessons again."""
        self._take(await self._store.experiences())
        return Result()

    def _take(self, lessons: Sequence[Experience]) -> None:
        for lesson in lessons:
            known = self._lessons.get(lesson.id)
            if known is None or lesson.revision > known.revision:
                self._lessons[lesson.id] = lesson
                self._changes += 1
                self._pools.pop(lesson.tenant, None)

    async def lessons(self, goal: str, tenant: str = "default") -> Sequence[Experience]:
        """The lessons of `tenant` that fit `goal`, at most `k`, one an intent, in the order of the goal's words.

        Raises:
            DependencyUnavailable: the embedder is away.
        """
        settings = self._settings
        if not settings.enabled:
            return ()
        fitting = await self._fitting(goal, tenant)
        best: dict[str, tuple[float, Experience]] = {}
        tried = self._rng.random() < settings.trial_share
        for near, lesson in sorted(fitting, key=_rank, reverse=True):
            if lesson.state == "active" or tried:
                best.setdefault(lesson.when_to_use, (near, lesson))
        chosen = [lesson for _, lesson in list(best.values())[: settings.k]]
        return sorted(chosen, key=lambda lesson: _place(goal, lesson))

    async def _fitting(self, goal: str, tenant: str) -> list[tuple[float, Experience]]:
        """(likeness, lesson); a lesson whose intent the goal names is as like as can be."""
        pool = await self._pool(tenant)
        if pool is None:
            return []
        vector = await self._embed([goal])
        named = [(1.0, lesson) for lesson in pool.lessons if position(goal, lesson.when_to_use) is not None]
        ids = {lesson.id for _, lesson in named}
        near = pool.nearest(vector, self._settings.neighbours)
        return named + [
            (likeness, lesson)
            for likeness, lesson in near
            if likeness >= self._settings.min_similarity and lesson.id not in ids
        ]

    async def _pool(self, tenant: str) -> _Pool | None:
        pool = self._pools.get(tenant)
        if pool is not None:
            return pool
        lessons = [lesson for lesson in self._lessons.values() if lesson.tenant == tenant and lesson.state != "retired"]
        if not lessons:
            return None
        changes = self._changes
        missing = [text for text in {_text(lesson): None for lesson in lessons} if text not in self._vectors]
        if missing:
            self._vectors.update(zip(missing, await self._embed(missing), strict=True))
        pool = _Pool(lessons, np.stack([self._vectors[_text(lesson)] for lesson in lessons]))
        if changes != self._changes:
            return pool  # lessons came in while the embedder worked: good for this one question
        self._pools[tenant] = pool
        wanted = {_text(lesson) for lesson in self._lessons.values() if lesson.state != "retired"}
        self._vectors = {text: vector for text, vector in self._vectors.items() if text in wanted}
        return pool

    async def _embed(self, texts: Sequence[str]) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
        try:
            return np.asarray(await self._embedder.embed(texts), dtype=np.float32)
        except EmbedderUnavailable as error:
            raise DependencyUnavailable(f"embedder: {error}") from error


def utility(lesson: Experience) -> float:
    """How much guidance by the lesson adds to the success rate, -1 to 1, shrunk towards 0 while trials are few."""
    (guided, guided_won), (unguided, unguided_won) = lesson.guided, lesson.unguided
    return (guided_won + 1) / (guided + 2) - (unguided_won + 1) / (unguided + 2)


def _text(lesson: Experience) -> str:
    return f"{lesson.when_to_use} {lesson.content}"


def _rank(found: tuple[float, Experience]) -> tuple[bool, float, float, float]:
    """Active before candidates, then the most useful, the most alike, the latest."""
    likeness, lesson = found
    return lesson.state == "active", utility(lesson), likeness, lesson.updated


def _place(goal: str, lesson: Experience) -> int:
    place = position(goal, lesson.when_to_use)
    return len(goal) if place is None else place
