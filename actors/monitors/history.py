"""What the monitors look back on: the newest runs, and a sample of runs of each version that served lately.

Bounded in both directions: `window` newest runs, and `sample` newest runs for each of `versions` versions. A run is one
object in both, so an outcome or a judgement that comes late is seen by all.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from actors.messages import Attribution
from actors.monitors.runs import Run, take_judgement


class Swap(msgspec.Struct, frozen=True):
    """A change of the serving weights."""

    engine: str
    version: int
    previous: int
    since: float


class Remembered(msgspec.Struct):
    """All that a `History` holds; msgpack-able, so that it survives a restart."""

    window: list[Run] = []
    samples: dict[int, list[Run]] = {}
    """By version, the one that began to serve longest ago first."""
    swap: Swap | None = None
    condemned: list[int] = []
    """Versions that were ordered back, newest last."""


class Watched(msgspec.Struct, frozen=True):
    """The version that serves, and what to compare it with."""

    swap: Swap
    after: list[Run]
    """Its runs."""
    previous: list[Run]
    """Runs of the version before."""
    reference: list[Run]
    """Runs of versions before that one, the oldest remembered."""
    oldest: int
    """The first of the reference's versions, -1 without."""


class History:
    """Runs, by age and by version."""

    def __init__(self, window: int, sample: int, versions: int, state: Remembered | None = None) -> None:
        """
        Args:
            window: newest runs, of whatever version.
            sample: newest runs kept for each version.
            versions: how many versions are kept, the serving one included.
        """
        state = state or Remembered()
        self._sample, self._versions = sample, versions
        self.swap, self.condemned = state.swap, list(state.condemned)
        self._runs: dict[str, Run] = {}
        """By id; all that are in the window or in a sample."""
        self._samples: dict[int, deque[Run]] = {}
        for version, runs in state.samples.items():
            self._samples[version] = deque((self._one(run) for run in runs), maxlen=sample)
        self._window: deque[Run] = deque((self._one(run) for run in state.window), maxlen=window)

    def _one(self, run: Run) -> Run:
        return self._runs.setdefault(run.id, run)

    @property
    def window(self) -> deque[Run]:
        """The newest runs, oldest first."""
        return self._window

    def snapshot(self) -> Remembered:
        """The state as of now."""
        samples = {version: list(runs) for version, runs in self._samples.items()}
        return Remembered(list(self._window), samples, self.swap, self.condemned)

    def add(self, run: Run) -> bool:
        """Take in a run; False, and nothing done, if it is there already, or older than all that is remembered.

        A judge that was away brings its judgements late: their runs were here and gone.
        """
        full = len(self._window) == self._window.maxlen
        if run.id in self._runs or (full and run.ended < self._window[0].ended):
            return False
        self._runs[run.id] = run
        self._window.append(run)
        version = self._version(run)
        if version is not None and version in self._samples:
            self._samples[version].append(run)
        if len(self._runs) > 2 * (self._window.maxlen or 0) + self._versions * self._sample:
            self._forget()
        return True

    def outcome(self, run_id: str, outcome: float) -> bool:
        """A late outcome; False if the run is not remembered."""
        run = self._runs.get(run_id)
        if run is not None:
            run.outcome = outcome
        return run is not None

    def judgement(self, run_id: str, attribution: Attribution, cluster: str) -> Run | None:
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
        for version in (swap.previous, swap.version):
            if version not in self._samples:
                self._samples[version] = deque(maxlen=self._sample)
                # Runs are often heard of before the swap is.
                self._samples[version].extend(run for run in self._window if self._version(run) == version)
        # Runs without versions are sorted by time, and the time is known only now.
        self._samples[swap.previous] = deque(
            (run for run in self._samples[swap.previous] if run.low >= 0 or run.started < swap.since),
            maxlen=self._sample,
        )
        self._samples[swap.version] = self._samples.pop(swap.version)
        while len(self._samples) > self._versions:
            del self._samples[next(iter(self._samples))]
        self._forget()

    def condemn(self, version: int) -> None:
        """`version` was ordered back: it is neither watched nor compared with any more."""
        self.condemned = [*self.condemned[-63:], version]

    def watched(self, least: int) -> Watched | None:
        """What serves and what to compare it with; None if there is nothing to say of it: nothing was swapped, it was
        ordered back already, or it came back because of such an order.

        Args:
            least: runs that the reference should have: versions are added up, from the oldest, until it has them.
        """
        swap = self.swap
        if swap is None or swap.version in self.condemned or swap.version < swap.previous:
            return None
        reference: list[Run] = []
        oldest = -1
        for version, runs in self._samples.items():
            if version not in (swap.version, swap.previous, *self.condemned) and len(reference) < least:
                oldest = version if oldest < 0 else oldest
                reference += runs
        after = list(self._samples.get(swap.version, ()))
        return Watched(swap, after, list(self._samples.get(swap.previous, ())), reference, oldest)

    def _version(self, run: Run) -> int | None:
        """The version that sampled all of `run`, by time where the engine gave none; None if several did."""
        if run.low >= 0:
            return run.low if run.low == run.high else None
        if self.swap is None:
            return None
        if run.started >= self.swap.since:
            return self.swap.version
        return self.swap.previous if run.ended < self.swap.since else None

    def _forget(self) -> None:
        """Drop what is in no list any more."""
        kept: Iterable[Iterable[Run]] = (self._window, *self._samples.values())
        self._runs = {run.id: run for runs in kept for run in runs}
