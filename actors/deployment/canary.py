"""Does what is on trial fare worse than what was? Live runs of both, compared again and again without fooling oneself.

A test at 5 % asked with every new run would speak up against most innocent versions. So it is asked at fixed sizes of
the trial's arm, each `GROWTH` times the last, and each look may err with its part of `ERROR` (`level`): a union bound,
valid whatever the looks have to do with each other. A version that looks worse without being shown to be is watched for
twice as long, and no deadline ends that.

With several engines the trial has one share of new runs, fixed when it begins: what brings the outcomes that it needs
within `_WITHIN` at the last day's rate, a tenth at least, at most the part that its engine has without a trial, and
`MOST_SHARE`. Whoever changed it within a trial would compare the runs of one hour with those of another.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf

import msgspec

from actors.deployment.arms import SAMPLE, Arms, ArmsCount
from actors.kinds.kinds import Kinds
from actors.statistics.change_tests import Strata, means, planned_looks, share_rise
from actors.statistics.intervals import wilson
from actors.store import Store
from actors.versions.desired_state import ServingTrial

GROWTH = 1.5
"""From one look to the next."""
_DOWN = 0.1
"""Observed fall of success from which on a version looks worse: the least that the sentinel acts on."""
_EARLY = 0.8
"""Of the error, for the looks until a trial has the runs that it needs, and the one that ends it."""
_FIRST_DRAWN = 4
"""Runs on trial at the first look where chance drew them. Four that failed where nine in ten succeed are as much as
they seem, for the other side's reports come as late; against runs from before, failures that are told sooner than
successes look like that too."""
_WITHIN, _DAY = 7200.0, 86_400.0
"""Seconds: a trial should have its outcomes within so many, at the rate of so many before it."""
_RATE_ROWS = 4096
"""Newest runs of that day that the rate is read from."""
_SECONDS_A_ROW = 0.002
"""From one count of the runs to the next, times the runs: one takes 20 microseconds, so that a long trial never takes
more than a hundredth of a core, and one of a few hundred runs is counted with every tick."""
_LOOKS = "swapper/canary"
SHARE = 0.1
"""With several engines: of new trajectories, what the one with the trial gets at least: where outcomes are many, a bad
version harms one in ten."""
MOST_SHARE = 0.5
"""The same at most: with half of the runs on either side a comparison is surest."""
FIRST_LOOK = 8
"""Runs on trial when they are first compared, with one engine: of fewer, failures that are told sooner than successes
may be all. With several `_FIRST_DRAWN`."""
ERROR = 0.05
"""Probability that a version as good as what it is compared with is rolled back, over the whole trial; the gate's own
error is the same by default."""


class CanarySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The trial of a promoted version: at one of several engines, or at the only one."""

    seconds: float = 60.0
    """A trial lasts so long at least."""
    runs: int = 32
    """Runs with an outcome that a version on trial must have had at least, unless the deadline passes; twice as many if
    it looks worse."""
    deadline_seconds: float = 3600.0
    """After so long a version that does not look worse is taken for good; it needs the outcomes of `FIRST_LOOK`, with
    several engines those of the next look beyond."""


class Looks(msgspec.Struct):
    """How often each rate was compared in one trial, and its share; survives restarts, or a restart would be a look
    for free."""

    version: int = -1
    since: float = 0.0
    failures: int = 0
    errors: int = 0
    lately: int = 0
    complete: int = 0
    share: float = 0.0
    """Of new trajectories; with several engines."""


def worse(arms: Arms, looks: Looks, settings: CanarySettings, *, last: bool = False) -> str:
    """Why what is on trial is worse than the rest, empty if that cannot be said; counts its looks in `looks`.

    The `last` look, before a trial ends well, is had whatever the size."""
    first = _first(arms.drawn)
    for series, name, rate, against in (
        ("failures", "failures", arms.failures, arms.against),
        ("complete", "failures", arms.complete, f"{arms.against}, of those that are all reported"),
        ("lately", "failures", arms.lately, "lately"),
        ("errors", "errors", arms.errors, arms.against),
    ):
        look: int = getattr(looks, series)
        if min(rate.runs, rate.rest) < first or not (last or rate.runs >= first * GROWTH**look):
            continue
        look += 1
        # Looks that were skipped, because many runs came at once, are not made up for.
        while first * GROWTH**look <= rate.runs:
            look += 1
        setattr(looks, series, look)
        allowed = level(look, settings, drawn=arms.drawn)
        chance = share_rise(rate.strata)
        if chance <= allowed:
            return (
                f"on trial: {rate.bad} of {rate.runs} runs with {name}, {rate.rest_bad} of {rate.rest} {against} "
                f"(among runs of a kind: p = {chance:.2g}, look {look} asks for {allowed:.2g})"
            )
    return ""


def level(look: int, settings: CanarySettings, *, drawn: bool) -> float:
    """Probability with which look number `look` (from 1) at one rate may err; 0 for looks that no trial needs.

    Failures and errors share the error; with one engine (not `drawn`) so do failures against all lately, and those of
    runs that all reports are in of."""
    first, series = _first(drawn), 2 if drawn else 4
    early = planned_looks(first, GROWTH, settings.runs) + 1
    late = max(0, planned_looks(first, GROWTH, SAMPLE) - early)
    if look <= early:
        return ERROR / series * (_EARLY if late else 1.0) / early
    return ERROR / series * (1.0 - _EARLY) / late if look <= early + late else 0.0


def _first(drawn: bool) -> int:
    return _FIRST_DRAWN if drawn else FIRST_LOOK


def looks_worse(strata: Strata) -> bool:
    """Whether failures are more by `_DOWN`, whatever that is worth."""
    now, was = means(strata)
    return now - was > _DOWN


class CanaryWatch:
    """Keeps the two arms of the trial that is on, concludes from them, and says what share it needs."""

    def __init__(
        self, settings: CanarySettings, store: Store, *, parts: Mapping[str, float], kinds: Kinds | None = None
    ) -> None:
        """`parts` of new trajectories, by engine, while nothing is on trial."""
        self._settings, self._store, self._parts = settings, store, parts
        self._drawn = len(parts) > 1
        self._looks, self._written = Looks(), b""
        self._count = ArmsCount(store, kinds=kinds or Kinds(), alone=not self._drawn, sample=settings.runs)
        self._arms = Arms(drawn=self._drawn)
        self._counted = (0.0, 0.0)
        """When, and until when not again; unix seconds."""

    def arms(self, trial: ServingTrial) -> Arms:
        """What was counted so far in `trial`; nothing yet if it is not the one that was last looked at."""
        return self._arms if self._of(trial) is not None else Arms(drawn=self._drawn)

    def share(self, trial: ServingTrial) -> float:
        """Of new trajectories, what `trial` gets; nothing with several engines before it was looked at once."""
        looks = self._of(trial)
        return 1.0 if not self._drawn else looks.share if looks is not None else 0.0

    def due(self, trial: ServingTrial) -> int:
        """Runs of `trial` with an outcome that the next look at them needs."""
        return int(-(-_first(self._drawn) * GROWTH ** (self._of(trial) or Looks()).failures // 1))

    def best(self, stable: int) -> int:
        """Where to go back to: the version lately that is surest to have done well, `stable` where nothing is known."""
        lows = {version: wilson(solved, runs)[0] for version, (solved, runs) in self._arms.records.items()}
        return max(lows, key=lambda version: (lows[version], version == stable), default=stable)

    async def verdict(
        self,
        trial: ServingTrial,
        stable: int,
        now: float,
        *,
        hold: bool,
        good: Sequence[int] = (),
        world: Callable[[str], float] = lambda agent: 0.0,
        served: float = inf,
    ) -> tuple[str, str]:
        """What the trial has come to: ("rollback" | "roll_on" | "", why).

        Args:
            stable: version that the rest serves, or that the only engine served before.
            hold: nothing may be rolled on now.
            good: versions that were stable, the latest last.
            world: since when an agent's world is as it is, unix seconds: what was before a drift is no measure.
            served: since when the only engine had served `stable` when it took the trial, unix seconds: runs that name
                no version are told apart by their time.
        """
        settings, looks = self._settings, await self._begin(trial)
        if self._counted[0] <= now < self._counted[1]:
            return "", ""
        self._arms = arms = await self._count.count(trial, stable, good, world, now, served=served)
        self._counted = now, now + _SECONDS_A_ROW * arms.rows
        taken = looks.failures
        reason = worse(arms, looks, settings)
        age = now - trial.since
        down = any(looks_worse(rate.strata) for rate in (arms.failures, arms.lately, arms.complete))
        enough = age >= settings.seconds and arms.telling >= settings.runs * (2 if down else 1)
        late = age >= max(settings.deadline_seconds, arms.waits) and not down and arms.telling >= FIRST_LOOK
        if arms.drawn:
            # Asked with every outcome, a worse version would soon have a moment in which it does not look worse. At the
            # only engine everybody has it anyway.
            late = late and looks.failures > taken
        # What fails is reported first: a bad version may have its outcomes before there are any to compare them with.
        others = not arms.drawn or sum(len(rest) for mine, rest in arms.failures.strata if mine) >= FIRST_LOOK
        ends = (enough or late) and others and not hold
        if not reason and ends:
            reason = worse(arms, looks, settings, last=True)
        # Before anything is concluded from them: a look that was forgotten could be had again.
        if (data := msgspec.json.encode(looks)) != self._written:
            await self._store.state_put(_LOOKS, data)
        if reason:
            return "rollback", reason
        if not ends:
            return "", ""
        told, runs = arms.failures, arms.errors
        says = (
            f"on trial: {told.runs - told.bad}/{told.runs} solved, {runs.bad}/{runs.runs} with errors; "
            f"{arms.against} {told.rest - told.rest_bad}/{told.rest}, {runs.rest_bad}/{runs.rest}"
        ) + (f"; set aside, whoever they speak for: {', '.join(arms.aside)}" if arms.aside else "")
        return "roll_on", says if enough else f"{says}; the deadline passed"

    async def _fixed(self, trial: ServingTrial) -> float:
        """The share of `trial`, as outcomes came in the day before it."""
        rows = await self._store.recent_outcomes(since=trial.since - _DAY, until=trial.since, limit=_RATE_ROWS)
        told = sum(row.outcome is not None for row in rows)
        seconds = trial.since - rows[-1].ended if len(rows) == _RATE_ROWS else _DAY
        most = max(SHARE, min(MOST_SHARE, self._parts.get(trial.engine, 0.0)))
        return min(most, max(SHARE, self._settings.runs * seconds / (told * _WITHIN))) if told else most

    def _of(self, trial: ServingTrial) -> Looks | None:
        """The looks of `trial`, None if another one was last looked at."""
        looks = self._looks
        return looks if (looks.version, looks.since) == (trial.goal.version, trial.since) else None

    async def _begin(self, trial: ServingTrial) -> Looks:
        """What was written down: another daemon may have led since the last look."""
        data = self._written = await self._store.state_get(_LOOKS) or b""
        try:
            looks = msgspec.json.decode(data, type=Looks) if data else Looks()
        except msgspec.DecodeError:
            looks = Looks()
        if (looks.version, looks.since) != (trial.goal.version, trial.since):
            looks = Looks(trial.goal.version, trial.since)
            if self._drawn:
                looks.share = await self._fixed(trial)
        if self._of(trial) is None:
            self._count.forget()
            self._counted = 0.0, 0.0
        self._looks = looks
        return looks
