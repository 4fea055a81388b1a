"""The cells: how much traffic of what kind, how much of it is reported and how late, who lies, what breaks, and what
the learner makes of it all. The default design has every pair of levels of any two factors in some cell."""

import math
import random
from collections.abc import Iterator
from itertools import combinations, product

import msgspec

_HOUR = 3600.0
FACTORS: dict[str, tuple[object, ...]] = {
    "scenario": ("better", "equal", "worse", "one_agent", "fall"),
    "rate": (0.1, 1.0, 10.0, 100.0),
    "feedback": (1.0, 0.2, 0.05),
    "delay": (600.0, 4 * _HOUR, 24 * _HOUR),
    "arrivals": ("steady", "bursts", "days"),
    "agents": (1, 5, 10),
    "goals": ("templates", "free", "bfcl"),
    "reporters": ("alike", "uneven", "moving"),
    "engines": (1, 3),
    "faults": (False, True),
    "skew": (1.0, 3.0),
    "liar": ("", "opposite", "success", "failure", "version", "swap", "flood"),
}
"""scenario: what updates make of the policy: `one_agent` is worse for one agent only, once it serves; under `fall` one
promoted version fails at nearly everything. rate: runs a minute. feedback: share of runs that are reported. delay: mean
seconds of the half of the reports that come late. agents: each with its own key, tools and system prompt. goals: from
our templates, our free words, or the requests of BFCL. reporters: under `uneven` every other agent reports ten times as
often as the rest, and each has a delay of its own; under `moving` each new version makes them change places. skew: how
many times as often failures are reported. liar: one more party with a fifth of the traffic, which reports the opposite
of what happened, always success, always failure, success for version 0 alone, failure and only of the first runs of a
new version, or the opposite with every word said twice and taken back."""
LIES = 0.2
"""Share of the traffic of the party that lies."""
DESIGN = 40
"""Cells of the default design."""
CHAIN_RATE = 10.0
"""Runs a minute up to which runs are exchanges that the assembler and the attributor see; above they come closed."""
PROMOTIONS = 3
"""A cell is over when so many promotions stuck."""
LATE_SHARE = 0.5
_UPDATE, _VERDICT = 8, 32
"""Reported runs that make an update, outcomes that make a full verdict."""
SAMPLED = 0.1
"""Where few runs are reported, share of the others that are exchanges first; the rest comes closed."""
STUCK = 1.5
"""Bounds without an order, a verdict or a swap, from which on learning stands still."""
_BOUNDS = {"better": 2.5, "equal": 2.5, "worse": 1.7, "one_agent": 2.5}
"""A cell is given up after so many at the latest; where nothing is to be promoted it is seen sooner."""
_OF_AN_AGENT = 120
"""Reported runs of each agent that a cell with a regression of one agent has: some to fall from, and some to tell."""
_HOURS = 3.5
"""And so much time: what is over within an hour is no regression of an agent."""
_LATE_RUNS = 4000
"""Runs that may come while a late report is on its way: more would only make a cell long."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation; the factors are those of `FACTORS`."""

    scenario: str = "better"
    rate: float = 10.0
    feedback: float = 1.0
    delay: float = 600.0
    arrivals: str = "steady"
    agents: int = 1
    goals: str = "templates"
    reporters: str = "alike"
    engines: int = 1
    faults: bool = False
    skew: float = 1.0
    liar: str = ""
    luck: int = 0
    """Decisions of the gate that are turned into rejections, the first ones."""
    chain: bool = True
    """Whether runs are exchanges first, where there are not too many of them."""
    least: int = 600
    """Runs before which it is not given up."""
    most: int = 0
    """Runs after which it is, whatever the bound; 0: the bound says."""
    bounds: float = 0.0
    """After which it is given up; 0: what is usual for the scenario."""
    patience: float = STUCK
    """Bounds without an order, a verdict or a swap, from which on learning stands still."""

    @property
    def name(self) -> str:
        marks = {
            self.goals: self.goals != "templates", self.reporters: self.reporters != "alike",
            "fleet": self.engines > 1, "faults": self.faults, "skewed": self.skew > 1, f"liar:{self.liar}": self.liar,
            f"luck:{self.luck}": self.luck,
        }  # fmt: skip
        tail = "".join(f"-{mark}" for mark, there in marks.items() if there)
        late = f"{self.delay / _HOUR:g}h"
        return f"{self.scenario}-{self.rate:g}-{self.feedback:g}-{late}-{self.arrivals}-{self.agents}{tail}"

    @property
    def exchanges(self) -> bool:
        return self.chain and self.rate <= CHAIN_RATE

    @property
    def honest(self) -> float:
        """Share of the runs that are reported as they went, over all parties and versions."""
        honest = self.feedback
        if self.reporters != "alike" and self.agents > 1:
            shares = [min(1.0, self.feedback * weight) for weight in weights(self, 0)]
            honest = sum(shares) / len(shares)
        return honest * (1.0 - LIES * bool(self.liar))

    @property
    def reported(self) -> float:
        """Share of the runs that are reported, lies too: they are evidence until they are set aside."""
        return self.honest + (LIES if self.liar and self.liar != "swap" else 0.0)

    @property
    def bound(self) -> float:
        """Runs within which a promotion should be through: twice an update and a full verdict, and the wait for what
        is reported late, as a mean over all reports."""
        return self._runs(2 * (_UPDATE + _VERDICT), self.reported)

    @property
    def undoing(self) -> float:
        """Runs within which a planted fall should be undone: twice as many honest reports."""
        return self._runs(4 * (_UPDATE + _VERDICT), self.honest)

    def _runs(self, outcomes: int, reported: float) -> float:
        return outcomes / reported + LATE_SHARE * self.delay / 60.0 * self.rate

    @property
    def limit(self) -> int:
        """Runs after which it is given up."""
        own = max(_OF_AN_AGENT * self.agents / self.feedback, 60.0 * _HOURS * self.rate)
        least = max(self.least, own) if self.scenario == "one_agent" else self.least
        wanted = self.undoing if self.scenario == "fall" else (self.bounds or _BOUNDS[self.scenario]) * self.bound
        return self.most or math.ceil(max(least, wanted))


def weights(cell: Cell, version: int) -> list[float]:
    """How many times as often as the average each agent reports on runs of `version`."""
    moved = version if cell.reporters == "moving" else 0
    often = [1.0 if cell.reporters == "alike" or (number + moved) % 2 == 0 else 0.1 for number in range(cell.agents)]
    # One agent alone is its own average, but for what a version changes.
    mean = sum(often) / len(often) if cell.agents > 1 or cell.reporters != "moving" else 0.55
    return [one / mean for one in often]


def possible(levels: dict[str, object]) -> bool:
    """Whether such a cell means something, and ends within a minute or so; `levels` may lack factors."""
    alone = levels.get("agents") == 1
    if alone and (levels.get("scenario") == "one_agent" or levels.get("liar") or levels.get("reporters") == "uneven"):
        return False
    # A report in twenty of an agent in ten is a report in two hundred runs: at a run a minute that takes weeks.
    if levels.get("scenario") == "one_agent" and levels.get("feedback") == 0.05 and levels.get("rate") in (0.1, 1.0):
        return False
    rate, delay = levels.get("rate"), levels.get("delay")
    return rate is None or delay is None or float(str(rate)) * float(str(delay)) / 60.0 <= _LATE_RUNS


def design(seed: int = 0, cells: int = DESIGN) -> list[Cell]:
    """So many cells with every possible pair of levels, built greedily; the same for the same arguments."""
    rng = random.Random(f"design-{seed}")
    open_pairs = {pair for pair in _pairs() if possible(dict(pair))}
    found: list[Cell] = []
    names: set[str] = set()
    while len(found) < cells:
        tried = [row for row in (_row(rng, open_pairs) for _ in range(40)) if row is not None]
        best = max(tried, key=lambda row: len(_of(row) & open_pairs))
        cell = msgspec.convert(best, Cell)
        open_pairs -= _of(best)
        if cell.name not in names:
            names.add(cell.name)
            found.append(cell)
    return found


Pair = tuple[tuple[str, object], tuple[str, object]]


def _pairs() -> Iterator[Pair]:
    for one, other in combinations(FACTORS, 2):
        for mine, theirs in product(FACTORS[one], FACTORS[other]):
            yield (one, mine), (other, theirs)


def _of(row: dict[str, object]) -> set[Pair]:
    return set(combinations(((name, row[name]) for name in FACTORS), 2))


def _row(rng: random.Random, open_pairs: set[Pair]) -> dict[str, object] | None:
    """A cell around a pair that is still open, factor by factor with what covers most; None if it came to nothing."""
    start = rng.choice(sorted(open_pairs, key=repr)) if open_pairs else ()
    row: dict[str, object] = dict(start)
    rest = [name for name in FACTORS if name not in row]
    rng.shuffle(rest)
    for name in rest:
        levels = [level for level in FACTORS[name] if possible(row | {name: level})]
        if not levels:
            return None
        rng.shuffle(levels)

        def news(level: object, name: str = name) -> int:
            mine = [tuple(sorted(((name, level), (other, row[other])), key=_place)) for other in row]
            return sum(pair in open_pairs for pair in mine)

        # Where nothing speaks for a lie, none: false alarms are counted without.
        row[name] = max(levels, key=lambda level: (news(level), level == ""))
    return row


def _place(item: tuple[str, object]) -> int:
    return list(FACTORS).index(item[0])
