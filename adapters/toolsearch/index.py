"""`ToolIndex`: finds the few operations out of thousands that a goal and its current step need.

    operations, function tools -> add -> words, vectors, APIs
    goal, step -> search -> a ranking by words, one by vectors, one of APIs -> reciprocal rank fusion -> the best k

Rankings are fused by rank: scores of different kinds cannot be compared. Ties go by API and name: the same operations
give the same answer, in whatever order they came.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from actors.ports.errors import AnswerRefused, ModelError, ModelUnavailable
from actors.ports.models import Embedder, words_alone
from actors.ports.search.texts import TextIndex, Texts, grams
from actors.ports.search.words import words
from adapters.live import MAX_NAME, Operation
from adapters.toolsearch import settings as sizes
from adapters.toolsearch.ranking import Ints, api_scores, order, reciprocal_ranks
from adapters.toolsearch.reading import Document, Unreadable, function_tool, read
from adapters.toolsearch.settings import SearchSettings

Key = tuple[str, str]
"""(API, name)"""
_EMBEDDED_AT_ONCE = 128


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that may serve."""

    api: str
    """Empty for tools of no particular API."""
    operation: Operation
    score: float
    """Of the fusion: only its order means something."""
    shown: str
    """Its name, or one with the API's in it where several APIs have an operation of that name: unique in the index."""

    @property
    def tool(self) -> dict[str, Any]:
        """As a function tool of the chat API, under `shown`."""
        return function_tool(self.operation, self.shown)


class ToolIndex:
    """Operations by API and name, searched by what somebody wants to do. Not for several threads at once.

    Args:
        embedder: turns texts into vectors; None to search by words alone, as with one that sees no more than words.
    """

    def __init__(self, embedder: Embedder | None = None, settings: SearchSettings | None = None) -> None:
        self._settings = own = settings or SearchSettings()
        semantic = embedder is not None and not words_alone(embedder) and own.vectors > 0.0
        self._embedder = embedder if semantic else None
        self._words = TextIndex()
        self._slots: dict[Key, int] = {}
        self._documents: dict[int, Document] = {}
        self._free: list[int] = []
        self._bare: set[int] = set()
        """Slots that wait for their vector."""
        self._vectors: npt.NDArray[np.float32] = np.zeros((0, 0), dtype=np.float32)
        self._names: Counter[str] = Counter()
        self._arrays: tuple[Ints, Ints] | None = None
        """By slot its place in the order of keys (-1: empty) and its API's number, until something comes or goes."""
        self.skipped: Counter[str] = Counter()
        """What `add` could not use, by reason."""
        self.unembedded = 0
        """Texts and queries that went without vectors because the embedder failed."""

    def __len__(self) -> int:
        return len(self._slots)

    async def add(self, operations: Iterable[Operation | Mapping[str, Any]], api: str = "") -> int:
        """Take in operations, or function tools in OpenAI's form, of `api`; one that is here already is replaced.

        Returns how many; what cannot be used is counted in `skipped`. Where the embedder fails, words alone find it.
        """
        taken: dict[str, Document] = {}
        for given in operations:
            try:
                document = read(given, api, sizes.MAX_TEXT)
            except Unreadable as error:
                self.skipped[error.reason] += 1
                continue
            if document.operation.name in taken:
                self.skipped["same name twice"] += 1
            else:
                taken[document.operation.name] = document
        for name, document in taken.items():
            self._put((api, name), document)
        await self._embed()
        return len(taken)

    def remove(self, names: Iterable[str] | None = None, api: str = "") -> int:
        """Take operations of `api` away, all of them if no names are given; how many were there."""
        own = [key for key in self._slots if key[0] == api] if names is None else [(api, name) for name in names]
        return sum(self._drop(key) for key in own)

    async def search(
        self,
        goal: str,
        step: str = "",
        k: int = 10,
        *,
        apis: Collection[str] = (),
        exclude: Collection[str] = (),
    ) -> list[Found]:
        """The `k` operations that fit best, best first; none for a query without words.

        Args:
            goal: what is to be reached in the end.
            step: what is to be done now; empty if that is not known.
            apis: only of these; empty for all.
            exclude: not these, by name or by shown name.
        """
        texts = [(goal[: sizes.MAX_QUERY], 1.0), (step[: sizes.MAX_QUERY], 1.0)]
        if step.strip():
            texts[0] = (texts[0][0], sizes.GOAL)
        texts = [(text, weight) for text, weight in texts if text.strip() and weight > 0.0]
        query = self._query(texts)
        if not query or not self._slots or k < 1:
            return []
        # Vectors first: whatever comes or goes while the embedder is asked, what follows sees one state of the index.
        vector = await self._query_vector(texts)
        places, numbers = self._by_slot()
        size = len(places)
        constant = sizes.FUSION
        spelt: dict[str, float] = {}
        for text, weight in texts:
            for gram in dict.fromkeys(grams(text)):
                spelt[gram] = spelt.get(gram, 0.0) + weight
        by_words = self._words.covered(query, spelt, size).astype(np.float64)
        fused = self._settings.words * reciprocal_ranks(by_words, constant)
        if vector is not None and len(vector) == self._vectors.shape[1]:
            likeness = np.zeros(size, dtype=np.float64)
            known = min(size, len(self._vectors))
            likeness[:known] = self._vectors[:known] @ vector
            fused += self._settings.vectors * reciprocal_ranks(np.maximum(likeness, 0.0), constant)
        if self._settings.apis:
            fused += self._settings.apis * reciprocal_ranks(api_scores(fused, numbers), constant)
        fused[(places < 0) | self._shut_out(apis, exclude, size)] = 0.0
        best = order(np.round(fused, 9), places)[:k]
        return [self._found(int(slot), float(fused[slot])) for slot in best if fused[slot] > 0.0]

    def shown(self, api: str, name: str) -> str:
        """The name under which an operation is shown: unique in the index, of characters that chat APIs accept."""
        if self._names[name] < 2:
            return name
        full = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in f"{api}__{name}")
        if full.isascii() and len(full) <= MAX_NAME and full not in self._names:
            return full
        digest = hashlib.blake2b(f"{api}\x1f{name}".encode("utf-8", "replace"), digest_size=4).hexdigest()
        return f"{name[: MAX_NAME - 9]}_{digest}"

    # -- what is kept ----------------------------------------------------------------------------------------------

    def _put(self, key: Key, document: Document) -> None:
        self._drop(key)
        slot = self._free.pop() if self._free else len(self._slots)
        self._words.put(slot, self._fields(document))
        self._slots[key], self._documents[slot] = slot, document
        self._names[key[1]] += 1
        self._bare.add(slot)
        if slot < len(self._vectors):
            self._vectors[slot] = 0.0
        self._arrays = None

    def _drop(self, key: Key) -> bool:
        slot = self._slots.pop(key, None)
        if slot is None:
            return False
        self._words.remove(slot, self._fields(self._documents.pop(slot)))
        self._names[key[1]] -= 1
        if not self._names[key[1]]:
            del self._names[key[1]]
        self._bare.discard(slot)
        self._free.append(slot)
        if slot < len(self._vectors):
            self._vectors[slot] = 0.0
        self._arrays = None
        return True

    def _fields(self, document: Document) -> Texts:
        return (
            (sizes.NAME, document.name), (sizes.TITLE, document.title), (sizes.TAGS, document.tags),
            (1.0, document.description), (sizes.PARAMETERS, document.parameters),
        )  # fmt: skip

    async def _embed(self) -> None:
        """Ask for the vectors that are missing."""
        if self._embedder is None:
            return
        waiting = sorted(self._bare)
        for start in range(0, len(waiting), _EMBEDDED_AT_ONCE):
            part = {slot: self._documents[slot] for slot in waiting[start : start + _EMBEDDED_AT_ONCE]
                    if slot in self._documents}  # fmt: skip
            try:
                vectors = await self._embedder.embed([document.text for document in part.values()])
            except AnswerRefused:
                self.unembedded += len(part)
                continue
            except ModelUnavailable:
                self.unembedded += len(waiting) - start
                return
            for (slot, document), vector in zip(part.items(), vectors, strict=True):
                # Another call may have replaced it meanwhile.
                if self._documents.get(slot) is document:
                    self._keep(slot, vector)

    def _keep(self, slot: int, vector: npt.NDArray[np.float32]) -> None:
        if self._vectors.shape[1] != len(vector):
            # The first answer; or another model behind the same address, whose vectors fit none of the others.
            self._vectors = np.zeros((0, len(vector)), dtype=np.float32)
            self._bare = set(self._documents)
        if slot >= len(self._vectors):
            grown = np.zeros((max(64, 2 * len(self._vectors), slot + 1), len(vector)), dtype=np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        self._vectors[slot] = vector
        self._bare.discard(slot)

    # -- a query ---------------------------------------------------------------------------------------------------

    def _query(self, texts: Iterable[tuple[str, float]]) -> dict[str, float]:
        """Weight of each term, of the most telling ones."""
        query: dict[str, float] = {}
        for text, weight in texts:
            for term in dict.fromkeys(words(text)):
                query[term] = query.get(term, 0.0) + weight
        most = sizes.MAX_TERMS
        if len(query) > most:
            # Words that no operation has would crowd out all others.
            telling = sorted((term for term in query if term in self._words), key=lambda t: (-self._words.idf(t), t))
            query = {term: query[term] for term in telling[:most]}
        return query

    async def _query_vector(self, texts: list[tuple[str, float]]) -> npt.NDArray[np.float32] | None:
        if self._embedder is None or not self._vectors.size:
            return None
        try:
            vectors = await self._embedder.embed([" ".join(text.split()) for text, _ in texts])
        except ModelError:
            self.unembedded += 1
            return None
        vector = np.sum([weight * vector for (_, weight), vector in zip(texts, vectors, strict=True)], axis=0)
        return (vector / max(math.sqrt(float(vector @ vector)), 1e-9)).astype(np.float32)

    def _by_slot(self) -> tuple[Ints, Ints]:
        if self._arrays is None:
            size = len(self._slots) + len(self._free)
            places, numbers = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int64)
            known: dict[str, int] = {}
            for place, key in enumerate(sorted(self._slots)):
                slot = self._slots[key]
                places[slot], numbers[slot] = place, known.setdefault(key[0], len(known))
            self._arrays = (places, numbers)
        return self._arrays

    def _shut_out(self, apis: Collection[str], exclude: Collection[str], size: int) -> npt.NDArray[np.bool_]:
        out = np.zeros(size, dtype=np.bool_)
        if not (apis or exclude):
            return out
        own, unwanted = set(apis), set(exclude)
        for (api, name), slot in self._slots.items():
            known = unwanted and (name in unwanted or self.shown(api, name) in unwanted)
            out[slot] = bool(known or (own and api not in own))
        return out

    def _found(self, slot: int, score: float) -> Found:
        document = self._documents[slot]
        name = self.shown(document.api, document.operation.name)
        return Found(api=document.api, operation=document.operation, score=score, shown=name)
