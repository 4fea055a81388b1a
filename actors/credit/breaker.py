"""`Breaker`: keeps a judge that is away from being hammered, and finds out when it is back.

After Nygard, "Release It!": closed while the judge answers; open after so many failures in a row; half-open when the
wait is over, where one question alone goes through. Its answer closes the breaker, its failure doubles the wait.
"""

from collections.abc import Callable


class Breaker:
    """One judge's. Three failures are no more than the attempts at a run: none is used up on a judge that is away."""

    def __init__(
        self, clock: Callable[[], float], *, failures: int = 3, first_wait: float = 10.0, max_wait: float = 300.0
    ) -> None:
        self._clock, self._most, self._first_wait, self._max_wait = clock, failures, first_wait, max_wait
        self._failures = 0
        self._wait = 0.0
        self._until = 0.0
        self._probing = False
        self.opened = 0
        """Times that it went from closed to open."""

    @property
    def open(self) -> bool:
        """The judge counts as away."""
        return self._wait > 0

    def allows(self) -> bool:
        """Whether a question may be asked now; if so, ask it, and report with `answered`, `missed` or `dropped`."""
        if not self.open:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def remaining(self) -> float:
        """Seconds until the next question may be asked; 0 while one is under way."""
        return max(0.0, self._until - self._clock()) if self.open else 0.0

    def answered(self) -> None:
        """The judge answered, whatever it said."""
        self._failures, self._wait, self._probing = 0, 0.0, False

    def missed(self) -> None:
        """The judge did not answer."""
        self._failures += 1
        probed, self._probing = self._probing, False
        if self.open:
            # Questions from before it opened, still failing, say nothing new.
            if probed:
                self._wait = min(self._max_wait, 2.0 * self._wait)
                self._until = self._clock() + self._wait
        elif self._failures >= self._most:
            self.opened += 1
            self._wait = min(self._first_wait, self._max_wait)
            self._until = self._clock() + self._wait

    def dropped(self) -> None:
        """The question was given up before anybody could tell."""
        self._probing = False
