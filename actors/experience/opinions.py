"""What a language model adds: lessons in free words.

One question at a time, and only when it is due. A question shows trajectories whose goals mean about the same
(`gathering`); where a tenant has several agent keys, those of one key alone: words that talked the model into something
are then known to be that key's, and such a lesson is quarantined until the trajectories of another key give a like one.
Like lessons are one (by the inner product of their embeddings): the one that is there stays, with the sources of both.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from actors.experience.drawing import Drawing
from actors.experience.gathering import gathered
from actors.experience.origins import Origins
from actors.experience.pool import LessonPool
from actors.experience.window import Window
from actors.messages import Experience, Trajectory, derived_id
from actors.ports.errors import ModelUnavailable
from actors.ports.models import Embedder, Extractor, Insight

K = TypeVar("K")
Vector = npt.NDArray[np.float32]
_log = structlog.get_logger(__name__)
_SUCCESS = 0.5
_MEMORY = 4096


_EVERY = 60.0
"""Seconds between two questions; what they may cost is the extractor's `tokens_per_hour`."""
_FRESH = 8
"""New trajectories of one kind of goal before it is asked about; twice as many of an agent, four times of a tenant,
where no kind has so many."""
_LIKENESS = 0.9
"""Inner product of two lessons' embeddings from which on they are one."""
_SHOWN = 4
"""Trajectories of a side that one question shows."""


class Opinions:
    """Asks the extractor, and tells the pool."""

    def __init__(
        self,
        *,
        extractor: Extractor,
        embedder: Embedder,
        pool: LessonPool,
        drawing: Drawing,
        window: Window,
        origins: Origins,
        clock: Callable[[], float],
        kind: Callable[[Trajectory], str],
    ) -> None:
        """
        Args:
            kind: which runs are alike: lessons are asked for of those.
        """
        self._extractor, self._embedder = extractor, embedder
        self._pool, self._drawing, self._window, self._origins = pool, drawing, window, origins
        self._clock, self._kind = clock, kind
        self._due = 0.0
        self._asked: OrderedDict[str, frozenset[str]] = OrderedDict()
        """Trajectories that were there when they, or more like them, were asked about."""
        self._turns: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        """Tenants and parties, the one that was asked about last at the end."""
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        """By text, of lessons that were compared."""
        self._away = False
        self.counts: Counter[str] = Counter()
        """asked, lessons, like_retired, unavailable."""

    async def ask(self) -> None:
        """One question, if it is time."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _EVERY
        try:
            await self._draw()
        except ModelUnavailable as error:
            self.counts["unavailable"] += 1
            if not self._away:
                _log.warning("extractor_away", reason=str(error))
            self._away = True
            return
        if self._away:
            _log.info("extractor_back")
        self._away = False

    async def _draw(self) -> None:
        """Ask for lessons of the goals with the most news, if there are some with enough.

        Parties take turns: whoever sends most always has the most news.
        """
        parties: dict[tuple[str, str], list[Trajectory]] = defaultdict(list)
        for run in self._window:
            if run.outcome is not None and run.steps:
                parties[run.tenant, self._origins.party(run)].append(run)
        turns = {party: turn for turn, party in enumerate(self._turns, 1)}
        for party in sorted(parties, key=lambda party: (turns.get(party, 0), -len(parties[party]))):
            runs = gathered(parties[party], self._asked, _FRESH, self._kind)
            if runs:
                break
        else:
            return
        worked = [run for run in runs if run.outcome is not None and run.outcome >= _SUCCESS]
        failed = [run for run in runs if run.outcome is not None and run.outcome < _SUCCESS]
        shown = worked[:_SHOWN], failed[:_SHOWN]
        self.counts["asked"] += 1
        lessons = await self._extractor.draw(*shown)
        for run in runs:
            _remember(self._asked, run.id, frozenset())
        _remember(self._turns, party, frozenset())
        for lesson in lessons:
            self.counts["lessons"] += 1
            await self._take(*party, lesson, [*shown[0], *shown[1]])

    async def _take(self, tenant: str, party: str, lesson: Insight, runs: Sequence[Trajectory]) -> None:
        sources = tuple(run.id for run in runs)
        known = await self._like(tenant, lesson)
        own = 0 if party else len({self._origins.of(run) for run in runs})
        parties = [party] if party else []
        if known is not None:
            if known.state == "retired" and not self._drawing.fresh(known):
                self.counts["like_retired"] += 1
                return
            parties = list(dict.fromkeys([*known.detail.get("parties", []), *parties]))
            own = max(own, known.detail.get("own", 0))
            detail = {**known.detail, "parties": parties, "own": own}
            independent = own + len(parties)
            self._pool.counts["merged"] += 1
            if known.state == "retired":
                state, reason = self._drawing.admitted(independent)
                known = msgspec.structs.replace(known, state=state, reason=reason)
            if detail != known.detail or not set(sources) <= set(known.sources):
                self._drawing.support(known, sources, independent, detail=detail)
            return
        if not self._drawing.room(tenant, sources):
            return
        state, reason = self._drawing.admitted(own + len(parties))
        self._pool.put(
            Experience(
                id=derived_id("insight", tenant, lesson.when_to_use, lesson.content), tenant=tenant,
                when_to_use=lesson.when_to_use, content=lesson.content, kind="insight", origin=self._extractor.name,
                sources=sources, independent=own + len(parties), detail={"parties": parties, "own": own}, state=state,
                reason=reason,
            )
        )  # fmt: skip

    async def _like(self, tenant: str, lesson: Insight) -> Experience | None:
        """The lesson in free words that says the same."""
        rivals = [one for one in self._pool if (one.tenant, one.kind) == (tenant, "insight") and one.content]
        return await self._nearest(lesson, rivals)

    async def merge(self, news: Sequence[Experience]) -> None:
        """Put lessons in free words that others wrote together with those that say the same: the better supported one
        stays."""
        for lesson in news:
            if lesson.kind != "insight" or lesson.state == "retired":
                continue
            twins = [one for one in self._pool.live(lesson.tenant) if one.kind == "insight" and one.id != lesson.id]
            twin = await self._nearest(lesson, twins)
            if twin is None:
                continue
            kept, other = sorted((lesson, twin), key=_support, reverse=True)
            self._pool.counts["merged"] += 1
            self._drawing.support(kept, other.sources, kept.independent, detail=kept.detail)
            self._pool.retire(other, f"says the same as {kept.id}")

    async def _nearest(self, lesson: Insight | Experience, others: Sequence[Experience]) -> Experience | None:
        """The one of `others` that says the same; texts that were embedded before are not embedded again."""
        if not others:
            return None
        texts = [f"{one.when_to_use} {one.content}" for one in (lesson, *others)]
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            found = np.asarray(await self._embedder.embed(new), dtype=np.float32)
            self._vectors.update(zip(new, found, strict=True))
        vectors = np.stack([self._vectors[text] for text in texts])
        while len(self._vectors) > _MEMORY:
            self._vectors.popitem(last=False)
        likeness = vectors[1:] @ vectors[0]
        best = int(likeness.argmax())
        return others[best] if likeness[best] >= _LIKENESS else None


def _support(lesson: Experience) -> tuple[int, int, int, bool]:
    """How well a lesson is supported: who stands behind it, then how far it has come."""
    return lesson.independent, len(lesson.sources), lesson.guided[0], lesson.state == "active"


def _remember(memory: OrderedDict[K, frozenset[str]], key: K, value: frozenset[str]) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _MEMORY:
        memory.popitem(last=False)
