"""Does what is on trial fare worse than what was? Live runs of both, compared again and again without fooling oneself.

    production trajectories, failed calls  ->  `Arms`  ->  worse, good enough, or not yet

Several engines: the tap gives each new trajectory to the canary by chance, and its runs are compared with those of
the rest since the trial began. One engine: all runs since are compared with the newest runs of the stable version
from before, as many as the sentinel keeps of a version. Nobody drew by chance then, so like is compared with like:
runs of one agent, tool list and kind of goal with each other (as `actors.monitoring.versions` does), since its last
drift. A kind that only one side has runs of says nothing. Two rates are compared, a run each: runs whose outcome was a
failure, and runs in which a tool or the engine answered with an error. The first is asked of the newest runs *that
have an outcome*, however many have none yet, and an outcome that comes late counts; the second of the newest runs.

With one engine failures are also compared with those of all that was stable lately, the version before included: steps
that each are a little worse, and pass, add up to one that does not.

Asked with every new run, a test at 5 % would speak up against most innocent versions sooner or later. So it is asked at
fixed sizes of the trial's arm only, each `GROWTH` times the last, and each look may err with its part of `error`: most
of it for the looks that every trial has, the rest for those of a trial that goes on until `_SAMPLE` runs (`level`).
Over all looks and comparisons that sums up to `error` (a union bound, hence valid whatever the looks have to do with
each other). Each look is the exact stratified test (`actors.statistics.change_tests.share_rise`).

No trial ends on one party's word (`actors.statistics.parties`): where the rule binds, each party is cut to its cap and
the two that pull hardest count on neither side; what a trial came to says who they were.

Few runs cannot tell much. So a version that looks worse without being shown to be is watched for twice as long, and no
deadline ends that.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from actors.kinds.clusters import cluster_of
from actors.messages import Trajectory, agent_of, called, derived_id
from actors.ports.store import CanaryStore, OutcomeRow
from actors.statistics.change_tests import Strata, means, planned_looks, share_rise
from actors.statistics.intervals import wilson
from actors.statistics.parties import binds, party_of, set_aside, thinned
from actors.tool_results.runs import call_failed, tool_names
from actors.versions.desired_state import ServingTrial

GROWTH = 1.5
"""From one look to the next."""
COMMON = 8
"""Runs of a kind of goal on one side, from which on it is compared for itself; rarer ones of a tenant and tool list are
one."""
_SAMPLE = 384
"""Newest runs of a side with an outcome: as many as the sentinel keeps of a version (`VersionSettings.sample`). Before
the trial at the only engine, newest runs as well."""
_SERIES = 3
"""Series of looks that share the error: failures against the version before, and against all lately; errors."""
_LATELY = 6
"""Stable versions that are lately, as many as the sentinel remembers."""
_DOWN = 0.1
"""Observed fall of success from which on a version looks worse: the least that the sentinel acts on."""
_EARLY = 0.8
"""Of the error, for the looks until a trial has the runs that it needs, and the one that ends it."""
_UNNAMED = 4096
"""The same of runs whose version nobody can tell, where several engines sort them: most are not the canary's."""
_ROWS = 20_000
"""Newest runs since the trial began that are looked at for errors."""
_DETAILS = 512
"""Trajectories whose bodies are read at a time."""
_FAILED = 1000
_LOOKS = "swapper/canary"


class CanarySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The trial of a promoted version: at one of several engines, or at the only one."""

    share: float = 0.1
    """With several engines: of new trajectories, what the one with the trial gets, 0 to 1."""
    seconds: float = 60.0
    """A trial lasts so long at least."""
    runs: int = 32
    """Runs with an outcome that a version on trial must have had at least, unless the deadline passes; twice as many if
    it looks worse."""
    deadline_seconds: float = 3600.0
    """After so long a version that does not look worse is taken for good; it needs the outcomes of `first_look`."""
    error: float = 0.05
    """Probability that a version as good as what it is compared with is rolled back, over the whole trial."""
    first_look: int = 8
    """Runs on trial when they are first compared; each further look at 1.5 times as many."""


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
    """Both sides."""

    canary: Arm = Arm()
    """On trial."""
    rest: Arm = Arm()
    """What it is compared with."""
    failures: Strata = ()
    """(on trial, rest) of each stratum: 1 for a run whose outcome is a failure, 0 for one that was solved."""
    errors: Strata = ()
    """The same of runs with an error."""
    lately: Strata = ()
    """As `failures`, the rest being all that was stable lately; with one engine."""
    aside: tuple[str, ...] = ()
    """Parties whose word on outcomes counts on neither side."""
    against: str = "elsewhere"
    """What the rest is, in words."""


class Looks(msgspec.Struct):
    """How often each rate was compared in one trial; survives restarts, or a restart would be a look for free."""

    version: int = -1
    since: float = 0.0
    failures: int = 0
    errors: int = 0
    lately: int = 0


class _Seen(msgspec.Struct, frozen=True):
    """What is remembered of a run; its outcome is asked for anew each time."""

    canary: bool | None
    """None: it counts on neither side."""
    version: int
    """That sampled all of it, -1 if that is not known."""
    stratum: tuple[str, str]
    """Agent with its tools, and kind of goal: with other tools it is another task."""
    error: bool
    party: str
    agent: str


_Said = list[tuple[_Seen, bool]]
"""Runs, newest first on either side, and whether it went badly."""


def worse(arms: Arms, looks: Looks, settings: CanarySettings, *, last: bool = False) -> str:
    """Why what is on trial is worse than the rest, empty if that cannot be said; counts its looks in `looks`.

    Args:
        last: the trial is about to end well: look once more, whatever the size.
    """
    canary, rest = arms.canary, arms.rest
    for series, name, mine, theirs, strata, against in (
        (
            "failures",
            "failures",
            (canary.failed, canary.judged),
            (rest.failed, rest.judged),
            arms.failures,
            arms.against,
        ),
        ("lately", "failures", (canary.failed, canary.judged), _sums(arms.lately), arms.lately, "lately"),
        ("errors", "errors", (canary.errors, canary.runs), (rest.errors, rest.runs), arms.errors, arms.against),
    ):
        look: int = getattr(looks, series)
        due = settings.first_look * GROWTH**look
        if min(mine[1], theirs[1]) < settings.first_look or not (last or mine[1] >= due):
            continue
        look += 1
        # Looks that were skipped, because many runs came at once, are not made up for.
        while settings.first_look * GROWTH**look <= mine[1]:
            look += 1
        setattr(looks, series, look)
        allowed = level(look, settings)
        chance = share_rise(strata)
        if chance <= allowed:
            return (
                f"on trial: {mine[0]} of {mine[1]} runs with {name}, {theirs[0]} of {theirs[1]} {against} "
                f"(among runs of a kind: p = {chance:.2g}, look {look} asks for {allowed:.2g})"
            )
    return ""


def level(look: int, settings: CanarySettings) -> float:
    """Probability with which look number `look` (from 1) at one rate may err; 0 for looks that no trial needs."""
    early = planned_looks(settings.first_look, GROWTH, settings.runs) + 1
    late = max(0, planned_looks(settings.first_look, GROWTH, _SAMPLE) - early)
    if look <= early:
        return settings.error / _SERIES * (_EARLY if late else 1.0) / early
    return settings.error / _SERIES * (1.0 - _EARLY) / late if look <= early + late else 0.0


def looks_worse(strata: Strata) -> bool:
    """Whether failures are more by `_DOWN`, whatever that is worth."""
    now, was = means(strata)
    return now - was > _DOWN


def _sums(strata: Strata) -> tuple[int, int]:
    """(ones, runs) of the rest."""
    values = [value for _, rest in strata for value in rest]
    return round(sum(values)), len(values)


def sorted_out(runs: Iterable[tuple[tuple[str, str], bool, float]]) -> Strata:
    """Strata of runs, each (tenant with its tools and kind of goal, whether it was on trial, value)."""
    known = list(runs)
    counts = Counter((kind, mine) for kind, mine, _ in known)
    common = {kind for (kind, _), count in counts.items() if count >= COMMON}
    found: defaultdict[tuple[str, str | None], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for kind, mine, value in known:
        found[kind if kind in common else (kind[0], None)][0 if mine else 1].append(value)
    return list(found.values())


class CanaryWatch:
    """Keeps the two arms of the trial that is on, and concludes from them."""

    def __init__(self, settings: CanarySettings, store: CanaryStore, *, alone: bool) -> None:
        """
        Args:
            alone: there is one engine: before is compared with after, not one engine with the others.
        """
        self._settings, self._store, self._alone = settings, store, alone
        self._looks: Looks | None = None
        self._seen: dict[str, _Seen] = {}
        self._arms = Arms()
        self._records: dict[int, tuple[int, int]] = {}

    def arms(self, trial: ServingTrial) -> Arms:
        """What was counted so far in `trial`; nothing yet if it is not the one that was last looked at."""
        looks = self._looks
        known = looks is not None and (looks.version, looks.since) == (trial.goal.version, trial.since)
        return self._arms if known else Arms()

    def best(self, stable: int) -> int:
        """Where to go back to: the version lately that is surest to have done well, `stable` where nothing is known."""
        lows = {version: wilson(solved, runs)[0] for version, (solved, runs) in self._records.items()}
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
    ) -> tuple[str, str]:
        """What the trial has come to: ("rollback" | "roll_on" | "", why).

        Args:
            stable: version that the rest serves, or that the only engine served before.
            hold: nothing may be rolled on now.
            good: versions that were stable, the latest last.
            world: since when an agent's world is as it is, unix seconds: what was before a drift is no measure.
        """
        settings, looks = self._settings, await self._begin(trial)
        lately = [version for version in good if version not in (stable, trial.goal.version)][1 - _LATELY :]
        arms = await self._count(trial, stable, lately, world)
        before = (looks.failures, looks.errors, looks.lately)
        reason = worse(arms, looks, settings)
        age = now - trial.since
        down = looks_worse(arms.failures) or looks_worse(arms.lately)
        enough = age >= settings.seconds and arms.canary.judged >= settings.runs * (2 if down else 1)
        late = age >= settings.deadline_seconds and not down and arms.canary.judged >= settings.first_look
        ends = (enough or late) and not hold
        if not reason and ends:
            reason = worse(arms, looks, settings, last=True)
        if (looks.failures, looks.errors, looks.lately) != before:
            # Before anything is concluded from it: a look that was forgotten could be had again.
            await self._store.state_put(_LOOKS, msgspec.json.encode(looks))
        if reason:
            return "rollback", reason
        if not ends:
            return "", ""
        canary, rest = arms.canary, arms.rest
        told = (
            f"on trial: {canary.solved}/{canary.judged} solved, {canary.errors}/{canary.runs} with errors; "
            f"{arms.against} {rest.solved}/{rest.judged}, {rest.errors}/{rest.runs}"
        ) + (f"; set aside, whoever they speak for: {', '.join(arms.aside)}" if arms.aside else "")
        return "roll_on", told if enough else f"{told}; the deadline passed"

    async def _begin(self, trial: ServingTrial) -> Looks:
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

    async def _count(
        self, trial: ServingTrial, stable: int, lately: Sequence[int], world: Callable[[str], float]
    ) -> Arms:
        store, since, most = self._store, trial.since, max(_SAMPLE, self._settings.runs)
        judged = await store.judged_outcomes(trial.goal.version, since=since, limit=most)
        runs = await store.recent_outcomes(source="production", since=since, limit=_ROWS)
        if self._alone:
            judged += await store.judged_outcomes(stable, until=since, limit=_SAMPLE)
            runs += await store.recent_outcomes(source="production", until=since, limit=_SAMPLE)
            earlier = [
                row for version in lately
                for row in await store.judged_outcomes(version, until=since, limit=_SAMPLE)
            ]  # fmt: skip
            judged += sorted(earlier, key=lambda row: row.ended, reverse=True)[:_SAMPLE]
        else:
            judged += await store.judged_outcomes(stable, since=since, limit=most)
            judged += await store.judged_outcomes(-1, since=since, limit=_UNNAMED)
        await self._read([row.id for row in (*judged, *runs)], trial, stable)
        if self._alone:
            since_when = {agent: world(agent) for agent in {one.agent for one in self._seen.values()}}
            judged, runs = ([row for row in rows if self._counts(row, since_when)] for rows in (judged, runs))
        told = [(one, row.outcome < 0.5) for one, row in self._sided(judged) if row.outcome is not None]
        of_these = {stable, *lately} - {trial.goal.version}
        others = [
            (one, row.outcome < 0.5)
            for one, row in self._known(judged)
            if row.outcome is not None and one.version in of_these
        ]
        told, aside = _fair(told)
        others = [(one, failed) for one, failed in others if one.party not in aside]
        self._records = {
            version: (sum(not failed for failed in outcomes), len(outcomes))
            for version in (stable, *lately)
            if (outcomes := [failed for one, failed in others if one.version == version])
        }
        seen, _ = _fair([(one, one.error) for one, _ in self._sided(runs)])
        lost, lost_before = await self._lost(trial, [row for one, row in self._sided(runs) if not one.canary])
        # What an engine did not answer at all is no run and has no kind: whether that came to pass more often is asked
        # of all runs, whether a tool answered with an error of those that were answered.
        finished = [bool(one.canary) for one, _ in seen]
        answered = (
            [1.0] * lost + [0.0] * finished.count(True),
            [1.0] * lost_before + [0.0] * finished.count(False),
        )
        self._arms = Arms(
            _arm(True, seen, told, lost),
            _arm(False, seen, told, lost_before),
            sorted_out((one.stratum, bool(one.canary), float(failed)) for one, failed in told),
            [*sorted_out((one.stratum, bool(one.canary), float(one.error)) for one, _ in seen), answered],
            sorted_out(
                [
                    *((one.stratum, True, float(failed)) for one, failed in told if one.canary),
                    *((one.stratum, False, float(failed)) for one, failed in others),
                ]
            )
            if lately
            else (),
            tuple(sorted(aside)),
            "before" if self._alone else "elsewhere",
        )
        return self._arms

    async def _read(self, ids: Sequence[str], trial: ServingTrial, stable: int) -> None:
        """Look at the bodies of those that are new, the first `_DETAILS` of them, and forget those that went by."""
        wanted = dict.fromkeys(ids)
        self._seen = {key: one for key, one in self._seen.items() if key in wanted}
        fresh = [key for key in wanted if key not in self._seen][:_DETAILS]
        for run, engine in await self._store.closed_runs(fresh) if fresh else ():
            self._seen[run.id] = _Seen(
                _side(run, engine, trial, stable, self._alone),
                run.min_version if run.min_version == run.max_version else -1,
                (derived_id(called(agent_of(run)), *tool_names(run.tools)), cluster_of(run.goal)),
                any(map(call_failed, run.steps)),
                party_of(run.tenant, run.caller),
                agent_of(run),
            )

    def _counts(self, row: OutcomeRow, world: Mapping[str, float]) -> bool:
        """Whether `row` is of its agent's world as it is; what is on trial is."""
        one = self._seen.get(row.id)
        return one is not None and (one.canary is True or row.ended >= world[one.agent])

    def _sided(self, rows: Iterable[OutcomeRow]) -> list[tuple[_Seen, OutcomeRow]]:
        """Those of `rows` that were read and count on a side."""
        return [(one, row) for one, row in self._known(rows) if one.canary is not None]

    def _known(self, rows: Iterable[OutcomeRow]) -> list[tuple[_Seen, OutcomeRow]]:
        known = ((self._seen.get(row.id), row) for row in rows)
        return [(one, row) for one, row in known if one is not None]

    async def _lost(self, trial: ServingTrial, before: Sequence[OutcomeRow]) -> tuple[int, int]:
        """Runs of either side that ended with an error of the engine, and so are no trajectories."""
        calls = await self._store.failed_calls(trial.since, _FAILED)
        if not self._alone:
            mine = {call.run for call in calls if call.engine == trial.engine}
            return len(mine), len({call.run for call in calls if call.engine != trial.engine})
        began = min((row.ended for row in before), default=trial.since)
        earlier = await self._store.failed_calls(began, _FAILED, until=trial.since)
        return len({call.run for call in calls}), len({call.run for call in earlier})


def _side(run: Trajectory, engine: str, trial: ServingTrial, stable: int, alone: bool) -> bool | None:
    """True: it was on trial. By the weights that sampled it; of several engines by the engine where it does not say."""
    if run.side_of:
        return None
    version = run.min_version if run.min_version == run.max_version else None
    if run.started < trial.since:
        return False if alone and version == stable and run.ended < trial.since else None
    if run.min_version < 0:
        return None if alone or not engine else engine == trial.engine
    if version == trial.goal.version:
        return True
    return False if version == stable and not alone else None


def _fair(said: _Said) -> tuple[_Said, frozenset[str]]:
    """What counts where nobody's word is to weigh too much, and whose does not."""
    kept, bound = list[tuple[_Seen, bool]](), binds(one.party for one, _ in said)
    for mine in (True, False):
        side = [one for one in said if one[0].canary is mine]
        kept += [side[place] for place in thinned([one.party for one, _ in side], bound=bound)]

    def pull(left_out: Collection[str]) -> float:
        now, was = means(
            sorted_out((one.stratum, bool(one.canary), float(bad)) for one, bad in kept if one.party not in left_out)
        )
        return now - was

    aside = set_aside([one.party for one, _ in kept], pull)
    return [one for one in kept if one[0].party not in aside], aside


def _arm(mine: bool, seen: Sequence[tuple[_Seen, bool]], told: Sequence[tuple[_Seen, bool]], lost: int) -> Arm:
    """
    Args:
        told: runs with an outcome, and whether it is a failure.
        lost: runs that ended with an error of the engine; they count as errors.
    """
    errors = [one.error for one, _ in seen if one.canary is mine]
    failures = [failed for one, failed in told if one.canary is mine]
    return Arm(len(errors) + lost, sum(errors) + lost, len(failures), len(failures) - sum(failures))
