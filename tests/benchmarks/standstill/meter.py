"""What is measured while a cell runs: when something was first learned, what became of each report, and how long
nothing happened."""

from collections import Counter
from collections.abc import Callable

import msgspec

from actors.deployment.fleet import Fleet
from actors.messages import BatchOrder, Candidate, Directive, Message, Serving, Verdict
from actors.store.records import Dropped
from tests.benchmarks.standstill.plan import STUCK, Cell

_SETTLED = 32
"""Reported runs that a version must have, on no trial and not rolled back, to have stuck: those of a full verdict."""


class First(msgspec.Struct, frozen=True):
    """When something happened first."""

    runs: int
    hours: float


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell."""

    name: str
    bound: float
    runs: int
    hours: float
    reported: int
    first_order: First | None
    first_update: First | None
    first_promotion: First | None
    """Swapped in for the first time; on trial, where there are trials."""
    first_settled: First | None
    """And stayed."""
    counts: dict[str, int]
    """Of orders, updates, skipped, promotions, settled, verdicts by decision, and directives by kind."""
    notes: dict[str, int]
    """Directives by kind and cause."""
    trained_share: float
    """Of the reported runs, those that an update was made of."""
    fates: dict[str, int]
    """Of the reported runs, by what became of them."""
    refused: dict[str, int]
    """Trajectories of orders that the learner left out, by reason."""
    quiet: float
    """Bounds of runs, at most, without an order, a verdict or a swap."""
    stuck: str
    """Why it stands still; empty if it does not."""
    ratio: float | None
    """Runs to the first promotion, in bounds."""
    settled_ratio: float | None
    skill: float
    """Of what serves in the end."""
    wall: float = 0.0
    """Seconds that it took."""


class Meter:
    """Counts."""

    def __init__(self, cell: Cell, clock: Callable[[], float], fleet: Callable[[], Fleet]) -> None:
        self._cell, self._clock, self._fleet = cell, clock, fleet
        self._began = clock()
        self.runs = 0
        """That began."""
        self._firsts: dict[str, First] = {}
        self.counts: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self._known: set[str] = set()
        self._reported: dict[str, None] = {}
        self._ordered: set[str] = set()
        self._dropped: dict[str, str] = {}
        self._served: set[int] = set()
        self._settling: dict[int, int] = {}
        """Reported runs when each promoted version that has not settled was swapped in."""
        self._settled: set[int] = set()
        self._last = 0
        """Runs at the last sign of learning."""
        self._quiet = 0
        self._last_order = 0

    @property
    def settled(self) -> int:
        return len(self._settled)

    def began(self) -> None:
        """A run began."""
        self.runs += 1
        self._quiet = max(self._quiet, self.runs - self._last)

    def reported(self, run: str) -> None:
        """Somebody said how `run` went."""
        self._reported[run] = None
        self._settle()

    def recorded(self, message: Message) -> None:
        """An actor wrote `message`."""
        if isinstance(message, Dropped):
            self._dropped.setdefault(message.id, message.reason)

    def seen(self, message: Message) -> None:
        """`message` went over the bus; what is sent again counts once."""
        key = f"{type(message).__name__}/{message.id}"
        if key in self._known or not isinstance(message, BatchOrder | Candidate | Verdict | Serving | Directive):
            return
        self._known.add(key)
        match message:
            case BatchOrder() as order:
                self._happened("order")
                self._last_order = self.runs
                self._ordered.update(order.trajectories)
            case Candidate(answer="trained", metrics=metrics):
                self._first("copy" if "rollback" in metrics else "update")
            case Candidate(answer=answer):
                self._first(answer)
            case Verdict(decision=decision):
                self._happened(decision)
            case Serving(result="swapped") as serving:
                self._happened("swap")
                if serving.version not in self._served and serving.version > serving.previous:
                    self._first("promotion")
                    self._settling[serving.version] = len(self._reported)
                self._served.add(serving.version)
            case Directive() as directive:
                self._first(directive.kind)
                self.notes[f"{directive.kind} {directive.details.get('cause', directive.origin)}"] += 1
                self._ended(directive)
            case _:
                self._served.add(message.version)

    def _ended(self, directive: Directive) -> None:
        """What a trial came to, or the sentinel."""
        version = directive.details.get("version", "")
        if directive.kind == "rollback" and version.isdecimal():
            self._settling.pop(int(version), None)
            self._settled.discard(int(version))
        if directive.kind == "roll_on" and version.isdecimal():
            self._settles(int(version))

    def _settle(self) -> None:
        for version, since in list(self._settling.items()):
            enough = len(self._reported) - since >= _SETTLED
            fleet = self._fleet() if enough else None
            if fleet is not None and fleet.canary != version and version not in fleet.banned:
                self._settles(version)

    def _settles(self, version: int) -> None:
        self._settling.pop(version, None)
        self._settled.add(version)
        self._firsts.setdefault("settled", self._now())

    def _happened(self, what: str) -> None:
        self._first(what)
        self._last = self.runs

    def _first(self, what: str) -> None:
        self.counts[what] += 1
        self._firsts.setdefault(what, self._now())

    def _now(self) -> First:
        return First(self.runs, round((self._clock() - self._began) / 3600.0, 3))

    def result(self, *, trained: set[str], refused: Counter[str], skill: float, wall: float) -> Ran:
        """All of it.

        Args:
            trained: trajectories that updates were made of.
            refused: of orders, and left out by the learner, by reason.
            skill: of what serves now.
        """
        fates = Counter(self._fate(run, trained) for run in self._reported)
        first, settled = self._firsts.get("promotion"), self._firsts.get("settled")
        return Ran(
            name=self._cell.name, bound=self._cell.bound, runs=self.runs, hours=self._now().hours,
            reported=len(self._reported), first_order=self._firsts.get("order"),
            first_update=self._firsts.get("update"), first_promotion=first, first_settled=settled,
            counts={**self.counts, "settled": self.settled}, notes=dict(self.notes),
            trained_share=fates["trained"] / max(1, len(self._reported)), fates=dict(fates), refused=dict(refused),
            quiet=self._quiet / self._cell.bound, stuck=self._stuck(),
            ratio=None if first is None else first.runs / self._cell.bound,
            settled_ratio=None if settled is None else settled.runs / self._cell.bound, skill=skill, wall=wall,
        )  # fmt: skip

    def _fate(self, run: str, trained: set[str]) -> str:
        if run in trained:
            return "trained"
        if run in self._ordered:
            return "ordered"
        return self._dropped.get(run, "waits")

    def _stuck(self) -> str:
        if self._quiet > STUCK * self._cell.bound:
            return f"nothing for {self._quiet} runs"
        if self.runs >= self._cell.limit and self._last_order <= self.runs * 2 // 3:
            return f"last order at run {self._last_order} of {self.runs}"
        return ""
