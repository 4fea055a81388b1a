"""Which weights an engine served when: for engines that do not say it with every answer (vLLM before 0.33).

Between two looks that found the same version, with no swap of ours and no silence in between, the engine served it.
"""

from collections import deque
from collections.abc import Callable

import msgspec

_SPANS = 1000
"""Kept an engine; calls arrive within seconds, so that a day of swaps is plenty."""


class _Span(msgspec.Struct):
    version: int
    since: float
    until: float
    open: bool = True


class VersionTimeline:
    """The spans of every engine, in memory: after a restart nothing is known of before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spans: dict[str, deque[_Span]] = {}

    def seen(self, engine: str, version: int, asked: float) -> None:
        """`engine` said that it serves `version`, when it was asked at `asked`."""
        spans = self._spans.setdefault(engine, deque(maxlen=_SPANS))
        if spans and spans[-1].open and spans[-1].version == version:
            spans[-1].until = asked
            return
        self.lost(engine)
        now = self._clock()
        spans.append(_Span(version, now, now))

    def lost(self, engine: str) -> None:
        """From the last look on nothing is known: a swap begins, or the engine does not answer."""
        spans = self._spans.get(engine)
        if spans:
            spans[-1].open = False

    def forget(self) -> None:
        """From the last looks on nothing is known of any engine: others looked after them meanwhile."""
        for engine in self._spans:
            self.lost(engine)

    def swapping(self, engine: str) -> None:
        """A swap begins now: until now `engine` served what it did at the last look."""
        spans = self._spans.get(engine)
        if spans and spans[-1].open:
            spans[-1].until, spans[-1].open = self._clock(), False

    def hold(self, engine: str) -> Callable[[], int]:
        """From now on: what `engine` served all the while until the answer is called, -1 if that is not known."""
        spans = self._spans.get(engine)
        span = spans[-1] if spans and spans[-1].open else None
        return lambda: span.version if span is not None and span.open else -1

    def version(self, engine: str, started: float, ended: float) -> int:
        """What sampled a call of `engine` that began and ended then, unix seconds; -1 if that is not known."""
        for span in reversed(self._spans.get(engine, ())):
            if span.since <= started:
                return span.version if span.open or ended <= span.until else -1
        return -1
