"""What a language model adds: lessons in free words, and votes on those that no sandbox can try.

One question at a time, and only when it is due. A question shows trajectories whose goals mean about the same
(`gathering`); where a tenant has several agent keys, those of one key alone: words that talked the model into something
are then known to be that key's, and such a lesson is quarantined until the trajectories of another key give a like one.
Like lessons are one (by the inner product of their embeddings): the one that is there stays, with the sources of both.
Votes are asked for in the same way, and a party has one: no trajectories of one key alone make a lesson active or end
it. A lesson that has no independent trajectories behind it, a draft, is not voted on: whoever wrote it may have written
what the vote is about.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
import structlog

from actors.experience.drawing import Drawing
from actors.experience.gathering import gathered
from actors.experience.lesson_ab_test import about
from actors.experience.origins import INDEPENDENT, Origins
from actors.experience.pool import LessonPool
from actors.experience.window import Window
from actors.messages import Experience, Trajectory, derived_id
from actors.ports.embedders import Embedder
from actors.ports.errors import EmbedderUnavailable, ExtractorUnavailable
from actors.ports.extractors import Extractor, Insight

K = TypeVar("K")
_log = structlog.get_logger(__name__)
_SUCCESS = 0.5
_MEMORY = 4096


class OpinionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a language model is asked, and what its word is worth."""

    every_seconds: float = 60.0
    """Between two questions."""
    fresh: int = 8
    """New trajectories of one kind of goal before it is asked about; twice as many of an agent, four times of a tenant,
    where no kind has so many."""
    likeness: float = 0.9
    """Inner product of two lessons' embeddings from which on they are one."""
    votes: int = 2
    """Votes that decide on a lesson that no sandbox tries: so many for it, and more than against, make it active."""
    max_votes: int = 8
    """Votes at most; a lesson that they do not decide on stays a candidate."""
    runs: int = 4
    """Trajectories that one vote is asked about; they are no sources of the lesson."""


class Opinions:
    """Asks the extractor, and tells the pool."""

    def __init__(
        self,
        settings: OpinionSettings,
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
        self._settings, self._extractor, self._embedder = settings, extractor, embedder
        self._pool, self._drawing, self._window, self._origins = pool, drawing, window, origins
        self._clock, self._kind = clock, kind
        self._due = 0.0
        self._asked: OrderedDict[str, frozenset[str]] = OrderedDict()
        """Trajectories that were there when they, or more like them, were asked about."""
        self._turns: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        """Tenants and parties, the one that was asked about last at the end."""
        self._voted: OrderedDict[str, frozenset[str]] = OrderedDict()
        """By lesson: trajectories that it was voted on with."""
        self._away = False
        self._vote_next = False
        self.counts: Counter[str] = Counter()
        """asked, lessons, like_retired, voted_good, voted_bad, voted_abstain, unavailable."""

    async def ask(self) -> None:
        """One question, if it is time: for a vote and for lessons in turn."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + self._settings.every_seconds
        self._vote_next = not self._vote_next
        try:
            if not (self._vote_next and await self._vote()) and not await self._draw() and not self._vote_next:
                await self._vote()
        except (ExtractorUnavailable, EmbedderUnavailable) as error:
            self.counts["unavailable"] += 1
            if not self._away:
                _log.warning("extractor_away", reason=str(error))
            self._away = True
            return
        if self._away:
            _log.info("extractor_back")
        self._away = False

    async def _draw(self) -> bool:
        """Ask for lessons of the goals with the most news; False if there are none with enough.

        Parties take turns: whoever sends most always has the most news.
        """
        parties: dict[tuple[str, str], list[Trajectory]] = defaultdict(list)
        for run in self._window:
            if run.outcome is not None and run.steps:
                parties[run.tenant, self._origins.party(run)].append(run)
        turns = {party: turn for turn, party in enumerate(self._turns, 1)}
        for party in sorted(parties, key=lambda party: (turns.get(party, 0), -len(parties[party]))):
            runs = gathered(parties[party], self._asked, self._settings.fresh, self._kind)
            if runs:
                break
        else:
            return False
        worked = [run for run in runs if run.outcome is not None and run.outcome >= _SUCCESS]
        failed = [run for run in runs if run.outcome is not None and run.outcome < _SUCCESS]
        shown = worked[: self._settings.runs], failed[: self._settings.runs]
        self.counts["asked"] += 1
        lessons = await self._extractor.draw(*shown)
        for run in runs:
            _remember(self._asked, run.id, frozenset())
        _remember(self._turns, party, frozenset())
        for lesson in lessons:
            self.counts["lessons"] += 1
            await self._take(*party, lesson, [*shown[0], *shown[1]])
        return True

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
        if not rivals:
            return None
        told = f"{lesson.when_to_use} {lesson.content}"
        texts = [told, *(f"{one.when_to_use} {one.content}" for one in rivals)]
        vectors = np.asarray(await self._embedder.embed(texts), dtype=np.float32)
        likeness = vectors[1:] @ vectors[0]
        best = int(likeness.argmax())
        return rivals[best] if likeness[best] >= self._settings.likeness else None

    async def merge(self, news: Sequence[Experience]) -> None:
        """Put lessons in free words that others wrote together with those that say the same: the better supported one
        stays."""
        for lesson in news:
            if lesson.kind != "insight" or lesson.state == "retired":
                continue
            twins = [one for one in self._pool.live(lesson.tenant) if one.kind == "insight" and one.id != lesson.id]
            if not twins:
                continue
            texts = [f"{one.when_to_use} {one.content}" for one in (lesson, *twins)]
            vectors = np.asarray(await self._embedder.embed(texts), dtype=np.float32)
            likeness = vectors[1:] @ vectors[0]
            best = int(likeness.argmax())
            if likeness[best] < self._settings.likeness:
                continue
            kept, other = sorted((lesson, twins[best]), key=_support, reverse=True)
            self._pool.counts["merged"] += 1
            self._drawing.support(kept, other.sources, kept.independent, detail=kept.detail)
            self._pool.retire(other, f"says the same as {kept.id}")

    async def _vote(self) -> bool:
        """Ask about a candidate that nothing else tries; False if there is none."""
        waiting = [
            lesson
            for lesson in self._pool
            if lesson.state == "candidate"
            and lesson.kind == "insight"
            and lesson.independent >= INDEPENDENT
            and not self._drawing.tried(lesson.tenant)
            and sum(lesson.detail.get("votes", {}).values()) < self._settings.max_votes
        ]
        for lesson in sorted(waiting, key=lambda one: (sum(one.detail.get("votes", {}).values()), one.updated, one.id)):
            used = self._voted.get(lesson.id, frozenset()) | set(lesson.sources)
            voters = list(lesson.detail.get("voters", ()))
            others: dict[str, list[Trajectory]] = defaultdict(list)
            for run in self._window:
                fits = run.tenant == lesson.tenant and run.id not in used and run.outcome is not None
                if fits and self._origins.party(run) not in voters and about(lesson, run.goal):
                    others[self._origins.party(run)].append(run)
            party = max(others, key=lambda party: (len(others[party]), party), default="")
            if len(others.get(party, ())) < self._settings.runs:
                continue
            runs = others[party][-self._settings.runs :]
            vote = await self._extractor.vote(Insight(lesson.when_to_use, lesson.content), runs)
            _remember(self._voted, lesson.id, used | {run.id for run in runs})
            self.counts[f"voted_{vote.lower()}"] += 1
            votes = Counter[str](lesson.detail.get("votes", {}))
            votes[vote] += 1
            voters += [party] if party and vote != "ABSTAIN" else []
            detail = {**lesson.detail, "votes": dict(votes), "voters": voters}
            self._pool.put(self._decided(msgspec.structs.replace(lesson, detail=detail)))
            return True
        return False

    def _decided(self, lesson: Experience) -> Experience:
        votes = Counter[str](lesson.detail["votes"])
        told = f"votes: {votes['GOOD']} for, {votes['BAD']} against"
        if votes["BAD"] >= self._settings.votes and votes["BAD"] >= votes["GOOD"]:
            return msgspec.structs.replace(lesson, state="retired", reason=told)
        if votes["GOOD"] >= self._settings.votes and votes["GOOD"] > votes["BAD"]:
            return msgspec.structs.replace(lesson, state="active", reason=told)
        return lesson


def _support(lesson: Experience) -> tuple[int, int, int, bool]:
    """How well a lesson is supported: who stands behind it, then how far it has come."""
    return lesson.independent, len(lesson.sources), lesson.guided[0], lesson.state == "active"


def _remember(memory: OrderedDict[K, frozenset[str]], key: K, value: frozenset[str]) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _MEMORY:
        memory.popitem(last=False)
