"""Is a run fresh enough for the next update? It depends on what is trained, and on what serves.

Only weights that serve bring new runs from production. So what comes from the version that serves is never too old: it
is the newest that there can be. While the learner is too far ahead of it, it waits, until something newer serves or the
learner goes back.
"""

from typing import Literal

from actors.messages import Candidate, Lineage, Serving, Trajectory

Fate = Literal["fresh", "waits", "stale", "abandoned"]
"""`waits`: too far behind what is trained, but nothing newer serves. `abandoned`: of a branch that the learner left."""


class Freshness:
    """The lineage, where the learner stands on it, and what serves."""

    def __init__(self) -> None:
        self.lineage = Lineage()
        self.head = 0
        """Version that the next update starts from."""
        self._since = float("-inf")
        self._serving: dict[str, tuple[float, int]] = {}
        self._fates: dict[tuple[int, int, int], Fate] = {}
        self.revision = 0
        """Changes whenever a fate may have."""

    @property
    def serving(self) -> frozenset[int]:
        """Versions that serve; what everything starts from if nobody has said."""
        return frozenset(version for _, version in self._serving.values()) or frozenset({0})

    @property
    def lead(self) -> int | None:
        """Updates that the learner is ahead of the nearest version that serves; None: it is on another branch."""
        found = [self.lineage.distance(version, self.head) for version in self.serving]
        return min((steps for steps in found if steps is not None), default=None)

    def trained(self, candidate: Candidate) -> None:
        """The learner made a version, or went back to one; answers that change nothing change nothing here."""
        if candidate.answer == "trained":
            self.lineage.add(candidate.version, candidate.parent)
        if candidate.answer in ("trained", "went_back") and candidate.created >= self._since:
            self.head, self._since = candidate.version, candidate.created
        self._changed()

    def serves(self, serving: Serving) -> None:
        """An engine has other weights."""
        before, _ = self._serving.get(serving.engine, (float("-inf"), 0))
        if serving.result in ("started", "swapped") and serving.since >= before:
            self._serving[serving.engine] = (serving.since, serving.version)
        self._changed()

    def fate(self, run: Trajectory, limit: int) -> Fate:
        """What becomes of `run`, whose oldest token may be `limit` updates behind the head."""
        key = (run.min_version, run.max_version, limit)
        if key not in self._fates:
            self._fates[key] = self._fate(run, limit)
        return self._fates[key]

    def _fate(self, run: Trajectory, limit: int) -> Fate:
        behind = [self.lineage.distance(version, self.head) for version in (run.min_version, run.max_version)]
        if all(steps is not None and steps <= limit for steps in behind):
            return "fresh"
        # Only the oldest tokens count: a run that met a swap is as old as what it began with.
        if any(self.lineage.distance(run.min_version, version) == 0 for version in self.serving):
            return "waits"
        return "abandoned" if None in behind else "stale"

    def _changed(self) -> None:
        self._fates.clear()
        self.revision += 1
