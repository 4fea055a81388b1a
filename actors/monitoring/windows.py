"""Has a share risen, where runs are not independent of each other? Windows of time are compared, and only by rank.

A tool that is away for ten minutes fails in all runs of them. If nothing changed for good, the shares of windows of a
quarter of an hour are exchangeable, whatever the distribution within one: the last j of n + j are all above all but
r - 1 of the n before with probability C(j + r - 1, j) / C(n + j, j). Equal shares count against them.
"""

from math import comb

import msgspec

SECONDS = 900.0
"""A window is at least so long: an outage that is over in minutes is no change of the world."""
_RUNS = 4
"""Runs that it has at least."""
_SPANS = (6, 12)
"""Newest windows that are compared: an hour and a half, of which two outages of half an hour fill four, seldom six.
Twice as many where windows hold few runs, and one that went well among six hides a change."""
_KEPT = 96
"""Windows before them: a day, so that its hours are all among them."""
WEEK = 604_800.0


def level(error: float, questions: int) -> float:
    """Of one comparison, so that all of a week's together, of so many `questions`, err with probability `error`."""
    return error / (questions * len(_SPANS) * WEEK / SECONDS)


class Window(msgspec.Struct, array_like=True):
    """Some minutes of one agent."""

    began: float
    runs: int = 0
    ones: float = 0.0
    of: float = 0.0

    @property
    def share(self) -> float:
        return self.ones / self.of if self.of else 0.0


class Rise(msgspec.Struct, frozen=True):
    """The share rose."""

    now: float
    was: float
    since: float
    """When the first of the new windows began."""
    runs: int
    """In the new windows."""


class Windows(msgspec.Struct):
    """The share in windows, one after the other."""

    closed: list[Window] = []
    open: Window | None = None
    news: bool = False
    """A window closed since they were last looked at."""
    version: int = -1
    """Of the weights, where that matters."""

    def add(self, at: float, ones: float, of: float) -> None:
        """Take in a run that ended `at` a time, with so many `ones` `of` so many."""
        window = self.open
        if window is not None and window.runs >= _RUNS and at - window.began >= SECONDS:
            self.closed = [*self.closed, window][-(_KEPT + _SPANS[-1]) :]
            window, self.news = None, True
        if window is None:
            window = self.open = Window(at)
        window.runs += 1
        window.ones += ones
        window.of += of

    def clear(self) -> None:
        """Begin anew."""
        self.closed, self.open, self.news = [], None, False

    def rise(self, error: float, least: float, since: float = 0.0) -> Rise | None:
        """A rise to at least `least` above the mean in every new window, at level `error` for each number of windows;
        what is new then is the new normal. None as long as no other window has closed.

        Args:
            since: when something else changed: the window before the new ones must have begun after that.
        """
        if not self.news:
            return None
        self.news = False
        for span in _SPANS:
            new, old = self.closed[-span:], self.closed[:-span]
            if not old or old[-1].began < since:
                continue
            lowest = min(window.share for window in new)
            above = 1 + sum(window.share >= lowest for window in old)
            now, was = (sum(window.share for window in windows) / len(windows) for windows in (new, old))
            if lowest - was >= least and comb(span + above - 1, span) <= error * comb(len(old) + span, span):
                self.closed = new
                return Rise(now, was, new[0].began, sum(window.runs for window in new))
        return None
