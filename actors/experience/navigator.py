"""The navigator: finds the lessons that fit a goal, and what just happened, for the guided share of the rollouts.

    experience.lesson  ->  [library]  ->  `lessons(goal, tenant, step)`
    policy.candidate, policy.serving  ->  a snapshot of which lessons there were

An index over the lessons of each tenant: tenants never see each other's. A lesson fits if the goal speaks of its
intent, if its vector is like the goal's or the step's, or if it covers enough of their words. Those that fit are ranked
by what they add to the success rate, by likeness and by youth. Of rivals, which say different things to the same end,
one is given; they are given in the order in which the goal speaks of them, which is how the policy was shown several at
once. Candidates are given in a share of the cases only: enough to try them, too few to harm. What is retired or in
quarantine never is.

The embedder being away costs the vectors, not the answer (`actors.experience.retrieval.library`). Without one, words
alone find.
"""

import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import anyio
import msgspec
import structlog

from actors.experience.lessons import rivals
from actors.experience.pool import PRACTICES
from actors.experience.retrieval.embedding import Embeddings
from actors.experience.retrieval.errors import RetrievalError
from actors.experience.retrieval.library import Library
from actors.experience.retrieval.ranking import Found
from actors.experience.retrieval.settings import NavigatorSettings
from actors.experience.retrieval.snapshots import Snapshots
from actors.messages import Candidate, Experience, Serving
from actors.ports.embedders import Embedder
from actors.ports.errors import RewriterFailed
from actors.ports.rewriters import Rewriter
from actors.store import Store
from actors.system.actor import Received, Result
from actors.system.streams import EXPERIENCE_LESSON, POLICY_CANDIDATE, POLICY_SERVING
from actors.tool_results.tool_calls import position

_log = structlog.get_logger(__name__)
_PINNED = "navigator/pinned"
"""Weight version whose snapshot is given, in decimal; empty for none."""
_GIVEN = ("active", "candidate")
_TICK = 1.0
"""Seconds between two looks at what there is to embed."""
_PRUNE_SECONDS = 3600.0
_OTHER_MODELS_SECONDS = 7 * 86_400.0
"""Cached vectors of a model that is no longer used are kept so long, for going back to it."""


class Navigator:
    """Actor: lessons in; answers questions for lessons."""

    name = "navigator"
    inputs = (EXPERIENCE_LESSON, POLICY_CANDIDATE, POLICY_SERVING)
    tick_seconds: float | None = _TICK

    def __init__(
        self,
        settings: NavigatorSettings,
        *,
        store: Store,
        embedder: Embedder | None,
        rng: random.Random,
        directory: Path | None = None,
        previous: Embedder | None = None,
        rewriter: Rewriter | None = None,
    ) -> None:
        """
        Args:
            settings: how many, how like.
            store: the lessons that there are at the start.
            embedder: of goals and lessons; None to find by intent and words alone.
            rng: decides which questions try a candidate.
            directory: for snapshots; None for none.
            previous: the embedder of before, which answers until all lessons have their vector from the new one.
            rewriter: says a lesson in words that fit the case; None to give lessons as they are.
        """
        self._settings, self._store, self._rng, self._rewriter = settings, store, rng, rewriter
        embeddings, before = (
            Embeddings(
                one,
                store,
                batch=settings.batch,
                timeout=settings.embed_timeout,
                question_timeout=settings.question_timeout,
            )
            if one is not None
            else None
            for one in (embedder, previous)
        )
        self._embeddings = embeddings
        self._library = Library(embeddings, answering=before, most=settings.max_lessons, batch=settings.batch)
        self._snapshots = Snapshots(directory, settings.snapshots) if directory is not None else None
        self._latest: dict[str, Experience] = {}
        self._pinned: dict[str, Experience] | None = None
        """By id: what a snapshot brought back."""
        self._version: int | None = None
        self._serving: dict[str, int] = {}
        """Weight version by engine."""
        self._refreshed = self._probed = self._pruned = 0.0
        self.rewritten = 0
        self.rewrite_failures = 0
        """Lessons that were given as they are, because they could not be rewritten."""
        self.snapshot_failures = 0
        """Snapshots that could not be written or brought back."""
        self.missing = 0
        """Lessons of a snapshot that the store no longer has."""

    @property
    def batch(self) -> int:
        return self._settings.batch

    @property
    def figures(self) -> dict[str, float]:
        """For metrics: what there is (`lessons`, `waiting`, `pinned`) and what happened."""
        library, embeddings = self._library, self._embeddings
        return {
            "lessons": len(library),
            "waiting": library.waiting,
            "pinned": -1 if self._version is None else self._version,
            "by_words": library.by_words,
            "left_out": library.left_out,
            "embedder_unavailable": embeddings.unavailable if embeddings else 0,
            "embedder_changes": embeddings.changes if embeddings else 0,
            "rewritten": self.rewritten,
            "rewrite_failures": self.rewrite_failures,
            "snapshot_failures": self.snapshot_failures,
            "snapshot_missing": self.missing,
            **{f"refused_{error}": count for error, count in sorted(embeddings.refused.items() if embeddings else ())},
        }

    async def start(self) -> None:
        """Read the lessons, and the vectors that the store has of them."""
        began = anyio.current_time()
        self._latest = {lesson.id: lesson for lesson in await self._store.experiences()}
        self._pinned, self._version = None, None
        await self._library.reset()
        await self._library.open()
        await self._library.put(self._latest.values())
        await self._library.recall()
        pinned = await self._store.state_get(_PINNED)
        if pinned:
            await self._restore(int(pinned))
        left = await self._library.embed(self._settings.embed_seconds)
        now = anyio.current_time()
        self._refreshed = self._probed = self._pruned = now
        if now - began > 2.0:
            _log.info("navigator_ready", lessons=len(self._library), waiting=left, seconds=round(now - began, 1))

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Take in lessons, an older revision never replaces a newer one; keep a snapshot for each weight version."""
        await self._take([received.message for received in batch if isinstance(received.message, Experience)])
        for received in batch:
            match received.message:
                case Candidate() as candidate:
                    await self._keep(candidate.version, candidate.created)
                    await self._follow(candidate.version, back=False)
                case Serving() as serving:
                    await self._serve(serving)
                case _:
                    continue
        return Result()

    async def tick(self) -> Result:
        """Embed what waits, and every now and then look at the store and at the embedder."""
        settings, now = self._settings, anyio.current_time()
        if now - self._refreshed >= settings.refresh_seconds:
            await self._refresh()
            self._refreshed = anyio.current_time()
        if now - self._probed >= settings.probe_seconds:
            if self._embeddings is not None:
                await self._embeddings.probe()
            self._probed = anyio.current_time()
        await self._library.embed(settings.embed_seconds)
        if now - self._pruned >= _PRUNE_SECONDS:
            await self._prune()
        return Result()

    async def lessons(
        self, goal: str, tenant: str = "default", step: str = "", tools: Collection[str] = ()
    ) -> Sequence[Experience]:
        """The lessons of `tenant` that fit `goal`, at most `k`, no two of them rivals, in the order of its words.

        Args:
            step: what the agent saw last, an observation or a tool's error; lessons may fit it as they fit the goal.
            tools: names of what the agent can call; a lesson that says what one of them is called now fits.
        """
        settings = self._settings
        if not settings.enabled:
            return ()
        texts = [text[: settings.query_chars] for text in (goal, step) if text.strip()]
        found = await self._library.find(texts, tenant, settings.neighbours, named_by=goal, tools=tools, states=_GIVEN)
        tried = self._rng.random() < settings.trial_share
        chosen: list[Experience] = []
        for one in settings.rank.order([one for one in found if self._fits(one)]):
            if len(chosen) == settings.k:
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
        found = await self._library.find([text[: self._settings.query_chars]], tenant, k, states=states, kinds=kinds)
        rank = self._settings.rank
        scored = [(rank.alike(one), one.lesson) for one in found]
        return sorted(scored, key=lambda one: (-one[0], -one[1].updated, one[1].id))[:k]

    async def at(self, version: int | None) -> int:
        """Give lessons as they were when weight version `version` came; as they are now, for None. Outlasts a restart.

        What was forgotten or put in quarantine since stays away. Returns how many lessons there are to find.

        Raises:
            SnapshotMissing: nothing was kept for this version.
            SnapshotRefused: what was kept is damaged.
        """
        if version is None:
            self._pinned, self._version = None, None
            await self._library.put(
                lesson
                for lesson in self._latest.values()
                if self._library.revision(lesson.tenant, lesson.id) != lesson.revision
            )
        else:
            await self._bring_back(version)
        await self._store.state_put(_PINNED, b"" if version is None else str(version).encode())
        _log.info("lessons_of_version", version=version, lessons=len(self._library))
        return len(self._library)

    async def _rewrite(self, lessons: list[Experience], goal: str, step: str) -> list[Experience]:
        """`lessons` in words that fit the case, all at once; each that fails stays as it is."""
        rewriter = self._rewriter
        if rewriter is None:
            return lessons
        said = list(lessons)

        async def one(at: int) -> None:
            try:
                with anyio.fail_after(self._settings.rewrite_timeout):
                    content = await rewriter.rewrite(lessons[at].content, goal, step)
            except (RewriterFailed, TimeoutError) as error:
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
        settings = self._settings
        # One floor under both together: each alone lets in what the other knows to be about something else.
        floor = settings.min_similarity if found.likeness else settings.min_words
        return found.named or settings.rank.alike(found) >= floor

    async def _take(self, lessons: Iterable[Experience]) -> None:
        news = {}
        for lesson in lessons:
            known = self._latest.get(lesson.id)
            if known is None or lesson.revision > known.revision:
                self._latest[lesson.id] = news[lesson.id] = lesson
        if not news:
            return
        if self._pinned is None:
            await self._library.put(news.values())
            await self._library.embed(self._settings.embed_seconds)
            return
        barred = [lesson for key, lesson in news.items() if key in self._pinned and _barred(lesson)]
        for lesson in barred:
            del self._pinned[lesson.id]
        await self._library.remove(barred)

    async def _refresh(self) -> None:
        """Take over what the store has and this process did not hear of."""
        there = await self._store.revisions()
        gone = [lesson for key, lesson in self._latest.items() if key not in there]
        for lesson in gone:
            del self._latest[lesson.id]
            if self._pinned is not None:
                self._pinned.pop(lesson.id, None)
        await self._library.remove(gone)
        news = [
            (key, revision)
            for key, revision in there.items()
            if key not in self._latest or revision > self._latest[key].revision
        ]
        await self._take(await self._store.experiences_at(news) if news else ())
        if gone:
            await self._prune()

    async def _prune(self) -> None:
        self._pruned = anyio.current_time()
        forgotten = await self._library.prune(_OTHER_MODELS_SECONDS)
        if forgotten:
            _log.info("vectors_forgotten", vectors=forgotten)

    # Versions

    async def _serve(self, serving: Serving) -> None:
        back = serving.result in ("refused", "rolled_back")
        version = serving.previous if back else serving.version
        self._serving[serving.engine] = version
        if version >= 0 and not back:
            await self._keep(version, serving.since)
        if serving.result != "refused":
            await self._follow(version, back=back)

    async def _keep(self, version: int, created: float) -> None:
        """A snapshot for `version`, unless there is one. Failing costs the way back, nothing else."""
        if self._snapshots is None:
            return
        lessons = (self._latest if self._pinned is None else self._pinned).values()
        space = self._embeddings.space if self._embeddings is not None else None
        try:
            await self._snapshots.write(
                version,
                {(lesson.id, lesson.revision) for lesson in lessons if lesson.state in _GIVEN},
                embedder=space.embedder if space else "",
                dimension=space.dimension if space else 0,
                created=created,
                serving=self._serving.values(),
            )
        except OSError as error:
            self.snapshot_failures += 1
            _log.warning("snapshot_not_written", version=version, reason=str(error))

    async def _follow(self, version: int, *, back: bool) -> None:
        if not self._settings.follow_weights or version < 0:
            return
        if back:
            await self._restore(version)
        elif self._version is not None and version > self._version:
            await self.at(None)

    async def _restore(self, version: int) -> None:
        try:
            await self.at(version)
        except RetrievalError as error:
            self.snapshot_failures += 1
            _log.warning("snapshot_not_restored", version=version, reason=str(error))

    async def _bring_back(self, version: int) -> None:
        if self._snapshots is None:
            raise RetrievalError("this navigator keeps no snapshots: it has no directory for them")
        _, revisions = await self._snapshots.read(version)
        there = {lesson.id: lesson for lesson in await self._store.experiences_at(revisions)}
        self.missing += len(revisions) - len(there)
        # Forgetting and quarantine are about the lesson, not about the weights: they hold in the past too.
        pinned = {
            key: lesson
            for key, lesson in there.items()
            if lesson.state in _GIVEN and (key not in self._latest or not _barred(self._latest[key]))
        }
        await self._library.remove([lesson for key, lesson in self._latest.items() if key not in pinned])
        await self._library.put(pinned.values())
        self._pinned, self._version = pinned, version


def _instead(one: Experience, other: Experience) -> bool:
    """Whether a goal is given one of them alone: practices that say how to do one thing in two ways, or the same words
    twice, under two kinds. Two insights for the same goals may both hold, and are told apart by their trials."""
    if one.when_to_use == other.when_to_use and one.content == other.content:
        return True
    return one.kind in PRACTICES and other.kind in PRACTICES and rivals(one, other)


def _barred(lesson: Experience) -> bool:
    """Whether no earlier revision of `lesson` may be given either."""
    return lesson.state == "quarantined" or not (lesson.when_to_use + lesson.content).strip()


def _place(goal: str, lesson: Experience) -> int:
    place = position(goal, lesson.when_to_use)
    return len(goal) if place is None else place
