"""How the gate measures a candidate: the `Trial` Protocol, and the trial on held-out tasks of a sandbox.

Candidate and incumbent play the same tasks (`gate.exam`); after each batch the test, which may be looked at as often as
one likes (`paired_sequential`), promotes, rejects, or goes on until the budget of this verdict is spent: hold. What
is asked about again goes on where it stopped. Each family of tasks has a test of its own (`gate.forgetting`).

Every candidate gets tasks that nobody was tried on before, for on those that it was promoted by an incumbent looks
better than it is (docs/measured.md). Earlier records only say which version is the best, per *fingerprint* of the
environment: after a drift they are void.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import anyio
import msgspec
import structlog

from actors.gate.exam import Exam, ExamSettings
from actors.gate.forgetting import Family, forgetting
from actors.gate.scores import score, summarize
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.statistics.intervals import Decision, both, decide
from actors.statistics.paired_sequential import confidence_sequence
from actors.store import Store

_log = structlog.get_logger(__name__)
_STATE = "gate/records"

Load = Callable[[int], Awaitable[None]]
"""Puts a version into the shadow engine; raises what the gatekeeper's own load raises."""


class Comparison(msgspec.Struct, frozen=True):
    """What a trial came to."""

    decision: Decision | Literal["wait"]
    """`wait`: there is not enough to judge by; no verdict, and asked again."""
    reason: str
    measurements: dict[str, float]
    """Of `wait` also `evidence` and `evidence_needed`, pieces of it."""
    gives_way: bool = False
    """Of `wait`: it was looked at, and a candidate that moved less may be judged sooner."""


class Trial(Protocol):
    """A way to compare weights without letting them near a user."""

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        """Measure `candidate`, which is in the shadow engine and is there again in the end, against `incumbent`, and
        against the best of all that were `served`. What `deadline` (on anyio's clock) leaves open is held.

        Raises:
            DependencyUnavailable: engine or environment are away; nothing was concluded.
        """
        ...


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
    """Outcomes by version, then by task number, under one fingerprint."""

    fingerprint: str
    attempts: dict[int, dict[int, list[bool]]] = {}
    reached: dict[int, int] = {}
    """By candidate: how many of its tasks it has been looked at on."""
    first: dict[int, int] = {}
    """By candidate: number of the first of its tasks."""
    fresh: int = 0
    """Number of the first task that nobody was tried on."""

    def begin(self, candidate: int, tasks: int) -> None:
        """Set aside `tasks` for `candidate`, unless it has some."""
        if candidate not in self.first:
            self.first[candidate], self.fresh = self.fresh, self.fresh + tasks

    def taken(self, version: int, candidate: int, number: int) -> dict[int, list[bool]]:
        """Attempts of `version` at the first `number` tasks of `candidate`, of those tasks that have any."""
        begin = self.first[candidate]
        tasks = range(begin, begin + number)
        return {task: tried for task, tried in sorted(self.attempts[version].items()) if task in tasks and tried}


class SandboxTrial:
    """`Trial` on held-out tasks."""

    _VERSIONS = 64
    """Versions whose records are kept; the oldest numbers go first."""

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
        self.lost = 0
        """Tasks of which an attempt broke down; they count with the attempts that are left."""

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        settings = self._settings
        before = self._exam.fingerprint()
        records = await self._records(before)
        # A promotion that the swapper has not answered yet serves as good as any.
        known = [v for v in {*served, incumbent} if v in records.attempts and v != candidate]
        rivals = _rivals(
            candidate, incumbent, max(known, key=lambda v: (_rate(records, v), v == incumbent), default=incumbent)
        )
        records.begin(candidate, settings.max_tasks)
        reached = records.reached.get(candidate, 0)
        budget = min(settings.max_tasks, reached + settings.tasks)
        lost: set[tuple[int, int]] = set()
        comparison, number, looks, cut = Comparison("hold", "no look was possible in time", {}), reached, 0, False
        while True:
            number = min(number + settings.batch, budget)
            with anyio.CancelScope(deadline=deadline) as scope:
                await self._measure(records, (candidate, *rivals.values()), number, load, lost)
            cut = scope.cancelled_caught
            if self._exam.fingerprint() != before:
                return Comparison("hold", "the environment changed during the measurement", {})
            if cut:
                break
            looks += 1
            records.reached[candidate] = number
            comparison = self._look(records, candidate, rivals, number)
            if comparison.decision != "hold" or number >= budget:
                break
        await self._keep(records)
        figures = comparison.measurements | {
            "looks": float(looks),
            "out_of_time": float(cut),
            "best_void": float(bool(served) and not known),
        }
        reason = comparison.reason + (", out of time" if cut else "")
        return Comparison(comparison.decision, reason, figures)

    def _look(self, records: Records, candidate: int, rivals: dict[str, int], number: int) -> Comparison:
        settings = self._settings
        mine = records.taken(candidate, candidate, number)
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
        for name, rival in rivals.items():
            theirs = records.taken(rival, candidate, number)
            common = sorted(mine.keys() & theirs.keys())
            differences = [score(mine[task]) - score(theirs[task]) for task in common]
            # A candidate can be rejected by either rival: the two tests share the error.
            difference = confidence_sequence(differences, settings.alpha, settings.beta / len(rivals))
            decision = both(decision, decide(difference, settings.margin))
            other = summarize([theirs[task] for task in common])
            parts.append(
                f"{name} v{rival} {other.average.estimate:.2f}, difference {difference.estimate:+.2f} "
                f"[{difference.low:+.2f}, {difference.high:+.2f}]"
            )
            figures |= {
                f"{name}_version": float(rival),
                f"{name}_success": other.average.estimate,
                f"{name}_difference": difference.estimate,
                f"{name}_low": difference.low,
                f"{name}_high": difference.high,
                f"{name}_tasks": float(len(common)),
            }
        reference = rivals.get("best", rivals.get("incumbent"))
        if reference is not None:
            families = self._families(mine, records.taken(reference, candidate, number))
            suite = forgetting(families, settings.forgetting_margin)
            figures |= suite.figures
            decision = both(decision, suite.decision)
            if suite.reason:
                parts.insert(0, suite.reason)
        return Comparison(decision, ", ".join(parts), figures)

    def _families(self, mine: dict[int, list[bool]], theirs: dict[int, list[bool]]) -> dict[str, Family]:
        found = self._exam.families(sorted(mine.keys() & theirs.keys()))
        return {
            cluster: Family(
                name=name,
                candidate=[score(mine[task]) for task in tasks],
                reference=[score(theirs[task]) for task in tasks],
            )
            for cluster, (name, tasks) in found.items()
        }

    async def _measure(
        self, records: Records, versions: Sequence[int], number: int, load: Load, lost: set[tuple[int, int]]
    ) -> None:
        """Attempt those of the candidate's first `number` tasks that any of `versions` has not attempted.

        The candidate comes first in `versions` and is loaded; it is loaded again in the end, because the rollouts go on
        with what is left in the engine.

        Args:
            lost: versions and tasks of which attempts broke down in this verdict: not tried again, and added to.
        """
        loaded, begin = versions[0], records.first[versions[0]]
        try:
            for version in versions:
                attempts = records.attempts.setdefault(version, {})
                have = {
                    task: len(attempts.get(task, ()))
                    for task in range(begin, begin + number)
                    if (version, task) not in lost
                }
                missing = {task: count for task, count in have.items() if count < self._settings.attempts}
                if not missing:
                    continue
                if version != loaded:
                    loaded = version
                    with anyio.CancelScope(shield=True):  # a load has a deadline of its own, and must not stop half way
                        await load(version)
                broken = await self._exam.play(
                    version, missing, lambda task, outcome, to=attempts: to.setdefault(task, []).append(outcome)
                )
                lost |= {(version, task) for task in broken}
                self.lost += len(broken)
                _log.info("gate_measured", version=version, tasks=number, played=len(missing), lost=len(broken))
        finally:
            if loaded != versions[0]:
                with anyio.CancelScope(shield=True):
                    await load(versions[0])

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
                _log.info("gate_records_void", fingerprint=fingerprint, versions=len(records.attempts))
        return Records(fingerprint)

    async def _keep(self, records: Records) -> None:
        for version in sorted(records.attempts)[: -self._VERSIONS]:
            del records.attempts[version]
            records.reached.pop(version, None)
            records.first.pop(version, None)
        for version, attempts in records.attempts.items():  # a version that serves for long meets every candidate
            newest = sorted(attempts)[-2 * self._settings.max_tasks :]
            records.attempts[version] = {task: attempts[task] for task in newest}
        await self._store.state_put(_STATE, msgspec.msgpack.encode(records))


def _rivals(candidate: int, incumbent: int, champion: int) -> dict[str, int]:
    """What the candidate must match, by the name of the comparison."""
    rivals = {"incumbent": incumbent} if incumbent != candidate else {}
    if champion not in (incumbent, candidate):
        rivals["best"] = champion
    return rivals


def _rate(records: Records, version: int) -> float:
    """Share of the attempts that solved their task. A few lucky ones may make a champion, who then has to attempt the
    candidate's tasks, and is none any more."""
    return summarize(list(records.attempts[version].values())).average.estimate
