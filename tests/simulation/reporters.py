"""Who says how a run went: reports that are few, late, skewed, of some agents more than of others, or lies."""

import random

from tests.simulation.plan import LATE_SHARE, Cell, weights

CORRECTED = 0.02
"""Share of the reports that are taken back an hour later."""
_PACE = (0.2, 1.0, 1.8)
"""Delays of agents where they differ, in mean delays."""
_FRESH = 40
"""Runs of a version that the party that waits for swaps reports on."""
_SAID = 4
"""Times that a flood says something of one run; every second time it takes back what it said twice."""

Reports = tuple[tuple[float, float], ...]
"""(unix seconds, outcome) in the order of their times."""


class Reporters:
    def __init__(self, cell: Cell, skill: float, rng: random.Random) -> None:
        self._cell, self._rng = cell, rng
        # Failures `skew` times as often as successes, and `feedback` in all at the start.
        self._success = min(1.0, cell.feedback / (skill + (1.0 - skill) * cell.skew))
        self._weights: dict[int, list[float]] = {}
        self._seen: dict[int, int] = {}
        """Runs of the party that lies, by version."""

    def tell(self, ended: float, agent: int, version: int, *, success: bool) -> Reports:
        rng, cell = self._rng, self._cell
        if version not in self._weights:
            self._weights[version] = weights(cell, version)
        share = self._success * self._weights[version][agent] * (1.0 if success else cell.skew)
        pace = _PACE[agent % len(_PACE)] if cell.reporters != "alike" and cell.agents > 1 else 1.0
        late = rng.expovariate(1.0 / (pace * cell.delay)) if rng.random() < LATE_SHARE else 0.0
        if rng.random() >= share:
            return ()
        told = (ended + 1.0 + late, float(success))
        return (told, (told[0] + 3600.0, 1.0 - told[1])) if rng.random() < CORRECTED else (told,)

    def lie(self, ended: float, version: int, *, success: bool) -> Reports:
        self._seen[version] = self._seen.get(version, 0) + 1
        said, opposite = ended + 1.0, float(not success)
        match self._cell.liar:
            case "success":
                return ((said, 1.0),)
            case "failure":
                return ((said, 0.0),)
            case "version":
                return ((said, float(version == 0)),)
            case "swap":
                return ((said, 0.0),) if version and self._seen[version] <= _FRESH else ()
            case "flood":
                return tuple(
                    (said + 60.0 * number, opposite if number // 2 % 2 == 0 else 1.0 - opposite)
                    for number in range(_SAID)
                )
            case _:
                return ((said, opposite),)
