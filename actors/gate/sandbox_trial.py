"""The gate with a sandbox: candidate and incumbent play the same held-out tasks (`gate.exam`).

After each batch the test, which may be looked at as often as one likes (`paired_sequential`), promotes, rejects, or
goes on until the budget of this verdict is spent: hold. What is asked about again goes on where it stopped. Each family
of tasks has a test of its own (`gate.forgetting`).

Every candidate gets tasks that nobody was tried on before, for on those that it was promoted by an incumbent looks
better than it is (docs/measured.md). Earlier records only say which version is the best, per *fingerprint* of the
environment: after a drift they are void.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import anyio
import msgspec
import structlog

from actors.gate.exam import Exam, ExamSettings
from actors.gate.forgetting import Family, forgetting
from actors.gate.panel import Comparison, Load, under_each
from actors.gate.scores import Attempts, score, summarize
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.statistics.intervals import Decision, both, decide
from actors.statistics.paired_sequential import confidence_sequence
from actors.store import Store

_log = structlog.get_logger(__name__)
_STATE = "gate/records"


class SandboxTrialSettings(ExamSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate's exam."""

    batch: int = 32
    """Held-out tasks from one look at the result to the next."""
    tasks: int = 128
    """Held-out tasks of one verdict at most; then it is a hold, and the next verdict goes on from there."""
    max_tasks: int = 512
    """Held-out tasks at most, over all verdicts of a candidate."""
    margin: float = 0.05
    """How much worse than the incumbent, and than the best version ever served, a candidate must not be."""
    alpha: float = 0.05
    """Probability at most that a candidate which is worse by the margin or more is ever promoted, however often one
    looks."""
    beta: float = 0.05
    """Probability at most that a candidate which is not worse is ever rejected for the average; over families see
    `gate.sandbox.forgetting`."""
    forgetting_margin: float = 0.15
    """What each family of tasks must show."""


class Records(msgspec.Struct):
    """What was measured under one fingerprint."""

    fingerprint: str
    candidate: int = -1
    """The one that is open: it and its rivals are compared task by task, of all others only the totals are left."""
    first: int = 0
    """Number of the first of its tasks."""
    looked: int = 0
    """How many of its tasks it has been looked at on."""
    fresh: int = 0
    """Number of the first task that nobody was tried on."""
    attempts: dict[int, dict[int, list[bool]]] = {}
    """By version, then by number of the candidate's tasks: whether it was solved."""
    totals: dict[int, tuple[int, int]] = {}
    """By version: attempts that solved their task, and all, at tasks of candidates before this one."""

    def begin(self, candidate: int, tasks: int, served: Sequence[int]) -> None:
        """Set aside `tasks` for `candidate`, unless it has some. Who neither serves nor has served is forgotten."""
        if candidate == self.candidate:
            return
        self.totals = {version: self.total(version) for version in served if self.total(version)[1]}
        self.candidate, self.first, self.looked, self.attempts = candidate, self.fresh, 0, {}
        self.fresh += tasks

    def total(self, version: int) -> tuple[int, int]:
        """Attempts of `version` that solved their task, and all."""
        solved, tried = self.totals.get(version, (0, 0))
        here = self.attempts.get(version, {}).values()
        return solved + sum(map(sum, here)), tried + sum(map(len, here))

    def taken(self, version: int) -> dict[int, Attempts]:
        """Attempts of `version` at those of the candidate's tasks that it was looked at on."""
        end = self.first + self.looked
        return {task: tried for task, tried in sorted(self.attempts[version].items()) if task < end}


class SandboxTrial:
    """`Trial` on held-out tasks."""

    def __init__(
        self,
        settings: SandboxTrialSettings,
        *,
        environment: Environment,
        engine: Engine,
        store: Store,
        seed: int = 0,
        harness: HarnessConfig = PLAIN,
    ) -> None:
        self._settings, self._store = settings, store
        self._exam = Exam(settings, environment=environment, engine=engine, seed=seed, harness=harness)

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        settings, before = self._settings, self._exam.fingerprint()
        records = await self._records(before)
        # A promotion that the swapper has not answered yet serves as good as any.
        able = sorted({*served, incumbent} - {candidate})
        records.begin(candidate, settings.max_tasks, able)
        rivals = {"incumbent": incumbent} if incumbent != candidate else {}
        rates = {version: solved / tried for version in able for solved, tried in [records.total(version)] if tried}
        best = max(rates, key=lambda version: (rates[version], version == incumbent), default=incumbent)
        if best != incumbent:
            rivals["best"] = best
        budget = min(settings.max_tasks, records.looked + settings.tasks)
        lost: set[tuple[int, int]] = set()
        comparison, looks, cut = Comparison("hold", "no look was possible in time", {}), 0, False
        while True:
            number = min(records.looked + settings.batch, budget)
            with anyio.CancelScope(deadline=deadline) as scope:
                await self._measure(records, rivals.values(), number, load, lost)
            cut = scope.cancelled_caught
            if self._exam.fingerprint() != before:
                return Comparison("hold", "the environment changed during the measurement", {})
            if cut:
                break
            looks, records.looked = looks + 1, number
            comparison = self._look(records, rivals)
            if comparison.decision != "hold" or number >= budget:
                break
        await self._store.state_put(_STATE, msgspec.msgpack.encode(records))
        figures = comparison.measurements | {
            "looks": float(looks),
            "out_of_time": float(cut),
            "best_void": float(bool(served) and not rates),
        }
        reason = comparison.reason + (", out of time" if cut else "")
        return Comparison(comparison.decision, reason, figures)

    def _look(self, records: Records, rivals: Mapping[str, int]) -> Comparison:
        settings = self._settings
        mine = records.taken(records.candidate)
        total = summarize(list(mine.values()))
        figures = {
            "success": total.average.estimate,
            "low": total.average.low,
            "high": total.average.high,
            "tasks": float(total.tasks),
            "attempts": float(settings.attempts),
        }
        decision: Decision = "promote"
        parts = [f"solved {total.average.estimate:.2f} of {total.tasks} held-out tasks"]
        pairs: dict[int, tuple[float, float]] = {}
        for name, rival in rivals.items():
            theirs = records.taken(rival)
            pairs = {task: (score(mine[task]), score(theirs[task])) for task in mine if task in theirs}
            # A candidate can be rejected by either rival: the two tests share the error.
            difference = confidence_sequence(
                [one - other for one, other in pairs.values()], settings.alpha, settings.beta / len(rivals)
            )
            decision = both(decision, decide(difference, settings.margin))
            success = fmean(other for _, other in pairs.values()) if pairs else 0.0
            parts.append(
                f"{name} v{rival} {success:.2f}, difference {difference.estimate:+.2f} "
                f"[{difference.low:+.2f}, {difference.high:+.2f}]"
            )
            figures |= {
                f"{name}_version": float(rival),
                f"{name}_success": success,
                f"{name}_difference": difference.estimate,
                f"{name}_low": difference.low,
                f"{name}_high": difference.high,
                f"{name}_tasks": float(len(pairs)),
            }
        if rivals:  # the last of them is the best
            families = {
                cluster: Family(name, [pairs[task] for task in tasks])
                for cluster, (name, tasks) in self._exam.families(pairs).items()
            }
            suite = forgetting(families, settings.forgetting_margin)
            assert suite.decision != "wait"
            figures |= suite.measurements
            decision = both(decision, suite.decision)
            parts = [suite.reason, *parts] if suite.reason else parts
        return Comparison(decision, ", ".join(parts), figures)

    async def _measure(
        self, records: Records, rivals: Iterable[int], number: int, load: Load, lost: set[tuple[int, int]]
    ) -> None:
        """Attempt those of the candidate's first `number` tasks that it or any of `rivals` has not attempted.

        Args:
            lost: versions and tasks of which attempts broke down in this verdict: not tried again, and added to. They
                count with the attempts that are left.
        """
        wanted, most = range(records.first, records.first + number), self._settings.attempts
        missing: dict[int, dict[int, int]] = {}
        for version in (records.candidate, *rivals):
            attempts = records.attempts.setdefault(version, {})
            have = {task: len(attempts.get(task, ())) for task in wanted if (version, task) not in lost}
            missing[version] = {task: count for task, count in have.items() if count < most}

        async def attempt(version: int) -> None:
            def record(task: int, solved: bool) -> None:
                records.attempts[version].setdefault(task, []).append(solved)

            broken = await self._exam.play(version, missing[version], record)
            lost.update((version, task) for task in broken)
            _log.info("gate_measured", version=version, tasks=number, played=len(missing[version]), lost=len(broken))

        await under_each([version for version in missing if missing[version]], records.candidate, load, attempt)

    async def _records(self, fingerprint: str) -> Records:
        data = await self._store.state_get(_STATE)
        if data is not None:
            try:
                records = msgspec.msgpack.decode(data, type=Records)
            except msgspec.DecodeError as error:
                _log.warning("gate_records_unreadable", error=str(error))
            else:
                if records.fingerprint == fingerprint:
                    return records
                _log.info("gate_records_void", fingerprint=fingerprint)
        return Records(fingerprint)
