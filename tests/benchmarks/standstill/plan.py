"""The cells: how much traffic, how much of it is reported, what the learner makes of it, how lucky the gate is."""

import math
from itertools import product

import msgspec

RATES = (0.1, 1.0, 10.0, 100.0)
"""Runs a minute."""
FEEDBACK = (1.0, 0.2, 0.05)
"""Shares of the runs that somebody reports on."""
SCENARIOS = ("better", "equal", "worse")
LUCK = (0, 2)
STUCK = 3.0
"""Bounds without an order, a verdict or a swap, from which on learning stands still."""
PROMOTIONS = 3
"""A cell is over when so many promotions stuck."""
LATE_SHARE = 0.5
DELAY = 600.0
"""Mean of that delay, seconds; exponential."""
_UPDATE, _VERDICT = 8, 32
"""Reported runs that make an update, outcomes that make a full verdict."""
_BOUNDS = 6
"""A cell is given up after so many at the earliest."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation."""

    scenario: str
    rate: float
    """Runs a minute."""
    feedback: float
    """Share of the runs that are reported on."""
    luck: int = 0
    """Decisions of the gate that are turned into rejections, the first ones."""
    late: float = LATE_SHARE
    """Share of the reports that come with a delay, of `DELAY` on average; the others come as the run ends."""
    least: int = 3000
    """Runs before which it is not given up."""

    @property
    def name(self) -> str:
        return f"{self.scenario}-{self.rate:g}-{self.feedback:g}-{self.luck}"

    @property
    def bound(self) -> float:
        """Runs within which a promotion should be through: twice an update and a full verdict, and the wait for what
        is reported late, as a mean over all reports."""
        return 2 * (_UPDATE + _VERDICT) / self.feedback + self.late * DELAY / 60.0 * self.rate

    @property
    def limit(self) -> int:
        """Runs after which it is given up."""
        return max(self.least, math.ceil(_BOUNDS * self.bound))


def cells() -> list[Cell]:
    """All of them."""
    return [
        Cell(scenario=scenario, rate=rate, feedback=feedback, luck=luck)
        for scenario, feedback, rate, luck in product(SCENARIOS, FEEDBACK, RATES, LUCK)
    ]
