"""Does the canary fare worse than the rest? Live runs of both, compared again and again without fooling oneself.

    production trajectories, failed calls  ->  `Arms`  ->  worse, good enough, or not yet

The tap gives each new trajectory to the canary by chance, so the two arms differ in their weights alone. Two rates are
compared, a run each: runs whose outcome was a failure, and runs in which a tool or the engine answered with an error.

Asked with every new run, a test at 5 % would speak up against most innocent versions sooner or later. So it is asked at
fixed sizes of the canary's arm only, each `GROWTH` times the last, and look number k (from 0) may err with probability
`error / 2 / ((k + 1) (k + 2))`: over any number of looks, and both rates, that sums up to `error` (a union bound, hence
valid whatever the looks have to do with each other). Each look is a one-sided Newcombe interval
(`actors.gate_statistics`).
"""

from collections.abc import Iterable

import msgspec

from actors.gate_statistics import newcombe
from actors.messages import Trajectory
from actors.monitors import is_error
from actors.ports import CanaryStore
from actors.serving_plan import Trial

GROWTH = 1.5
"""From one look to the next."""
_ROWS = 20_000
"""Newest trajectories that are asked for; what is beyond has been counted before."""
_DETAILS = 512
"""Trajectories whose bodies are read at a time."""
_FAILED = 1000
_LOOKS = "swapper/canary"


class CanarySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The trial of a promoted version on one of several engines."""

    share: float = 0.1
    """Of new trajectories that the canary gets, 0 to 1."""
    seconds: float = 300.0
    """A trial lasts so long at least."""
    runs: int = 50
    """Runs with an outcome that the canary must have had at least, unless the deadline passes."""
    deadline_seconds: float = 3600.0
    """After so long a canary that nothing speaks against is taken for good; it needs one run at least."""
    error: float = 0.05
    """Probability that a version as good as the rest is rolled back, over the whole trial."""
    first_look: int = 10
    """Runs in the canary's arm when it is first compared; each further look at 1.5 times as many."""


class Arm(msgspec.Struct, frozen=True):
    """The runs of one side."""

    runs: int = 0
    errors: int = 0
    """Runs in which a tool or the engine answered with an error."""
    judged: int = 0
    """Runs with an outcome."""
    solved: int = 0

    @property
    def failed(self) -> int:
        """Runs with an outcome that is a failure."""
        return self.judged - self.solved


class Arms(msgspec.Struct, frozen=True):
    """Both sides since the trial began."""

    canary: Arm = Arm()
    rest: Arm = Arm()


class Looks(msgspec.Struct):
    """How often each rate was compared in one trial; survives restarts, or a restart would be a look for free."""

    version: int = -1
    since: float = 0.0
    failures: int = 0
    errors: int = 0


class _Seen(msgspec.Struct):
    canary: bool | None
    """None: it counts on neither side."""
    error: bool
    outcome: float | None = None


def worse(arms: Arms, looks: Looks, settings: CanarySettings, *, last: bool = False) -> str:
    """Why the canary is worse than the rest, empty if that cannot be said; counts its looks in `looks`.

    Args:
        last: the trial is about to end well: look once more, whatever the size.
    """
    canary, rest = arms.canary, arms.rest
    for name, mine, theirs in (
        ("failures", (canary.failed, canary.judged), (rest.failed, rest.judged)),
        ("errors", (canary.errors, canary.runs), (rest.errors, rest.runs)),
    ):
        look: int = getattr(looks, name)
        due = settings.first_look * GROWTH**look
        if min(mine[1], theirs[1]) < settings.first_look or not (last or mine[1] >= due):
            continue
        look += 1
        # Looks that were skipped, because many runs came at once, are not made up for.
        while settings.first_look * GROWTH**look <= mine[1]:
            look += 1
        setattr(looks, name, look)
        level = settings.error / 2 / (look * (look + 1))
        difference = newcombe(mine, theirs, 1 - 2 * level)
        if difference.low > 0:
            return (
                f"canary: {mine[0]} of {mine[1]} runs with {name}, {theirs[0]} of {theirs[1]} elsewhere "
                f"(difference {difference.estimate:.3f}, at least {difference.low:.3f})"
            )
    return ""


class CanaryWatch:
    """Keeps the two arms of the trial that is on, and concludes from them."""

    def __init__(self, settings: CanarySettings, store: CanaryStore) -> None:
        self._settings, self._store = settings, store
        self._looks: Looks | None = None
        self._seen: dict[str, _Seen] = {}
        self.arms = Arms()

    async def verdict(self, trial: Trial, stable: int, now: float, *, hold: bool) -> tuple[str, str]:
        """What the trial has come to: ("rollback" | "roll_on" | "", why).

        Args:
            stable: version that the rest serves.
            hold: nothing may be rolled on now.
        """
        settings, looks = self._settings, await self._begin(trial)
        arms = await self._count(trial, stable)
        before = (looks.failures, looks.errors)
        reason = worse(arms, looks, settings)
        age = now - trial.since
        enough = age >= settings.seconds and arms.canary.judged >= settings.runs
        late = age >= settings.deadline_seconds and arms.canary.runs > 0
        ends = (enough or late) and not hold
        if not reason and ends:
            reason = worse(arms, looks, settings, last=True)
        if (looks.failures, looks.errors) != before:
            # Before anything is concluded from it: a look that was forgotten could be had again.
            await self._store.state_put(_LOOKS, msgspec.json.encode(looks))
        if reason:
            return "rollback", reason
        if not ends:
            return "", ""
        canary, rest = arms.canary, arms.rest
        told = (
            f"canary: {canary.solved}/{canary.judged} solved, {canary.errors}/{canary.runs} with errors; elsewhere "
            f"{rest.solved}/{rest.judged}, {rest.errors}/{rest.runs}"
        )
        return "roll_on", told if enough else f"{told}; the deadline passed"

    async def _begin(self, trial: Trial) -> Looks:
        looks = self._looks
        if looks is None:
            data = await self._store.state_get(_LOOKS)
            try:
                looks = msgspec.json.decode(data, type=Looks) if data else Looks()
            except msgspec.DecodeError:
                looks = Looks()
        if (looks.version, looks.since) != (trial.goal.version, trial.since):
            looks = Looks(trial.goal.version, trial.since)
        if looks is not self._looks:
            self._seen.clear()
        self._looks = looks
        return looks

    async def _count(self, trial: Trial, stable: int) -> Arms:
        rows = await self._store.recent_outcomes(source="production", since=trial.since, limit=_ROWS)
        fresh = [row.id for row in rows if row.id not in self._seen][:_DETAILS]
        for run, engine in await self._store.closed_runs(fresh) if fresh else ():
            self._seen[run.id] = _Seen(
                _side(run, engine, trial, stable), any(is_error(s.observation) for s in run.steps)
            )
        for row in rows:
            if row.id in self._seen:
                self._seen[row.id].outcome = row.outcome
        calls = await self._store.failed_calls(trial.since, _FAILED)
        mine = {call.run for call in calls if call.engine == trial.engine}
        theirs = {call.run for call in calls if call.engine != trial.engine}
        seen = self._seen.values()
        self.arms = Arms(
            _arm((one for one in seen if one.canary is True), len(mine)),
            _arm((one for one in seen if one.canary is False), len(theirs)),
        )
        return self.arms


def _side(run: Trajectory, engine: str, trial: Trial, stable: int) -> bool | None:
    """True: the canary's. By the weights that sampled it; by the engine where it does not say."""
    if run.started < trial.since or run.side_of:
        return None
    if run.min_version < 0:
        return None if not engine else engine == trial.engine
    if run.min_version == run.max_version == trial.goal.version:
        return True
    return False if run.min_version == run.max_version == stable else None


def _arm(seen: Iterable[_Seen], failed: int) -> Arm:
    """
    Args:
        failed: runs that ended with an error of the engine and so are no trajectories; they count as errors.
    """
    runs = errors = judged = solved = 0
    for one in seen:
        runs += 1
        errors += one.error
        judged += one.outcome is not None
        solved += one.outcome is not None and one.outcome >= 0.5
    return Arm(runs + failed, errors + failed, judged, solved)
