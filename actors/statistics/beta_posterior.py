"""How likely a policy that changes succeeds at something: a Beta posterior over outcomes that are forgotten.

Uniform before the first outcome, Beta(1, 1). Each outcome makes those before it, which were another policy's, count a
little less. How much an attempt teaches is the variance to expect: where all end alike there is no advantage.
"""

from collections.abc import Iterable

import msgspec

REACH = 32
"""Outcomes that an estimate reaches back."""


class BetaPosterior(msgspec.Struct, frozen=True):
    """Discounted numbers of successes and failures."""

    successes: float = 0.0
    failures: float = 0.0

    def after(self, outcomes: Iterable[float]) -> "BetaPosterior":
        """The estimate with `outcomes`, each cut to [0, 1], a part of a success and of a failure."""
        won, lost = self.successes, self.failures
        for outcome in outcomes:
            value = min(1.0, max(0.0, outcome))
            won, lost = won * (1.0 - 1.0 / REACH) + value, lost * (1.0 - 1.0 / REACH) + 1.0 - value
        return BetaPosterior(won, lost)

    @property
    def mean(self) -> float:
        """Expected success."""
        return (self.successes + 1.0) / (self.successes + self.failures + 2.0)

    @property
    def difficulty(self) -> float:
        return 1.0 - self.mean

    @property
    def promise(self) -> float:
        """Expected variance of an outcome, `4 E[p (1 - p)]`, 0 to 1: 2/3 where nothing is known."""
        a, b = self.successes + 1.0, self.failures + 1.0
        return 4.0 * a * b / ((a + b) * (a + b + 1.0))
