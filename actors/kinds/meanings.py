"""`Meanings`: the vectors of goals where an embedding server is named, for neighbourhoods that words do not see.

    curator  ->  look(goals)  ->  the server, in bounded time  ->  kept  ->  of(goal), at once, for whoever asks

Kinds answer at once and never wait for a server. So the curator has vectors made before it tells kinds of runs, and a
goal without one is placed by its words. A server that is away or slow is left alone for a while; one that changes its
model has another space, in which nothing of the old one is compared.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import anyio
import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from actors.messages.bounded import Bounded
from actors.ports.errors import EmbedderUnavailable, VectorsRefused, WrongDimension

_log = structlog.get_logger(__name__)
_LONGEST = 2000
"""Characters of a goal that say what kind it is, as in `clusters`."""
_GOALS = 4096
"""Whose vectors are kept: 16 MB at 1,024 dimensions. What the curator tells comes back within minutes."""
_AT_ONCE = 64
"""Goals in one question."""
_PATIENCE = 5.0
"""Seconds for all looks within one `_PAUSE`: curation waits for them, and a server that is slow costs no more."""
_PAUSE = 30.0
"""Seconds until a server that failed, or took all of `_PATIENCE`, is asked again: a sixth of the curator's time."""
_PROBE = 600.0
"""Seconds between two looks whether another model answers, as the navigator's."""


class Meaning(msgspec.Struct, frozen=True):
    """What a goal means, to one model."""

    space: str
    """Vectors of different spaces are never compared."""
    vector: npt.NDArray[np.float32]
    """`(d,)`, of Euclidean length 1."""


class Space(Protocol):
    """As `actors.experience.retrieval.pool` has it."""

    @property
    def embedder(self) -> str: ...

    @property
    def dimension(self) -> int: ...


class Vectors(Protocol):
    """As `actors.experience.retrieval.embedding` makes them."""

    @property
    def space(self) -> Space | None: ...

    async def probe(self) -> bool: ...

    async def question(self, texts: Sequence[str]) -> tuple[Space, npt.NDArray[np.float32]]: ...


class Meanings:
    """Of goals that came lately. Without `vectors` no goal has one."""

    def __init__(self, vectors: Vectors | None = None, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._vectors, self._ticks = vectors, ticks
        self._kept: Bounded[str, Meaning | None] = Bounded(_GOALS)
        """By goal; None where the server would not have it."""
        self._again = self._probed = self._began = float("-inf")
        self._spent = 0.0
        """Seconds since `_began`, within `_PAUSE` of it."""
        self._broken = False
        self.counts: Counter[str] = Counter()
        """Goals that were embedded, for which the server was away, that it refused, and changes of the model."""

    def of(self, goal: str) -> Meaning | None:
        """What `goal` means, None where nobody has looked or the server had no answer."""
        found = self._kept.get(goal[:_LONGEST])
        return found if found is not None and found.space == self._space() else None

    async def look(self, goals: Iterable[str]) -> None:
        """Have the vectors of `goals` made, as far as `_PATIENCE` goes; never raises for what a server does."""
        if self._vectors is None:
            return
        wanted = [goal for goal in dict.fromkeys(goal[:_LONGEST] for goal in goals if goal) if not self._has(goal)]
        if not wanted:
            return
        now = self._ticks()
        if now - self._began >= _PAUSE:
            self._began, self._spent = now, 0.0
        if now < self._again or self._spent >= _PATIENCE:
            self.counts["unavailable"] += len(wanted)
            return
        left = len(wanted)
        try:
            with anyio.fail_after(_PATIENCE - self._spent):
                await self._probe(self._vectors)
                for start in range(0, len(wanted), _AT_ONCE):
                    part = wanted[start : start + _AT_ONCE]
                    await self._ask(self._vectors, part)
                    left -= len(part)
        except (EmbedderUnavailable, WrongDimension, TimeoutError) as error:
            self.counts["unavailable"] += left
            self._again = self._ticks() + _PAUSE
            if not self._broken:
                self._broken = True
                _log.warning("kinds_by_words_alone", reason=f"{type(error).__name__}: {error}", goals=left)
            return
        finally:
            self._spent += self._ticks() - now
        if self._broken:
            self._broken = False
            _log.info("kinds_by_vectors_again", space=self._space())

    async def _probe(self, vectors: Vectors) -> None:
        if vectors.space is not None and self._ticks() - self._probed < _PROBE:
            return
        known = vectors.space is not None
        if await vectors.probe() and known:
            self.counts["changed"] += 1
        self._probed = self._ticks()

    async def _ask(self, vectors: Vectors, goals: Sequence[str]) -> None:
        """One bad goal costs only itself: an answer that is no good is asked for again in halves."""
        before = vectors.space
        try:
            space, rows = await vectors.question(goals)
        except WrongDimension:
            self.counts["changed"] += vectors.space != before
            raise
        except VectorsRefused:
            if len(goals) == 1:
                self.counts["refused"] += 1
                self._kept[goals[0]] = None
                return
            middle = len(goals) // 2
            await self._ask(vectors, goals[:middle])
            await self._ask(vectors, goals[middle:])
            return
        for goal, row in zip(goals, rows, strict=True):
            self._kept[goal] = Meaning(_name(space), np.array(row, dtype=np.float32))
        self.counts["embedded"] += len(goals)

    def _has(self, goal: str) -> bool:
        if goal not in self._kept:
            return False
        self._kept.move_to_end(goal)
        found = self._kept[goal]
        return found is None or found.space == self._space()

    def _space(self) -> str:
        space = self._vectors.space if self._vectors is not None else None
        return "" if space is None else _name(space)


def _name(space: Space) -> str:
    return f"{space.embedder}/{space.dimension}"
