"""The version that serves against the first that ever served here: is learning worth having?

A fall from version to version may be too small to be found. So the newest outcomes of the first version are kept for
good, once `History` lets go of it, and compared as success is. It is a reading without a least fall, for nothing
is done about it; an alert asks for it (`EvolvedBelowFirst`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from actors.monitoring.comparison import FIRST_LOOK, Comparison, Spend, fall, looked, reported_alike, success
from actors.monitoring.history import History
from actors.monitoring.monitor import Finding, Monitor
from actors.monitoring.versions import LEVEL
from actors.statistics.change_tests import Looks
from actors.tool_results.runs import RunSummary

Place = Literal["serving", "previous", "first"]


class VersionSuccess(msgspec.Struct, frozen=True):
    """How a version fared, by the outcomes that are kept of it."""

    version: int
    solved: int
    outcomes: int
    """The newest so many reported ones, at most `sample`."""


class _State(msgspec.Struct):
    first: int = -1
    """The first version that served here; -1: not known yet."""
    runs: list[RunSummary] = []
    """Its newest runs with an outcome, oldest first."""
    serving: int = -1
    """The version that the looks are of."""
    looks: Looks = msgspec.field(default_factory=Looks)
    below: bool = False
    """The last look found it below the first."""
    readings: dict[str, float] = {}


class FirstVersion(Monitor):
    """Success is below that of the first version."""

    name = "first-version"
    kept = _State
    _state: _State

    def __init__(self) -> None:
        self._state = _State()

    def begin(self, version: int) -> None:
        """`version` served here first, as the store has it; nothing changes if that is what is known."""
        if version != self._state.first:
            self._state = _State(first=version)

    def look(self, history: History, now: float) -> list[Finding]:
        state, swap = self._state, history.swap
        if swap is None:
            return []
        if state.first < 0:
            state.first = swap.version if swap.previous < 0 else swap.previous
        kept = history.outcomes_of(state.first)
        if len(kept) >= len(state.runs):
            state.runs = kept
        if swap.version != state.serving:
            state.serving, state.looks, state.below, state.readings = swap.version, Looks(), False, {}
        after, before = history.outcomes_of(swap.version), state.runs
        if swap.version == state.first or not state.looks.due(len(after), FIRST_LOOK):
            return []
        found = looked(state.looks, after, before, _below, success, reported_alike)
        if found is not None:
            state.readings, state.below = dict(found.values), found.found and not found.parties
        return []

    def readings(self) -> Mapping[str, float]:
        return {"below": float(self._state.below), **self._state.readings}

    def versions(self, history: History) -> dict[Place, VersionSuccess]:
        """What serves, what served before it, and the first, as far as outcomes of each are kept."""
        swap, state = history.swap, self._state
        if swap is None:
            return {}
        listed: dict[Place, tuple[int, list[RunSummary]]] = {
            "serving": (swap.version, history.outcomes_of(swap.version)),
            "previous": (swap.previous, history.outcomes_of(swap.previous)),
            "first": (state.first, state.runs),
        }
        return {
            place: VersionSuccess(version, sum(bool(run.succeeded) for run in runs), len(runs))
            for place, (version, runs) in listed.items()
            if runs
        }


def _below(after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Comparison:
    return fall(after, before, spend(LEVEL), 0.0)
