"""`TokenBucket`, `WindowBreaker`: how often an API is called, and when it is left alone. The clock is an argument."""

import math
from collections import deque
from collections.abc import Callable
from typing import Annotated

import msgspec

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
_REMEMBERED = 200
"""Calls of either kind that the breaker looks back on."""
FAILURES, _WINDOW = 5, 60.0
"""So many failures within as many seconds open it, if they are half of its calls or more: one bad call in a quiet hour
does not, and a dead API is left alone after five."""
FIRST_WAIT, _MAX_WAIT = 10.0, 300.0
"""Seconds until it is probed; doubles while it stays broken."""


class RateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often something may be called."""

    per_second: Positive = 10.0
    burst: AtLeastOne = 20
    """Calls at once after a pause."""


class TokenBucket:
    """A token bucket that lends: whoever takes a token that is not there yet is told how long to wait for it."""

    def __init__(self, settings: RateSettings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._tokens, self._at = float(settings.burst), -math.inf

    def take(self, patience: float) -> float | None:
        """Take a token.

        Args:
            patience: seconds that the caller can wait at most.

        Returns:
            Seconds to wait before going on; None if that would be more than `patience`, and nothing was taken.
        """
        wait = self.wait()
        if wait > patience:
            return None
        self._tokens -= 1.0
        return wait

    def wait(self) -> float:
        """Seconds until there is a token for who comes now."""
        now = self._clock()
        grown = max(0.0, now - self._at) * self._settings.per_second
        self._tokens, self._at = min(float(self._settings.burst), self._tokens + grown), now
        return max(0.0, 1.0 - self._tokens) / self._settings.per_second


class WindowBreaker:
    """After Nygard, "Release It!": closed; open after so many failures within a window; half-open for one probe, whose
    answer closes it and whose failure doubles the wait.

    A judge's (`actors.credit.asking`) counts failures in a row, and any answer closes it: a judge is asked the same
    kind of question by one actor. An API is called by many at once, and one operation that works says little of another
    that does not; so it takes a share of the calls to open this one, and the probe alone closes it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: deque[float] = deque(maxlen=_REMEMBERED)
        self._succeeded: deque[float] = deque(maxlen=_REMEMBERED)
        self._both = (self._failed, self._succeeded)
        self._wait = self._until = 0.0
        self._probing = False
        self.opened = 0
        """Times that it went from closed to open."""

    @property
    def open(self) -> bool:
        """The API counts as broken."""
        return self._wait > 0

    def allows(self) -> bool:
        """Whether a call may be made now; if so, make it, and report with `answered`, `missed` or `dropped`."""
        if not self.open:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def remaining(self) -> float:
        """Seconds until the next call may be made."""
        return max(0.0, self._until - self._clock()) if self.open else 0.0

    def answered(self) -> bool:
        """The API answered, whatever it said; true if it was broken before."""
        was = self.open
        if was and not self._probing:
            return False  # a call from before it opened: the probe decides
        if was:
            self._failed.clear()
        self._succeeded.append(self._clock())
        self._wait, self._probing = 0.0, False
        return was

    def missed(self) -> bool:
        """It did not; true if it counts as broken from now on."""
        now = self._clock()
        if self.open:
            if self._probing:
                self._probing = False
                self._wait = min(_MAX_WAIT, 2.0 * self._wait)
                self._until = now + self._wait
            return False
        self._failed.append(now)
        failed, succeeded = (sum(now - at <= _WINDOW for at in one) for one in self._both)
        if failed < FAILURES or failed < succeeded:
            return False
        self.opened += 1
        self._wait = FIRST_WAIT
        self._until = now + self._wait
        return True

    def dropped(self) -> None:
        """The call was given up before anybody could tell."""
        self._probing = False
