"""What the monitors look back on: the newest runs, and a sample of runs of each version that served lately.

Runs and runs with an outcome are kept apart: where one run in fifty is reported, the newest 384 runs have eight
outcomes, but the newest 384 outcomes are there all the same. Bounded: `window` newest runs and `sample` newest with an
outcome; `sample` of both for each of `versions` versions, of which no party washes out the others'. A run is one object
in all of them, so an outcome or a judgement that comes late is seen by all.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from actors.messages import Attribution, derived_id
from actors.statistics.parties import FairWindow
from actors.tool_results.runs import RunSummary, lateness, take_judgement


class Swap(msgspec.Struct, frozen=True):
    """A change of the serving weights."""

    engine: str
    version: int
    previous: int
    since: float


class Remembered(msgspec.Struct):
    """All that a `History` holds; msgpack-able, so that it survives a restart.

    Numbers in lists are places in `runs`: most runs stand in several lists.
    """

    runs: list[RunSummary] = []
    """Each once."""
    window: list[int] = []
    reported: list[int] = []
    samples: dict[int, list[int]] = {}
    """By version, the one that began to serve longest ago first."""
    outcomes: dict[int, list[int]] = {}
    """By version, those with an outcome."""
    drawn: dict[int, list[int]] = {}
    """Runs with an outcome that were drawn by lot, of the newest two versions."""
    spans: list[tuple[float, int]] = []
    """Since when which version serves, oldest first."""
    found: list[str] = []
    """Ids of runs that came from the store, and that were not heard of otherwise."""
    swap: Swap | None = None
    condemned: list[int] = []
    """Versions that were ordered back, newest last."""


class _Kept(NamedTuple):
    """What is kept of one version, the newest of each."""

    runs: FairWindow[RunSummary]
    reported: FairWindow[RunSummary]
    """Those with an outcome."""
    drawn: dict[str, RunSummary]
    """Of all with an outcome those with the least digests: whether a run is here says nothing of how soon or how well
    it was reported. By digest."""

    def has_outcome(self, run: RunSummary, size: int) -> None:
        """Take in a run whose outcome is known now."""
        self.reported.append(run)
        self.drawn[derived_id("drawn", run.id)] = run
        if len(self.drawn) > size:
            del self.drawn[max(self.drawn)]


def _fair(runs: Iterable[RunSummary], size: int) -> FairWindow[RunSummary]:
    return FairWindow(size, lambda run: run.party, runs)


class Watched(msgspec.Struct, frozen=True):
    """The version that serves, and what to compare it with."""

    swap: Swap
    after: list[RunSummary]
    """Its runs: all, or those with an outcome; as in the other two."""
    previous: list[RunSummary]
    """Runs of the version before."""
    reference: list[RunSummary]
    """Runs of versions before that one, the oldest remembered."""
    oldest: int
    """The first of the reference's versions, -1 without."""


class History:
    """Runs, by age and by version."""

    def __init__(self, window: int, sample: int, versions: int, state: Remembered | None = None) -> None:
        state = state or Remembered()
        self._sample, self._versions = sample, versions
        self._most = 2 * window + sample * (1 + 2 * versions) + 2 * sample
        """Runs that are ever held: all that can be in a list, and a window of those that no list has any more."""
        self.swap, self.condemned = state.swap, list(state.condemned)
        self._spans, self._found = list(state.spans), set(state.found)
        self._runs: dict[str, RunSummary] = {run.id: run for run in state.runs}
        """By id; all that are in a list."""

        def listed(places: Iterable[int], most: int) -> deque[RunSummary]:
            return deque((state.runs[place] for place in places), maxlen=most)

        self._window = listed(state.window, window)
        self._reported = _fair((state.runs[place] for place in state.reported), sample)
        self._kept: dict[int, _Kept] = {
            version: _Kept(
                _fair((state.runs[place] for place in places), sample),
                _fair((state.runs[place] for place in state.outcomes.get(version, ())), sample),
                {derived_id("drawn", run.id): run for run in listed(state.drawn.get(version, ()), sample)},
            )
            for version, places in state.samples.items()
        }

    @property
    def window(self) -> deque[RunSummary]:
        """The newest runs, oldest first."""
        return self._window

    @property
    def reported(self) -> FairWindow[RunSummary]:
        """The newest runs with an outcome, in the order in which the outcomes came; none of `found`."""
        return self._reported

    def snapshot(self) -> Remembered:
        """The state as of now."""
        self._forget()
        places = {run_id: place for place, run_id in enumerate(self._runs)}

        def listed(runs: Iterable[RunSummary]) -> list[int]:
            return [places[run.id] for run in runs]

        return Remembered(
            runs=list(self._runs.values()),
            window=listed(self._window),
            reported=listed(self._reported),
            samples={version: listed(kept.runs) for version, kept in self._kept.items()},
            outcomes={version: listed(kept.reported) for version, kept in self._kept.items()},
            drawn={version: listed(kept.drawn.values()) for version, kept in self._kept.items() if kept.drawn},
            spans=self._spans,
            found=sorted(self._found),
            swap=self.swap,
            condemned=self.condemned,
        )

    def add(self, run: RunSummary) -> RunSummary | None:
        """Take in a run; None if it is older than all that is remembered, or there already: then it takes over an
        outcome that it lacks.

        A judge that was away brings its judgements late: their runs were here and gone.

        Returns:
            The object that is remembered: another than `run` if the store was asked for it before it was heard of.
        """
        known = self._runs.get(run.id)
        if known is not None and known.outcome is None and run.outcome is not None:
            self.outcome(run.id, run.outcome)
        full = len(self._window) == self._window.maxlen
        if (known is not None and run.id not in self._found) or (full and run.ended < self._window[0].ended):
            return None
        self._found.discard(run.id)
        run = self._runs.setdefault(run.id, run)
        self._window.append(run)
        kept = self._of(run)
        if kept is not None:
            kept.runs.append(run)
        if run.outcome is not None:
            self._reported.append(run)
            if kept is not None and known is None:
                kept.has_outcome(run, self._sample)
        self._bound()
        return run

    def found(self, run: RunSummary) -> bool:
        """Take in a run with an outcome that had been forgotten, or was never heard of: it counts as an outcome of its
        version and as nothing else. False, and nothing done, if its version is not remembered."""
        kept = self._of(run)
        if kept is None or run.id in self._runs:
            return False
        self._runs[run.id] = run
        self._found.add(run.id)
        kept.has_outcome(run, self._sample)
        self._bound()
        return True

    def outcome(self, run_id: str, outcome: float, at: float | None = None) -> bool:
        """An outcome that came on its own `at` a time in Unix seconds; False if there is no such run here."""
        run = self._runs.get(run_id)
        if run is None:
            return False
        first = run.outcome is None
        run.outcome, run.late = outcome, 0 if at is None else lateness(at - run.ended)
        if first:
            self._reported.append(run)
            kept = self._of(run)
            if kept is not None:
                kept.has_outcome(run, self._sample)
        return True

    def unreported(self, run_id: str) -> RunSummary | None:
        """The run, if it is remembered and has no outcome yet."""
        run = self._runs.get(run_id)
        return run if run is not None and run.outcome is None else None

    def judgement(self, run_id: str, attribution: Attribution, cluster: str) -> RunSummary | None:
        """The run, with what the judge thought of it; None if it is not remembered or has been judged before."""
        run = self._runs.get(run_id)
        if run is None or run.cluster:
            return None
        take_judgement(run, attribution, cluster)
        return run

    def swapped(self, swap: Swap) -> None:
        """The serving weights changed; a second engine that follows the first changes nothing."""
        if self.swap is not None and (swap.since < self.swap.since or swap.version == self.swap.version):
            return
        self.swap = swap
        if not self._spans or self._spans[-1][1] != swap.previous:
            # Since when the version before served is not known; whoever was here served by it.
            self._spans = [(min((run.started for run in self._window), default=swap.since), swap.previous)]
        self._spans = [*self._spans, (swap.since, swap.version)][-2 * self._versions :]
        for version in (swap.previous, swap.version):
            if version not in self._kept:
                # Runs are often heard of before the swap is.
                self._kept[version] = self._listed(version, self._window, self._reported)
        # Runs without versions are sorted by time, and the time is known only now.
        previous = self._kept[swap.previous]
        relisted = self._kept[swap.previous] = self._listed(swap.previous, previous.runs, previous.reported)
        relisted.drawn.update({key: run for key, run in previous.drawn.items() if self.version(run) == swap.previous})
        for key in sorted(relisted.drawn)[self._sample :]:
            del relisted.drawn[key]
        self._kept[swap.version] = self._kept.pop(swap.version)
        while len(self._kept) > self._versions:
            del self._kept[next(iter(self._kept))]
        for version, kept in self._kept.items():
            if version not in (swap.version, swap.previous):
                kept.drawn.clear()
        self._forget()

    def condemn(self, version: int, since: int | None = None) -> None:
        """`version`, and all that served from `since` to it, was ordered back: neither watched nor compared with any
        more."""
        served = {known for _, known in self._spans if since is not None and since <= known < version}
        self.condemned = [*self.condemned[-63 + len(served) :], *sorted(served), version]

    def watched(self, least: int, *, reported: bool = False) -> Watched | None:
        """What serves and what to compare it with; None if there is nothing to say of it: nothing was swapped, it was
        ordered back already, or it came back because of such an order.

        Args:
            least: runs that the reference should have: versions are added up, from the oldest, until it has them.
            reported: of runs with an outcome, instead of all.
        """
        swap = self.swap
        if swap is None or swap.version in self.condemned or swap.version < swap.previous:
            return None
        listed = {version: kept.reported if reported else kept.runs for version, kept in self._kept.items()}
        reference: list[RunSummary] = []
        oldest = -1
        for version, runs in listed.items():
            if version not in (swap.version, swap.previous, *self.condemned) and len(reference) < least:
                oldest = version if oldest < 0 else oldest
                reference += runs
        return Watched(
            swap, list(listed.get(swap.version, ())), list(listed.get(swap.previous, ())), reference, oldest
        )  # fmt: skip

    def drawn(self) -> tuple[list[RunSummary], list[RunSummary]]:
        """Runs with an outcome of the version that serves, and of the one before, drawn by lot; oldest first."""
        swap = self.swap
        if swap is None or swap.version not in self._kept or swap.previous not in self._kept:
            return [], []
        after, before = (
            sorted(self._kept[version].drawn.values(), key=lambda run: run.ended)
            for version in (swap.version, swap.previous)
        )
        return after, before

    def outcomes_of(self, version: int) -> list[RunSummary]:
        """The newest runs of `version` with an outcome, oldest first; empty if it is not kept."""
        kept = self._kept.get(version)
        return [] if kept is None else list(kept.reported)

    def parties(self) -> list[str]:
        """Whose word `watched` rests on: the party of each run with an outcome, of what serves and of what did."""
        swap = self.swap
        versions = () if swap is None else (swap.previous, swap.version)
        listed = [self._kept[version].reported for version in versions if version in self._kept] or [self._reported]
        return [run.party for runs in listed for run in runs]

    def version(self, run: RunSummary) -> int | None:
        """The version that sampled all of `run`, by time where the engine gave none; None if several did, or if it is
        not known."""
        if run.low >= 0:
            return run.low if run.low == run.high else None
        found, until = None, float("inf")
        for since, version in reversed(self._spans):
            if run.started >= since:
                found = version
                break
            until = since
        return found if run.ended < until else None

    def _of(self, run: RunSummary) -> _Kept | None:
        version = self.version(run)
        return None if version is None else self._kept.get(version)

    def _listed(self, version: int, runs: Iterable[RunSummary], reported: Iterable[RunSummary]) -> _Kept:
        of_all, with_outcome = (
            _fair((run for run in listed if self.version(run) == version), self._sample) for listed in (runs, reported)
        )
        kept = _Kept(of_all, _fair((), self._sample), {})
        for run in with_outcome:
            kept.has_outcome(run, self._sample)
        return kept

    def _bound(self) -> None:
        if len(self._runs) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Drop what is in no list any more."""
        kept: list[Iterable[RunSummary]] = [
            runs for version in self._kept.values() for runs in (version.runs, version.reported, version.drawn.values())
        ]
        self._runs = {run.id: run for runs in (self._window, self._reported, *kept) for run in runs}
        self._found &= self._runs.keys()
