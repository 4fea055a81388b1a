"""The two sides of a trial, read from the store and counted: failures of runs with an outcome, and runs with an error.

    production trajectories, failed calls  ->  `ArmsCount`  ->  `Arms`: runs, errors and failures, stratum by stratum

Several engines: chance gave a run to the canary or to the rest, with one probability for the whole trial (`canary.py`).
One engine: runs since are compared with the newest runs of the stable version before, like with like (agent, tools,
kind of goal), and since the agent's last drift; and with all that was stable lately, for steps that each are a little
worse, and pass, add up. Failures may be told at once and successes hours later: so there outcomes are compared among
reports that took equally long, and once more among runs that nearly all reports are in of. What has too few runs to be
compared for itself is compared with what else is rare; where chance drew, whatever it is. No trial ends on one party's
word (`actors.statistics.parties`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import anyio.to_thread
import msgspec

from actors.kinds.kinds import Kinds
from actors.messages import Trajectory, called, derived_id
from actors.ports.store import OutcomeRow
from actors.statistics.change_tests import Strata
from actors.statistics.parties import binds, set_aside, thinned
from actors.statistics.strata import Place, sorted_out, stratum_of
from actors.store import Store
from actors.tool_results.runs import RunSummary, all_reported, lateness, summarize
from actors.versions.desired_state import ServingTrial

SAMPLE = 384
"""Newest runs of a side with an outcome: as many as the sentinel keeps of a version. Before the trial at
the only engine, newest runs as well."""
_LATELY = 6
"""Stable versions that are lately, as many as the sentinel remembers."""
_BOTH = 4096
"""Newest runs since the trial began that are looked at for errors, and those of the rest that are for outcomes: where
the trial has a tenth of the traffic, as many of its own as `SAMPLE`, of the same time."""
_DETAILS = 512
"""Trajectories whose bodies are read at a time."""
_FAILED = 1000
_ANY: Place = ("",)
"""The level of places that all runs have in common."""
_NEARLY_ALL, _SLACK = 0.95, 60.0
"""Share of the reports of the version before that came within the time that runs are waited for, and seconds more."""


class Arm(msgspec.Struct, frozen=True):
    """The runs of one side."""

    runs: int = 0
    errors: int = 0
    """Runs with an error: `erred`, or a call that the engine did not answer."""
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
    complete: Strata = ()
    """As `failures`, of runs that are older than `waits`; with one engine, where reports come late."""
    waits: float = 0.0
    """Seconds after which nearly all reports of a run are in; 0: they are prompt."""
    telling: int = 0
    """Runs on trial with an outcome that came as late as successes do: what is known only of failures says nothing."""
    aside: tuple[str, ...] = ()
    """Parties whose word on outcomes counts on neither side."""
    drawn: bool = False
    """Chance said which side a run is on: there are several engines."""

    @property
    def against(self) -> str:
        """What the rest is, in words."""
        return "elsewhere" if self.drawn else "before"


class _Seen(msgspec.Struct, frozen=True):
    """What is remembered of a run; its outcome is asked for anew each time."""

    canary: bool | None
    """None: it counts on neither side."""
    version: int
    """That sampled all of it, -1 if that is not known."""
    place: Place
    """Agent with its tools (with other tools it is another task), neighbourhood and kind of goal; of several engines
    one level above these that all have in common."""
    error: bool
    party: str
    agent: str


_Said = list[tuple[_Seen, bool]]
"""Runs, newest first on either side, and whether it went badly."""


def erred(run: RunSummary) -> bool:
    """Whether `run` went wrong in a way that nobody needs to report: a tool answered with an error, a call could not be
    right, or it went round in circles."""
    return run.errors > 0 or run.invalid > 0 or run.loops


def _fair(said: _Said) -> tuple[_Said, frozenset[str]]:
    """What counts where nobody's word is to weigh too much, and whose does not."""
    kept, bound = _Said(), binds(one.party for one, _ in said)
    for mine in (True, False):
        side = [one for one in said if one[0].canary is mine]
        kept += [side[place] for place in thinned([one.party for one, _ in side], bound=bound)]
    if not bound:
        return kept, frozenset()
    stratum = stratum_of(Counter((one.place, bool(one.canary)) for one, _ in kept))
    counts = Counter((one.party, stratum[one.place], bool(one.canary), bad) for one, bad in kept)
    aside = set_aside([one.party for one, _ in kept], lambda left_out: _difference(counts, left_out))
    return [one for one in kept if one[0].party not in aside], aside


def _difference(counts: Mapping[tuple[str, Place, bool, bool], int], left_out: Collection[str]) -> float:
    """How much more often runs on trial went badly, without the parties `left_out`; NaN if no stratum has both sides.

    Weighted as `actors.statistics.change_tests.means` does, but of runs that are counted already: it is asked once a
    party.
    """
    sums: defaultdict[Place, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (party, stratum, mine, bad), count in counts.items():
        if party not in left_out:
            sums[stratum][2 * mine + bad] += count
    total = weights = 0.0
    for fine, bad, my_fine, my_bad in sums.values():
        mine, rest = my_fine + my_bad, fine + bad
        if mine and rest:
            weight = mine * rest / (mine + rest)
            weights += weight
            total += weight * (my_bad / mine - bad / rest)
    return total / weights if weights else math.nan


class ArmsCount:
    """Reads the runs of a trial, and counts them."""

    def __init__(self, store: Store, *, kinds: Kinds, alone: bool, sample: int = SAMPLE) -> None:
        self._store, self._kinds, self._alone, self._sample = store, kinds, alone, max(SAMPLE, sample)
        self._seen: dict[str, _Seen] = {}
        self.records: dict[int, tuple[int, int]] = {}
        """(solved, runs with an outcome) of the stable version and those lately; with one engine."""
        self.rows = 0
        """Runs that the last count went through."""

    def forget(self) -> None:
        """Another trial begins."""
        self._seen.clear()

    async def count(
        self,
        trial: ServingTrial,
        stable: int,
        good: Sequence[int],
        world: Callable[[str], float],
        now: float,
    ) -> Arms:
        """Both sides by `now`; `good` and `world` as in `CanaryWatch.verdict`."""
        store, since = self._store, trial.since
        lately = [version for version in good if version not in (stable, trial.goal.version)][1 - _LATELY :]
        lately = lately if self._alone else []
        judged = await store.recent_outcomes(version=trial.goal.version, since=since, limit=self._sample)
        runs = await store.recent_outcomes(since=since, limit=_BOTH)
        waits, whole = 0.0, list[OutcomeRow]()
        if self._alone:
            before = await store.recent_outcomes(version=stable, until=since, limit=SAMPLE)
            judged += before
            late = sorted(map(_late, before))[int(_NEARLY_ALL * (len(before) - 1))] if before else 0
            if late:
                waits = all_reported(late) + _SLACK
                until, size = now - waits, self._sample
                whole += await store.recent_outcomes(version=trial.goal.version, since=since, until=until, limit=size)
                whole += await store.recent_outcomes(version=stable, until=min(since, until), limit=size)
            runs += await store.recent_outcomes(until=since, limit=SAMPLE)
            earlier = [
                row for version in lately
                for row in await store.recent_outcomes(version=version, until=since, limit=SAMPLE)
            ]  # fmt: skip
            judged += sorted(earlier, key=lambda row: row.ended, reverse=True)[:SAMPLE]
        else:
            judged += await store.recent_outcomes(version=stable, since=since, limit=_BOTH)
            judged += await store.recent_outcomes(version=-1, since=since, limit=_BOTH)
        self.rows = len(judged) + len(runs) + len(whole)
        await self._read([row.id for row in (*judged, *runs, *whole)], trial, stable)
        if self._alone:
            since_when = {agent: world(agent) for agent in {one.agent for one in self._seen.values()}}
            judged, runs, whole = (
                [row for row in rows if self._counts(row, since_when)] for rows in (judged, runs, whole)
            )
        lost = await self._lost(trial, [row for one, row in self._sided(runs) if not one.canary])
        # In a thread: with thousands of runs it takes a tenth of a second, and everybody else would wait.
        found = await anyio.to_thread.run_sync(self._tally, judged, runs, whole, lost, (stable, *lately))
        return msgspec.structs.replace(found, waits=waits)

    def _tally(
        self,
        judged: Sequence[OutcomeRow],
        runs: Sequence[OutcomeRow],
        whole: Sequence[OutcomeRow],
        lost: Sequence[bool],
        stable: Sequence[int],
    ) -> Arms:
        told = [
            (self._reported(one, row), row.outcome < 0.5) for one, row in self._sided(judged) if row.outcome is not None
        ]
        others = [
            (self._reported(one, row), row.outcome < 0.5)
            for one, row in self._known(judged)
            if row.outcome is not None and one.version in stable
        ]
        told, aside = _fair(told)
        complete, _ = _fair([(one, row.outcome < 0.5) for one, row in self._sided(whole) if row.outcome is not None])
        others = [(one, failed) for one, failed in others if one.party not in aside]
        self.records = {
            version: (sum(not failed for failed in outcomes), len(outcomes))
            for version in stable
            if (outcomes := [failed for one, failed in others if one.version == version])
        }
        seen, _ = _fair([(one, one.error) for one, _ in self._sided(runs)])
        # What an engine did not answer at all is no run and has no kind: whether that came to pass more often is asked
        # of all runs, whether a tool answered with an error of those that were answered.
        ended = [*((_ANY, mine, 1.0) for mine in lost), *((_ANY, bool(one.canary), 0.0) for one, _ in seen)]
        mine = [(one.place, True, float(failed)) for one, failed in told if one.canary]
        solved = {one.place[0] for one, failed in told if not one.canary and not failed}
        return Arms(
            _arm(True, seen, told, sum(lost)),
            _arm(False, seen, told, len(lost) - sum(lost)),
            _strata(told),
            [*sorted_out((one.place, bool(one.canary), float(one.error)) for one, _ in seen), *sorted_out(ended)],
            sorted_out([*mine, *((one.place, False, float(failed)) for one, failed in others)])
            if self._alone and len(stable) > 1
            else (),
            aside=tuple(sorted(aside)),
            complete=_strata(complete),
            drawn=not self._alone,
            telling=sum(not self._alone or not solved or place[0] in solved for place, _, _ in mine),
        )

    async def _read(self, ids: Sequence[str], trial: ServingTrial, stable: int) -> None:
        """Look at the bodies of those that are new, the first `_DETAILS` of them, and forget those that went by."""
        wanted = dict.fromkeys(ids)
        self._seen = {key: one for key, one in self._seen.items() if key in wanted}
        fresh = [key for key in wanted if key not in self._seen][:_DETAILS]
        if not fresh:
            return
        found = await self._store.closed_runs(fresh)
        alike = {run.id: self._kinds.kind(run) for run, _ in found}
        self._seen |= await anyio.to_thread.run_sync(self._brief, found, alike, trial, stable)

    def _brief(
        self,
        found: Sequence[tuple[Trajectory, str]],
        alike: Mapping[str, str],
        trial: ServingTrial,
        stable: int,
    ) -> dict[str, _Seen]:
        """What is remembered of each run, by its id."""
        seen: dict[str, _Seen] = {}
        for run, engine in found:
            brief, names = summarize(run)
            place = (derived_id(called(brief.agent), *names), alike[run.id], brief.kind)
            seen[run.id] = _Seen(
                _side(run, engine, trial, stable, self._alone),
                run.min_version if run.min_version == run.max_version else -1,
                place if self._alone else (*_ANY, *place),
                erred(brief),
                brief.party,
                brief.agent,
            )
        return seen

    def _reported(self, one: _Seen, row: OutcomeRow) -> _Seen:
        """`one` beside those whose reports took as long; where chance drew, both sides' take equally long."""
        return msgspec.structs.replace(one, place=(str(_late(row)), *one.place)) if self._alone else one

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

    async def _lost(self, trial: ServingTrial, before: Sequence[OutcomeRow]) -> list[bool]:
        """Of each run that ended with an error of the engine, and so is no trajectory, whether it was on trial."""
        lost = await self._store.lost_runs(trial.since, _FAILED)
        if not self._alone:
            return [engine == trial.engine for engine, _ in lost]
        began = min((row.ended for row in before), default=trial.since)
        earlier = await self._store.lost_runs(began, _FAILED, until=trial.since)
        return [True for _ in lost] + [False for _ in earlier]


def _side(run: Trajectory, engine: str, trial: ServingTrial, stable: int, alone: bool) -> bool | None:
    """True: it was on trial. By the weights that sampled it; of several engines by the engine where it does not say."""
    version = run.min_version if run.min_version == run.max_version else None
    if run.started < trial.since:
        return False if alone and version == stable and run.ended < trial.since else None
    if run.min_version < 0:
        return None if alone or not engine else engine == trial.engine
    if version == trial.goal.version:
        return True
    return False if version == stable and not alone else None


def _late(row: OutcomeRow) -> int:
    return 0 if row.told is None else lateness(row.told - row.ended)


def _strata(said: Iterable[tuple[_Seen, bool]]) -> Strata:
    return sorted_out((one.place, bool(one.canary), float(bad)) for one, bad in said)


def _arm(mine: bool, seen: Sequence[tuple[_Seen, bool]], told: Sequence[tuple[_Seen, bool]], lost: int) -> Arm:
    errors = [one.error for one, _ in seen if one.canary is mine]
    failures = [failed for one, failed in told if one.canary is mine]
    return Arm(len(errors) + lost, sum(errors) + lost, len(failures), len(failures) - sum(failures))
