"""What the monitors look back on: the newest runs, and a sample of runs of each version that served lately.

Two lists hold all: runs in the order in which they were heard of, and runs with an outcome in the order in which the
outcomes came. Where one run in fifty is reported, the newest 384 runs have eight outcomes, but the newest 384 outcomes
are there all the same. What belongs to which version is read off them, and what nobody reads any more is let go. A run
is one object in both, so an outcome or a judgement that comes late is seen by all.
"""

from collections.abc import Iterable
from itertools import islice

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
    """All that a `History` holds; msgpack-able, so that it survives a restart."""

    runs: list[RunSummary] = []
    """Each once."""
    heard: list[int] = []
    """Places in `runs`."""
    told: list[int] = []
    spans: list[tuple[float, int]] = []
    """Since when which version serves, oldest first."""
    swap: Swap | None = None
    condemned: list[int] = []
    """Versions that were ordered back, newest last."""


class Fresh(msgspec.Struct, frozen=True):
    """Runs by what came of them since the monitors looked last."""

    heard: list[RunSummary] = []
    """They closed; outcome and judgement may come later, in the same object."""
    judged: list[RunSummary] = []
    concluded: list[RunSummary] = []
    """They have an outcome, for the first time."""


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
    """Runs, by age and by version.

    Of the newest `versions` versions the newest `sample` runs are kept, and as many with an outcome; no party washes
    out the others'. Besides the newest `window` runs and `sample` outcomes, for they are often heard of before the swap
    to their version is.
    """

    def __init__(self, window: int, sample: int, versions: int, state: Remembered | None = None) -> None:
        state = state or Remembered()
        self._window, self._sample, self._versions = window, sample, versions
        self._most = 2 * (window + sample * (2 * versions + 3))
        """In the two lists together: twice as many as anybody reads."""
        self.swap, self.condemned = state.swap, list(state.condemned)
        self._spans = list(state.spans)
        self._heard, self._told = (
            {run.id: run for run in (state.runs[place] for place in places)} for places in (state.heard, state.told)
        )
        self._fair: dict[tuple[int, bool], FairWindow[RunSummary]] = {}
        """By version, and whether they have an outcome: what was read off since the last swap."""
        self.fresh = Fresh()

    @property
    def window(self) -> list[RunSummary]:
        """The newest runs, oldest first."""
        return _last(self._heard, self._window)

    @property
    def reported(self) -> list[RunSummary]:
        """The newest runs with an outcome, in the order in which the outcomes came."""
        return _last(self._told, self._sample)

    def looked(self) -> None:
        """All monitors have seen what is fresh."""
        self.fresh = Fresh()

    def snapshot(self) -> Remembered:
        """The state as of now."""
        self._forget()
        runs = self._heard | self._told
        places = {run_id: place for place, run_id in enumerate(runs)}
        heard, told = ([places[run_id] for run_id in listed] for listed in (self._heard, self._told))
        return Remembered(list(runs.values()), heard, told, self._spans, self.swap, self.condemned)

    def add(self, run: RunSummary) -> bool:
        """Take in a run; False if it is older than all that is remembered, or there already: then it takes over an
        outcome that it lacks.

        A judge that was away brings its judgements late: their runs were here and gone.
        """
        known = self._known(run.id)
        if known is not None and known.outcome is None and run.outcome is not None:
            self.outcome(run.id, run.outcome)
        oldest = next(islice(reversed(self._heard.values()), self._window - 1, None), None)
        if run.id in self._heard or (oldest is not None and run.ended < oldest.ended):
            return False
        self._take(known or run, self._heard)
        if run.outcome is not None and known is None:
            self._take(run, self._told)
        return True

    def found(self, run: RunSummary) -> bool:
        """Take in a run with an outcome that had been forgotten, or was never heard of: it counts as an outcome of its
        version and as nothing else. False, and nothing done, if its version is not remembered."""
        if self._known(run.id) is not None or self.version(run) not in self._remembered():
            return False
        self._take(run, self._told)
        return True

    def outcome(self, run_id: str, outcome: float, at: float | None = None) -> bool:
        """An outcome that came on its own `at` a time in Unix seconds; False if there is no such run here."""
        run = self._known(run_id)
        if run is None:
            return False
        run.outcome, run.late = outcome, 0 if at is None else lateness(at - run.ended)
        if run_id not in self._told:
            self._take(run, self._told)
        return True

    def judgement(self, run_id: str, attribution: Attribution, cluster: str) -> None:
        """What the judge thought of a run, if it is remembered and has not been judged before."""
        run = self._known(run_id)
        if run is not None and not run.cluster:
            take_judgement(run, attribution, cluster)
            self.fresh.judged.append(run)

    def swapped(self, swap: Swap) -> None:
        """The serving weights changed; a second engine that follows the first changes nothing."""
        if self.swap is not None and (swap.since < self.swap.since or swap.version == self.swap.version):
            return
        self.swap = swap
        if not self._spans or self._spans[-1][1] != swap.previous:
            # Since when the version before served is not known; whoever was here served by it.
            self._spans = [(min((run.started for run in self.window), default=swap.since), swap.previous)]
        self._spans = [*self._spans, (swap.since, swap.version)][-2 * self._versions :]
        self._fair.clear()  # runs without versions are sorted by time, and the time is known only now
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
        reference: list[RunSummary] = []
        oldest = -1
        for version in self._remembered():
            if version not in (swap.version, swap.previous, *self.condemned) and len(reference) < least:
                oldest = version if oldest < 0 else oldest
                reference += self._of(version, reported)
        after, previous = (list(self._of(version, reported)) for version in (swap.version, swap.previous))
        return Watched(swap, after, previous, reference, oldest)

    def drawn(self) -> tuple[list[RunSummary], list[RunSummary]]:
        """Runs with an outcome of the version that serves, and of the one before, drawn by lot; oldest first.

        Of all with an outcome those with the least digests: whether a run is here says nothing of how soon or how well
        it was reported.
        """
        versions = (-1, -1) if self.swap is None else (self.swap.version, self.swap.previous)
        sides: list[list[RunSummary]] = []
        for version in versions:
            told = [run for run in self._told.values() if self.version(run) == version]
            lots = sorted(told, key=lambda run: derived_id("drawn", run.id))[: self._sample]
            sides.append(sorted(lots, key=lambda run: run.ended))
        return sides[0], sides[1]

    def outcomes_of(self, version: int) -> list[RunSummary]:
        """The newest runs of `version` with an outcome, oldest first; empty if it is not kept."""
        return list(self._of(version, True)) if version in self._remembered() else []

    def parties(self) -> list[str]:
        """Whose word `watched` rests on: the party of each run with an outcome, of what serves and of what did."""
        swap = self.swap
        runs = self.reported
        if swap is not None:
            runs = [*self._of(swap.previous, True), *self._of(swap.version, True)]
        return [run.party for run in runs]

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

    def _known(self, run_id: str) -> RunSummary | None:
        return self._heard.get(run_id) or self._told.get(run_id)

    def _remembered(self) -> list[int]:
        """The newest versions, the one that began to serve longest ago first."""
        newest_first = dict.fromkeys(version for _, version in reversed(self._spans))
        return list(islice(newest_first, self._versions))[::-1]

    def _of(self, version: int, reported: bool) -> FairWindow[RunSummary]:
        if (version, reported) not in self._fair:
            runs = self._told if reported else self._heard
            its = (run for run in runs.values() if self.version(run) == version)
            self._fair[version, reported] = FairWindow(self._sample, lambda run: run.party, its)
        return self._fair[version, reported]

    def _take(self, run: RunSummary, listed: dict[str, RunSummary]) -> None:
        told, version = listed is self._told, self.version(run)
        listed[run.id] = run
        (self.fresh.concluded if told else self.fresh.heard).append(run)
        fair = None if version is None else self._fair.get((version, told))
        if fair is not None:
            fair.append(run)
        if len(self._heard) + len(self._told) > self._most:
            self._forget()

    def _forget(self) -> None:
        """Let go of what nobody will read."""
        heard, told = ([self._of(version, reported) for version in self._remembered()] for reported in (False, True))
        self._heard, self._told = (
            {run_id: run for run_id, run in listed.items() if run_id in kept}
            for listed, kept in (
                (self._heard, _ids(self.window, *heard)), (self._told, _ids(self.reported, *told, *self.drawn()))
            )
        )  # fmt: skip


def _last(runs: dict[str, RunSummary], size: int) -> list[RunSummary]:
    return list(islice(reversed(runs.values()), size))[::-1]


def _ids(*listed: Iterable[RunSummary]) -> set[str]:
    return {run.id for runs in listed for run in runs}
