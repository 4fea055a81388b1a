"""The navigator: finds the lessons that fit a goal, and what just happened, for the guided share of the rollouts.

    experience.lesson  ->  [library]  ->  `lessons(goal, tenant, step)`

A lesson fits if the goal speaks of its intent, if its vector is like the goal's or the step's, or if it covers enough
of their words. Those that fit are ranked by what they add to the success rate, by likeness and by youth; of rivals one
is given, in the order in which the goal speaks of them. Candidates are given in a share of the cases: enough to try
them, too few to harm. Tenants never see each other's. Without the embedder, words alone find.
"""

import random
from collections.abc import Collection, Iterable, Sequence

import anyio
import msgspec
import structlog

from actors.experience.lessons import rivals
from actors.experience.pool import PRACTICES
from actors.experience.retrieval.embedding import BATCH, Embeddings
from actors.experience.retrieval.library import Library
from actors.experience.retrieval.ranking import Found, alike, ordered
from actors.messages import Experience
from actors.ports.errors import ModelError
from actors.ports.models import Embedder, Rewriter
from actors.store import Store
from actors.system.actor import Actor, Received, Result
from actors.system.streams import EXPERIENCE_LESSON
from actors.tool_results.tool_calls import position

_log = structlog.get_logger(__name__)
_GIVEN = ("active", "candidate")
_TICK = 1.0
"""Seconds between two looks at what there is to embed."""
_REFRESH_SECONDS = 30.0
"""Between two looks at the store: where several daemons share the stream, each hears a part of the news."""
_PROBE_SECONDS = 600.0
"""Between two looks whether another model answers behind the embedder's name."""
_EMBED_SECONDS = 5.0
"""At a time, on lessons without a vector, before news is looked at again."""
_REWRITE_SECONDS = 5.0
"""For a rewriter, before a lesson is given as it is: a rollout waits."""
_PRUNE_SECONDS = 3600.0
"""Between two looks for cached vectors that nothing is found by any more, those of another model among them."""
_MIN_WORDS = 0.2
"""Share of the words of a goal or step that a lesson must cover to fit where there is no vector (docs/measured.md)."""
_TRIAL_SHARE = 0.5
"""Of the questions in which a candidate is given, if there is no active lesson for its intent: as many guided trials of
it as unguided ones."""
_MOST = 3
"""Lessons for one goal."""
_MIN_SIMILARITY = 0.27
"""How alike by vector and words, half each, a lesson and the goal, or the step, must be for it to fit where the goal
does not name it. Chosen with all-MiniLM-L6-v2; models differ in how alike anything is to them."""
_NEIGHBOURS = 32
"""Lessons that are looked at for one goal, by vector and by words each."""
_QUERY_CHARS = 2000
"""Of a goal, and of a step, that are embedded."""


class Navigator(Actor):
    """Actor: lessons in; answers questions for lessons."""

    name = "navigator"
    inputs = (EXPERIENCE_LESSON,)
    tick_seconds = _TICK
    batch = BATCH
    renews = True

    def __init__(
        self,
        *,
        store: Store,
        embedder: Embedder | None,
        rng: random.Random,
        rewriter: Rewriter | None = None,
        enabled: bool = True,
    ) -> None:
        """
        Args:
            embedder: of goals and lessons; None to find by intent and words alone.
            rewriter: says a lesson in words that fit the case; None to give lessons as they are.
            enabled: if not, no lesson is ever given; they are still drawn and kept.
        """
        self._enabled, self._store, self._rng, self._rewriter = enabled, store, rng, rewriter
        self._embeddings = None
        if embedder is not None:
            self._embeddings = Embeddings(embedder, store)
        self._library = Library(self._embeddings)
        self._latest: dict[str, Experience] = {}
        self._refreshed = self._probed = self._pruned = 0.0
        self.rewritten = 0
        self.rewrite_failures = 0
        """Lessons that were given as they are, because they could not be rewritten."""

    @property
    def figures(self) -> dict[str, float]:
        """For metrics: what there is (`lessons`, `waiting`) and what happened."""
        library, embeddings = self._library, self._embeddings
        return {
            "lessons": len(library),
            "waiting": library.waiting,
            "by_words": library.by_words,
            "left_out": library.left_out,
            "embedder_unavailable": embeddings.unavailable if embeddings else 0,
            "embedder_changes": embeddings.changes if embeddings else 0,
            "rewritten": self.rewritten,
            "rewrite_failures": self.rewrite_failures,
            **{f"refused_{error}": count for error, count in sorted(embeddings.refused.items() if embeddings else ())},
        }

    async def start(self) -> None:
        """Read the lessons, and the vectors that the store has of them."""
        began = anyio.current_time()
        self._latest = {lesson.id: lesson for lesson in await self._store.experiences()}
        await self._library.reset()
        if self._embeddings is not None:
            await self._embeddings.probe()
        await self._library.put(self._latest.values())
        left = await self._library.embed(_EMBED_SECONDS)
        now = anyio.current_time()
        self._refreshed = self._probed = self._pruned = now
        if now - began > 2.0:
            _log.info("navigator_ready", lessons=len(self._library), waiting=left, seconds=round(now - began, 1))

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Take in lessons; an older revision never replaces a newer one."""
        await self._take([received.message for received in batch if isinstance(received.message, Experience)])
        return Result()

    async def tick(self) -> Result:
        """Embed what waits, and every now and then look at the store and at the embedder."""
        now = anyio.current_time()
        if now - self._refreshed >= _REFRESH_SECONDS:
            # What the store has and this process did not hear of.
            await self._take(await self._store.experiences())
            self._refreshed = anyio.current_time()
        if now - self._probed >= _PROBE_SECONDS:
            if self._embeddings is not None:
                await self._embeddings.probe()
            self._probed = anyio.current_time()
        await self._library.embed(_EMBED_SECONDS)
        if now - self._pruned >= _PRUNE_SECONDS:
            await self._prune()
        return Result()

    async def lessons(
        self, goal: str, tenant: str = "default", step: str = "", tools: Collection[str] = ()
    ) -> Sequence[Experience]:
        """The lessons of `tenant` that fit `goal`, at most three, no two of them rivals, in the order of its words.

        Args:
            step: what the agent saw last, an observation or a tool's error; lessons may fit it as they fit the goal.
            tools: names of what the agent can call; a lesson that says what one of them is called now fits.
        """
        if not self._enabled:
            return ()
        texts = [text[:_QUERY_CHARS] for text in (goal, step) if text.strip()]
        found = await self._library.find(texts, tenant, _NEIGHBOURS, named_by=goal, tools=tools, states=_GIVEN)
        tried = self._rng.random() < _TRIAL_SHARE
        chosen: list[Experience] = []
        for one in ordered([one for one in found if self._fits(one)]):
            if len(chosen) == _MOST:
                break
            if (one.lesson.state == "active" or tried) and not any(_instead(one.lesson, other) for other in chosen):
                chosen.append(one.lesson)
        return await self._rewrite(sorted(chosen, key=lambda lesson: _place(goal, lesson)), goal, step)

    async def search(
        self,
        text: str,
        tenant: str,
        k: int,
        kinds: Collection[str] | None = None,
        states: Collection[str] | None = None,
    ) -> list[tuple[float, Experience]]:
        """The `k` lessons of `tenant` that are most like `text`, with how alike they are, 0 to 1, the most alike first.

        For people and tools that look through the memory: no threshold, no ranking by use. Only lessons of `kinds` and
        in `states`, where they are given.
        """
        if k < 1 or not text.strip():
            return []
        found = await self._library.find([text[:_QUERY_CHARS]], tenant, k, states=states, kinds=kinds)
        scored = [(alike(one), one.lesson) for one in found]
        return sorted(scored, key=lambda one: (-one[0], -one[1].updated, one[1].id))[:k]

    async def _rewrite(self, lessons: list[Experience], goal: str, step: str) -> list[Experience]:
        """`lessons` in words that fit the case, all at once; each that fails stays as it is."""
        rewriter = self._rewriter
        if rewriter is None:
            return lessons
        said = list(lessons)

        async def one(at: int) -> None:
            try:
                with anyio.fail_after(_REWRITE_SECONDS):
                    content = await rewriter.rewrite(lessons[at].content, goal, step)
            except (ModelError, TimeoutError) as error:
                self.rewrite_failures += 1
                _log.debug("lesson_not_rewritten", lesson=lessons[at].id, reason=f"{type(error).__name__}: {error}")
                return
            said[at] = msgspec.structs.replace(lessons[at], content=content)
            self.rewritten += 1

        async with anyio.create_task_group() as group:
            for at in range(len(lessons)):
                group.start_soon(one, at)
        return said

    def _fits(self, found: Found) -> bool:
        # One floor under both together: each alone lets in what the other knows to be about something else.
        floor = _MIN_SIMILARITY if found.likeness else _MIN_WORDS
        return found.named or alike(found) >= floor

    async def _take(self, lessons: Iterable[Experience]) -> None:
        news = {}
        for lesson in lessons:
            known = self._latest.get(lesson.id)
            if known is None or lesson.revision > known.revision:
                self._latest[lesson.id] = news[lesson.id] = lesson
        if news:
            await self._library.put(news.values())
            await self._library.embed(_EMBED_SECONDS)

    async def _prune(self) -> None:
        self._pruned = anyio.current_time()
        forgotten = await self._library.prune()
        if forgotten:
            _log.info("vectors_forgotten", vectors=forgotten)


def _instead(one: Experience, other: Experience) -> bool:
    """Whether a goal is given one of them alone: practices that say how to do one thing in two ways, or the same words
    twice, under two kinds. Two insights for the same goals may both hold, and are told apart by their trials."""
    if one.when_to_use == other.when_to_use and one.content == other.content:
        return True
    return one.kind in PRACTICES and other.kind in PRACTICES and rivals(one, other)


def _place(goal: str, lesson: Experience) -> int:
    place = position(goal, lesson.when_to_use)
    return len(goal) if place is None else place
