"""`Embeddings`: the embedder behind checks, and a cache in the store so that a restart embeds nothing twice.

Vectors can only be compared within a `Space`: what one model made. The model may change behind its name; so at the
start, and every now and then, a text that is always the same is embedded and compared with what it gave before. Another
dimension, another id or another vector for it is another space, and nothing of the old one is ever compared with it.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence

import anyio
import msgspec
import numpy as np
import structlog

from actors.experience.retrieval.pool import Space
from actors.experience.retrieval.vectors import Rows
from actors.ports.errors import AnswerRefused, ModelError, ModelUnavailable, WrongDimension
from actors.ports.models import Embedder, checked
from actors.store import Store

_log = structlog.get_logger(__name__)
BATCH = 64
"""Texts embedded at a time: small enough for any endpoint's limit."""
_TIMEOUT = 30.0
"""Seconds for one answer of the embedder; local models on a CPU take seconds for a batch."""
_QUESTION_TIMEOUT = 3.0
"""Seconds for a question, which somebody waits for: without its vector it is answered by words."""
_KEY = "navigator/space/"
"""Of the state; the embedder's id follows."""
_PROBE = "When to use: the same words, to see whether they still mean the same."
_SAME = 0.995
"""Inner product from which on two vectors of the probe are one model's: endpoints round differently."""


class _Known(msgspec.Struct):
    """What was seen of the embedder last."""

    id: str
    dimension: int
    epoch: int
    """How often the model changed behind the same id and dimension."""
    probe: bytes


class Embeddings:
    """Texts to vectors of one space.

    Args:
        embedder: may be away, change, or answer nonsense.
    """

    def __init__(self, embedder: Embedder, store: Store) -> None:
        self._embedder, self._store = embedder, store
        self._known: _Known | None = None
        self.refused: Counter[str] = Counter()
        """Answers that were no good, by error."""
        self.unavailable = 0
        """Calls without an answer."""
        self.changes = 0
        """Other models that came behind the embedder."""

    @property
    def space(self) -> Space | None:
        """Where vectors are made now; None as long as nobody knows."""
        known = self._known
        if known is None:
            return None
        return Space(f"{known.id}#{known.epoch}" if known.epoch else known.id, known.dimension)

    async def probe(self) -> bool:
        """Look which model answers. True if its space is another than before; then old vectors are of no use.

        An embedder that is away changes nothing: the space is what it was, also across a restart.
        """
        if self._known is None:
            data = await self._store.state_get(_KEY + self._embedder.id)
            self._known = msgspec.msgpack.decode(data, type=_Known) if data else None
        try:
            vector = (await self._call([_PROBE], None))[0]
        except ModelError as error:
            _log.warning("embedder_not_probed", reason=f"{type(error).__name__}: {error}")
            return False
        return await self._note(vector)

    async def _note(self, vector: Rows) -> bool:
        """`vector` is the probe's now. True if that makes another space."""
        known, before = self._known, self.space
        epoch = 0
        if known is not None and (known.id, known.dimension) == (self._embedder.id, len(vector)):
            old = np.frombuffer(known.probe, dtype=np.float32)
            if float(old @ vector) >= _SAME:
                return False
            epoch = known.epoch + 1
        self._known = _Known(self._embedder.id, len(vector), epoch, vector.tobytes())
        await self._store.state_put(_KEY + self._embedder.id, msgspec.msgpack.encode(self._known))
        if before is None:
            return True
        self.changes += 1
        _log.warning("embedder_changed", before=str(before), now=str(self.space))
        return True

    async def cached(self, texts: Collection[str]) -> dict[str, Rows]:
        """Those vectors, `(d,)`, that the store has, by text."""
        space = self.space
        if space is None or not texts:
            return {}
        digests = {digest(text): text for text in texts}
        found = await self._store.embeddings(space.embedder, space.dimension, list(digests))
        size = space.dimension * 4
        return {digests[key]: np.frombuffer(data, dtype=np.float32) for key, data in found.items() if len(data) == size}

    async def embed(self, texts: Sequence[str]) -> dict[str, Rows]:
        """Vectors, `(d,)`, of `texts` (one batch at most), by text, and into the store; texts whose vector is no good
        are missing, and counted.

        Raises:
            ModelUnavailable: no answer in time.
            WrongDimension: another model answers; `space` is that model's now.
        """
        space = self.space
        if space is None:
            raise ModelUnavailable("nobody knows yet what the embedder's vectors are like")
        found = await self._halved(texts[:BATCH], space)
        if found:
            data = {digest(text): vector.tobytes() for text, vector in found.items()}
            await self._store.save_embeddings(space.embedder, space.dimension, data)
        return found

    async def _halved(self, texts: Sequence[str], space: Space) -> dict[str, Rows]:
        """As `embed`; an answer that is no good is asked for again in halves: one bad text costs only itself."""
        try:
            return dict(zip(texts, await self._call(texts, space.dimension), strict=True))
        except AnswerRefused as error:
            if isinstance(error, WrongDimension) and (await self.probe() or self.space != space):
                raise
            if len(texts) == 1:
                _log.warning("text_not_embedded", digest=digest(texts[0]), reason=f"{type(error).__name__}: {error}")
                return {}
        middle = len(texts) // 2
        return {**await self._halved(texts[:middle], space), **await self._halved(texts[middle:], space)}

    async def question(self, texts: Sequence[str]) -> tuple[Space, Rows]:
        """Vectors of a question's texts, `(n, d)`, with their space.

        Raises:
            ModelUnavailable: no answer in time.
            AnswerRefused: an answer that is no good, or another model's.
        """
        space = self.space
        if space is None:
            raise ModelUnavailable("nobody knows yet what the embedder's vectors are like")
        try:
            return space, await self._call(texts, space.dimension, _QUESTION_TIMEOUT)
        except WrongDimension:
            await self.probe()
            raise

    async def prune(self, texts: Collection[str]) -> int:
        """Forget the vectors of all but `texts`, and those of other spaces; how many."""
        space = self.space
        if space is None:
            return 0
        return await self._store.prune_embeddings(space.embedder, space.dimension, {digest(text) for text in texts})

    async def _call(self, texts: Sequence[str], dimension: int | None, timeout: float | None = None) -> Rows:
        timeout = _TIMEOUT if timeout is None else timeout
        try:
            with anyio.fail_after(timeout):
                answer = await self._embedder.embed(texts)
            return checked(answer, len(texts), dimension)
        except (TimeoutError, ModelUnavailable) as error:
            self.unavailable += 1
            if isinstance(error, TimeoutError):
                raise ModelUnavailable(f"no vectors within {timeout:g} s") from error
            raise
        except AnswerRefused as error:
            self.refused[type(error).__name__] += 1
            raise


def digest(text: str) -> str:
    """What a text is known by in the cache: 128 bits of its SHA-256, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
