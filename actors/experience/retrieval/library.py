"""`Library`: the lessons of all tenants, each in a pool of its own, with what still waits for its vector.

    put, remove  ->  words and intents at once  ->  vectors, as the embedder gets to them  ->  find

A lesson is found from the moment it is put: by its intent and its words until it has a vector, and again for as long as
the embedder is away or another model comes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import anyio
import anyio.lowlevel
import structlog

from actors.experience.retrieval.embedding import BATCH, Embeddings
from actors.experience.retrieval.pool import LessonIndex, Query, Space, text_of
from actors.experience.retrieval.ranking import Found, utility
from actors.experience.retrieval.vectors import Rows
from actors.messages import Experience
from actors.ports.errors import ModelError, ModelUnavailable

_log = structlog.get_logger(__name__)

_MOST = 16_384
"""Lessons of one tenant that can be found, the most useful ones; the others stay in the store. A search over so many
takes some milliseconds."""
_PART = 256
"""Lessons, or vectors, that are taken in at a time: a search waits no longer than for that."""
_ATTEMPTS = 3
"""For a vector that is refused each time, until another model comes or the process starts again."""
_AWAY_SECONDS = 5.0
"""After an embedder did not answer, for the next question to ask it again."""


class Library:
    """Lessons by tenant. Nothing of one tenant is ever found for another.

    Args:
        embeddings: makes vectors; None where words alone are to find.
    """

    def __init__(self, embeddings: Embeddings | None) -> None:
        self._embeddings = embeddings
        self._pools: dict[str, LessonIndex] = {}
        self._waiting: dict[str, set[tuple[str, str]]] = {}
        """(tenant, lesson id) without a vector, by text."""
        self._refused: Counter[str] = Counter()
        self._space: Space | None = None
        """That what waits is made for."""
        self._away = False
        self._ask_again = 0.0
        """Until then no question is embedded: not each of them should wait for an endpoint that hangs."""
        self.by_words = 0
        """Questions that were answered by words and intents alone, because they could not be embedded."""
        self.left_out = 0
        """Lessons that found no room."""

    def __len__(self) -> int:
        return sum(map(len, self._pools.values()))

    @property
    def waiting(self) -> int:
        """Texts without a vector."""
        return len(self._waiting)

    async def put(self, lessons: Iterable[Experience]) -> None:
        """Take in lessons, each in place of another revision of it; one without words is taken away."""
        by_tenant: dict[str, list[Experience]] = {}
        for lesson in lessons:
            by_tenant.setdefault(lesson.tenant, []).append(lesson)
        for tenant, group in by_tenant.items():
            pool = self._pools.setdefault(tenant, LessonIndex())
            for start in range(0, len(group), _PART):
                part = group[start : start + _PART]
                await anyio.lowlevel.checkpoint()
                for lesson in part:
                    if text_of(lesson).strip():
                        pool.put(lesson)
                    else:
                        pool.remove(lesson.id)
                    # A revision that says the same keeps its vector.
                    if self._embeddings and text_of(lesson).strip() and not self._has_vector(tenant, lesson.id):
                        self._waiting.setdefault(text_of(lesson), set()).add((tenant, lesson.id))
            if len(pool) > _MOST:
                self._trim(pool)

    async def embed(self, seconds: float) -> int:
        """Fetch or make vectors for what has none, for about so many seconds; how many texts still wait.

        Never raises for the embedder's sake: what has no vector is found by its words meanwhile.
        """
        embeddings = self._embeddings
        if embeddings is None:
            return 0
        if embeddings.space is None and self._waiting:
            await embeddings.probe()
        if embeddings.space != self._space:
            self._start_over(embeddings.space)
        started = anyio.current_time()
        while self._open() and self._space is not None and anyio.current_time() - started < seconds:
            texts = self._open()[:_PART]
            self._lay(self._space, await embeddings.cached(texts))
            rest = [text for text in texts if text in self._waiting]
            for start in range(0, len(rest), BATCH):
                if not await self._make(embeddings, rest[start : start + BATCH]):
                    return len(self._waiting)
                if anyio.current_time() - started >= seconds:
                    break
        return len(self._waiting)

    async def find(
        self,
        texts: Sequence[str],
        tenant: str,
        n: int,
        *,
        named_by: str = "",
        tools: Collection[str] = (),
        states: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[Found]:
        """Lessons of `tenant` that may fit `texts` (see `LessonIndex.find`), in no order."""
        pool = self._pools.get(tenant)
        if pool is None:
            return []
        space = vectors = None
        if self._embeddings is not None and anyio.current_time() < self._ask_again:
            self.by_words += 1
        elif self._embeddings is not None:
            try:
                space, vectors = await self._embeddings.question(texts)
            except ModelError as error:
                self.by_words += 1
                self._note_away(error)
            else:
                self._note_back()
        query = Query(tuple(texts), named_by, tuple(tools), space, vectors)
        return pool.find(query, n, states=states, kinds=kinds)

    async def reset(self) -> None:
        """Forget all lessons."""
        self._pools.clear()
        self._waiting.clear()

    async def prune(self) -> int:
        """Forget cached vectors of texts that are nobody's any more; how many. Not while vectors are being made."""
        if self._embeddings is None or self._waiting:
            return 0
        texts = {text_of(lesson) for pool in self._pools.values() for lesson in pool.lessons()}
        return await self._embeddings.prune(texts)

    async def _make(self, embeddings: Embeddings, texts: Sequence[str]) -> bool:
        """Make vectors; False if there is no use in going on now."""
        if not texts:
            return True
        try:
            found = await embeddings.embed(texts)
        except ModelError as error:
            self._note_away(error)
            if embeddings.space != self._space:
                self._start_over(embeddings.space)
            return False
        self._note_back()
        self._refused.update(text for text in texts if text not in found)
        if self._space is not None:
            self._lay(self._space, found)
        return True

    def _lay(self, space: Space, vectors: Mapping[str, Rows]) -> None:
        """Take in vectors by text, for all that wait for them."""
        by_tenant: dict[str, dict[str, Rows]] = {}
        for text, vector in vectors.items():
            for tenant, lesson_id in self._waiting.pop(text, ()):
                known = self._pools[tenant].get(lesson_id) if tenant in self._pools else None
                # It may say something else by now, or be gone.
                if known is not None and text_of(known) == text:
                    by_tenant.setdefault(tenant, {})[lesson_id] = vector
        for tenant, laid in by_tenant.items():
            self._pools[tenant].lay(space, laid)

    def _trim(self, pool: LessonIndex) -> None:
        """Make room: the least useful go, and a few more than must, or each new lesson would ask for it."""
        going = _worst(pool, len(pool) - _MOST + _MOST // 50)
        for lesson in going:
            pool.remove(lesson.id)
        self.left_out += len(going)
        _log.warning("lessons_left_out", lessons=len(going), bound=_MOST, remedy="forget or retire some")

    def _open(self) -> list[str]:
        """Texts that are still worth asking for."""
        return [text for text in self._waiting if self._refused[text] < _ATTEMPTS]

    def _start_over(self, space: Space | None) -> None:
        """Another model: everything needs another vector, and what the old one made is compared with nothing more."""
        self._space = space
        self._refused.clear()
        for tenant, pool in self._pools.items():
            pool.vectors.clear()
            for lesson in pool.lessons():
                self._waiting.setdefault(text_of(lesson), set()).add((tenant, lesson.id))

    def _has_vector(self, tenant: str, lesson_id: str) -> bool:
        return self._space is not None and self._pools[tenant].has_vector(self._space, lesson_id)

    def _note_away(self, error: Exception) -> None:
        if not self._away:
            _log.warning("found_by_words_alone", reason=f"{type(error).__name__}: {error}")
        if isinstance(error, ModelUnavailable):
            self._ask_again = max(self._ask_again, anyio.current_time() + _AWAY_SECONDS)
        self._away = True

    def _note_back(self) -> None:
        if self._away:
            _log.info("embedder_back")
        self._away, self._ask_again = False, 0.0


def _worst(pool: LessonIndex, count: int) -> list[Experience]:
    """The `count` lessons that are missed least: retired before quarantined, candidates, active; then by utility."""
    order = ("retired", "quarantined", "candidate", "active")
    return sorted(pool.lessons(), key=lambda one: (order.index(one.state), utility(one), one.updated))[:count]
