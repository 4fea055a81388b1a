"""The two sides of a trial, read from the store and counted: failures of runs with an outcome, and runs with an error.

    production trajectories, failed calls  ->  `ArmsCount`  ->  `Arms`: each rate, stratum by stratum

Several engines: chance gave a run to the canary or to the rest, with one probability for the whole trial (`canary.py`).
One engine: runs since are compared with the newest runs of the stable version before, like with like (agent, tools,
kind of goal), and since the agent's last drift; and with all that was stable lately, for steps that each are a little
worse, and pass, add up. Failures may be told at once and successes hours later: so there outcomes are compared among
reports that took equally long, and once more among runs that nearly all reports are in of. What has too few runs to be
compared for itself is compared with what else is rare; where chance drew, whatever it is. No trial ends on one party's
word (`actors.statistics.parties`).
"""

import math
from collections.abc import Callable, Mapping, Sequence

import anyio.to_thread
import msgspec

from actors.kinds.kinds import Kinds
from actors.messages import Trajectory, called
from actors.monitoring.comparison import Runs, Value, Where, fair, strata, without
from actors.ports.store import OutcomeRow
from actors.statistics.change_tests import Strata
from actors.statistics.parties import newest, party_of
from actors.statistics.strata import Place
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
the trial has a tenth of the traffic, as many of its own as `SAMPLE`, of the same time.
`SAMPLE` is taken from as many."""
_DETAILS = 512
"""Trajectories whose bodies are read at a time."""
_FAILED = 1000
_ANY: Place = ("",)
"""The level of places that all runs have in common."""
_NEARLY_ALL, _SLACK = 0.95, 60.0
"""Share of the reports of the version before that came within the time that runs are waited for, and seconds more."""


class Rate(msgspec.Struct, frozen=True):
    """How often runs went badly, on trial and elsewhere."""

    bad: int = 0
    """Runs on trial that did."""
    runs: int = 0
    """Runs on trial."""
    rest_bad: int = 0
    rest: int = 0
    """Runs that they are compared with."""
    strata: Strata = ()
    """(on trial, rest) of each stratum: 1 for a run that went badly, else 0."""


class Arms(msgspec.Struct, frozen=True):
    """Both sides."""

    failures: Rate = Rate()
    """Of runs with an outcome, those that failed."""
    errors: Rate = Rate()
    """Of all runs, those with an error: `erred`, or a call that the engine did not answer."""
    lately: Rate = Rate()
    """As `failures`, the rest being all that was stable lately; with one engine."""
    complete: Rate = Rate()
    """As `failures`, of runs that are older than `waits`; with one engine, where reports come late."""
    waits: float = 0.0
    """Seconds after which nearly all reports of a run are in; 0: they are prompt."""
    telling: int = 0
    """Runs on trial with an outcome that came as late as successes do: what is known only of failures says nothing."""
    aside: tuple[str, ...] = ()
    """Parties whose word on outcomes counts on neither side."""
    drawn: bool = False
    """Chance said which side a run is on: there are several engines."""
    records: Mapping[int, tuple[int, int]] = {}
    """(solved, runs with an outcome) of the stable version and those lately; with one engine."""
    rows: int = 0
    """Runs that were gone through; one that was only read, and not chosen, is half of one."""

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
    agent: str
    """Its name with the digest, which is another with other tools."""
    run: RunSummary
    """In brief; its agent is the label alone."""


_Known = list[tuple[_Seen, OutcomeRow]]


def erred(run: RunSummary) -> bool:
    """Whether `run` went wrong in a way that nobody needs to report: a tool answered with an error, a call could not be
    right, or it went round in circles."""
    return run.errors > 0 or run.invalid > 0 or run.loops


def rate_of(strata: Strata) -> Rate:
    """The rate that the runs of `strata` have."""
    (bad, runs), (rest_bad, rest) = (
        (round(sum(map(sum, listed))), sum(map(len, listed)))
        for listed in ([sides[side] for sides in strata] for side in (0, 1))
    )
    return Rate(bad, runs, rest_bad, rest, strata)


def _alike(run: RunSummary) -> Place:
    """The agent's label with its tools (with other tools it is another task), neighbourhood and kind of goal."""
    return (run.agent, run.tools), run.near, run.kind


def _drawn_alike(run: RunSummary) -> Place:
    """Where chance drew, whatever is too rare to be compared for itself is compared."""
    return *_ANY, *_alike(run)


def _reported_alike(run: RunSummary) -> Place:
    """First of all among reports that took as long; where chance drew, both sides' take equally long."""
    return run.late, *_alike(run)


def _failed(run: RunSummary) -> float | None:
    return None if run.succeeded is None else float(not run.succeeded)


def _erred(run: RunSummary) -> float:
    return float(erred(run))


class ArmsCount:
    """Reads the runs of a trial, and counts them."""

    def __init__(self, store: Store, *, kinds: Kinds, alone: bool, sample: int = SAMPLE) -> None:
        self._store, self._kinds, self._alone, self._sample = store, kinds, alone, max(SAMPLE, sample)
        self._seen: dict[str, _Seen] = {}
        self._not_chosen = 0
        """Rows that this count has read in vain."""

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
        *,
        served: float,
    ) -> Arms:
        """Both sides by `now`; `good`, `world` and `served` as in `CanaryWatch.verdict`."""
        since, mine = trial.since, trial.goal.version
        lately = [version for version in good if version not in (stable, mine)][1 - _LATELY :] if self._alone else []
        self._not_chosen = 0
        judged = await self._told(mine, since, math.inf)
        runs = await self._store.recent_outcomes(since=since, limit=_BOTH)
        waits, whole, newest_ids = 0.0, list[OutcomeRow](), set[str]()
        if self._alone:
            before = await self._told(stable, 0.0, since, served)
            late = sorted(map(_late, before))[int(_NEARLY_ALL * (len(before) - 1))] if before else 0
            if late:
                waits = all_reported(late) + _SLACK
                whole = await self._told(mine, since, now - waits)
                whole += await self._told(stable, 0.0, min(since, now - waits), served)
            earlier = await self._store.recent_outcomes(until=since, limit=_BOTH)
            runs += self._in_turn(earlier, SAMPLE)
            newest_ids = {row.id for row in earlier[:SAMPLE]}
            judged += before
            for version in lately:
                judged += await self._store.recent_outcomes(version=version, until=since, limit=SAMPLE)
        else:
            for version in (stable, -1):
                judged += await self._store.recent_outcomes(version=version, since=since, limit=_BOTH)
        rows = [*judged, *runs, *whole]
        await self._read([row.id for row in rows], trial, stable, served)
        # What was before an agent's world changed is no measure.
        since_when = {one.agent: world(one.agent) if self._alone else 0.0 for one in self._seen.values()}
        told, ran, complete = (
            [
                (one, row) for row in rows
                if (one := self._seen.get(row.id)) and (one.canary or row.ended >= since_when[one.agent])
            ]
            for rows in (judged, runs, whole)
        )  # fmt: skip
        # All that was lost in a time: the time is that of the newest runs, of whichever party.
        newest_before = [row.ended for one, row in ran if one.canary is False and row.id in newest_ids]
        lost = await self._lost(trial, newest_before)
        # In a thread: with thousands of runs it takes a tenth of a second, and everybody else would wait.
        found = await anyio.to_thread.run_sync(self._tally, told, ran, complete, lost, (stable, *lately))
        return msgspec.structs.replace(found, waits=waits, rows=len(rows) + self._not_chosen // 2)

    def _tally(self, judged: _Known, runs: _Known, whole: _Known, lost: Sequence[bool], stable: Sequence[int]) -> Arms:
        for one, row in (*judged, *whole):
            one.run.outcome, one.run.late = row.outcome, _late(row)
        place = _alike if self._alone else _drawn_alike
        where = _reported_alike if self._alone else place
        mine, rest, aside = _fair(judged, _failed, where)
        mine_whole, rest_whole, _ = _fair(whole, _failed, place)
        others = [one for one, _ in judged if one.version in stable and one.run.party not in aside]
        solved = {where(run)[0] for run in rest if run.succeeded}
        lately = strata(mine, [one.run for one in others], _failed, where)
        return Arms(
            rate_of(strata(mine, rest, _failed, where)),
            _errors(*_fair(runs, _erred, place)[:2], place, lost),
            rate_of(lately) if len(stable) > 1 else Rate(),
            rate_of(strata(mine_whole, rest_whole, _failed, place)),
            aside=tuple(sorted(aside)),
            drawn=not self._alone,
            telling=sum(not self._alone or not solved or where(run)[0] in solved for run in mine),
            records={
                version: (sum(outcomes), len(outcomes))
                for version in stable
                if (outcomes := [bool(one.run.succeeded) for one in others if one.version == version])
            },
        )

    async def _told(self, version: int, since: float, until: float, served: float | None = None) -> list[OutcomeRow]:
        """The newest runs of `version` with an outcome, of each party in turn, or one would wash out all others'; with
        one engine also such as name no version and are of the time from which on it `served` (by default `since`)."""
        rows = await self._store.recent_outcomes(version=version, since=since, until=until, limit=_BOTH)
        if self._alone:
            begin = since if served is None else served
            rows += await self._store.recent_outcomes(version=-1, since=begin, until=until, limit=_BOTH)
            rows.sort(key=lambda row: row.ended, reverse=True)
        return self._in_turn(rows, self._sample)

    def _in_turn(self, rows: Sequence[OutcomeRow], size: int) -> list[OutcomeRow]:
        """The newest of each party, `size` of all."""
        parties = [party_of(row.tenant, row.caller) for row in rows]
        self._not_chosen += max(0, len(rows) - size)
        return [rows[place] for place in newest(parties, size, len(rows))]

    async def _read(self, ids: Sequence[str], trial: ServingTrial, stable: int, served: float) -> None:
        """Look at the bodies of those that are new, all of them, for no look should be spent on half of a side; and
        forget those that went by."""
        wanted = dict.fromkeys(ids)
        self._seen = {key: one for key, one in self._seen.items() if key in wanted}
        fresh = [key for key in wanted if key not in self._seen]
        for first in range(0, len(fresh), _DETAILS):
            found = await self._store.closed_runs(fresh[first : first + _DETAILS])
            near = {run.id: self._kinds.kind(run) for run, _ in found}
            self._seen |= await anyio.to_thread.run_sync(self._brief, found, near, trial, stable, served)

    def _brief(
        self,
        found: Sequence[tuple[Trajectory, str]],
        near: Mapping[str, str],
        trial: ServingTrial,
        stable: int,
        served: float,
    ) -> dict[str, _Seen]:
        """What is remembered of each run, by its id."""
        seen: dict[str, _Seen] = {}
        for run, engine in found:
            brief, _ = summarize(run)
            agent, brief.agent, brief.near = brief.agent, called(brief.agent), near[run.id]
            version = run.min_version if run.min_version == run.max_version else -1
            if self._alone and run.max_version < 0:  # then it was what served, unless that changed meanwhile
                before = served <= run.started and run.ended < trial.since
                version = trial.goal.version if run.started >= trial.since else stable if before else -1
            seen[run.id] = _Seen(_side(run, version, engine, trial, stable, self._alone), version, agent, brief)
        return seen

    async def _lost(self, trial: ServingTrial, before: Sequence[float]) -> list[bool]:
        """Of each run that ended with an error of the engine, and so is no trajectory, whether it was on trial.

        `before`: when runs of the rest ended."""
        lost = await self._store.lost_runs(trial.since, _FAILED)
        if not self._alone:
            return [engine == trial.engine for engine, _ in lost]
        earlier = await self._store.lost_runs(min(before, default=trial.since), _FAILED, until=trial.since)
        return [True for _ in lost] + [False for _ in earlier]


def _side(
    run: Trajectory, version: int, engine: str, trial: ServingTrial, stable: int, alone: bool
) -> bool | None:  # fmt: skip
    """True: it was on trial. By the weights that sampled it; of several engines by the engine where it does not say."""
    if run.started < trial.since:
        return False if alone and version == stable and run.ended < trial.since else None
    if run.min_version < 0 and not alone:
        return engine == trial.engine if engine else None
    if version == trial.goal.version:
        return True
    return False if version == stable and not alone else None


def _late(row: OutcomeRow) -> int:
    return 0 if row.told is None else lateness(row.told - row.ended)


def _fair(known: _Known, value: Value, where: Where) -> tuple[Runs, Runs, frozenset[str]]:
    """The runs on trial and the others, where nobody's word is to weigh too much, and whose does not."""
    mine, rest = ([one.run for one, _ in reversed(known) if one.canary is side] for side in (True, False))
    mine, rest, aside = fair(mine, rest, value, where)
    return without(mine, aside), without(rest, aside), aside


def _errors(mine: Runs, rest: Runs, where: Where, lost: Sequence[bool]) -> Rate:
    """Of runs with an error, and of such as the engine `lost`.

    A call that the engine did not answer has no run and no kind, so lost calls are compared among all runs together.
    Errors of tools are compared among runs of a kind.
    """
    answered = rate_of(strata(mine, rest, _erred, where))
    gone, gone_before = lost.count(True), lost.count(False)
    after, before = [1.0] * gone + [0.0] * len(mine), [1.0] * gone_before + [0.0] * len(rest)
    return Rate(
        answered.bad + gone, answered.runs + gone, answered.rest_bad + gone_before, answered.rest + gone_before,
        [*answered.strata, (after, before)],
    )  # fmt: skip
