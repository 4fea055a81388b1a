"""Tasks from live failures: what production fails at becomes something that the sandbox can be good at.

    trajectory.attributed, trajectory.outcome
        -> failures of one kind -> the rollout's own mix has it: its weight is raised
                                -> the environment has it: its own tasks are offered
                                -> else: its goal in other worlds, by the way of a run that succeeded

Failures are of one kind if their goals mean about the same (`actors.kinds.levels`). One concrete request is reproduced
at a time, the newest first; each failure is used once. A reference is what was executed in the world that the task
begins in; it comes from a run that somebody called a success, in other words too if all such runs went one way, or from
the policy's own attempts that a grader called one. Failures that nothing can be made of wait for a while, and are
counted. Nothing but ids is remembered here: what is forgotten is gone.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import msgspec
import structlog

from actors.curation.curriculum import Curriculum
from actors.kinds.clusters import template_of
from actors.kinds.holdout import held_out
from actors.kinds.levels import REST
from actors.kinds.remembered import Remembered
from actors.messages import Attributed, OutcomeChanged, Task, Trajectory, derived_id
from actors.ports.environments import Environment
from actors.ports.errors import AdapterError
from actors.statistics.parties import in_turn, party_of
from actors.store import Store
from actors.store.records import Used
from actors.system.actor import Actor, Received, Result
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME
from actors.tasks.call_plans import CallPlan, carry_out, in_other_words, plans_of
from actors.tasks.entities import carried_over, entities
from actors.tasks.failing_kinds import Asked, Failure, SavedKind, Waiting
from actors.tasks.searching import ShadowSearch
from actors.tool_results.runs import loops

_log = structlog.get_logger(__name__)
_WAITING = "tasks/failures"
"""Ids of failures that wait, by kind."""
_A_TICK = 16
"""Kinds that are looked at a tick, each party's in its turn: worlds are sampled and executed for each."""
_REQUESTS = 8
"""Different requests of a kind that are reproduced at a time."""
_OTHER_WORDS = 2
"""Runs that went one way at such requests, where none succeeded at the very same."""
_SUCCESS = 0.5
_BELOW = 0.5
"""An outcome below this is a failure. A run without one is, if it went round in circles."""
_VARIANTS = 16
"""Tasks that are made of a kind at a time, each in another world: two rounds of groups."""
_PER_KIND = 64
"""Tasks of a kind in the pool, retired ones not counted."""
_WORLDS = 256
"""The environment's tasks that are looked at to find worlds for a kind."""
_FIRST_SEED = 60_000_000
"""Number of the first of them; far from those of rollouts, probes and skills."""
_PATIENCE = 20
"""Ticks that failures wait for somebody to succeed at their kind."""
_MOST_WAITING = 32
"""Failures of a kind that wait, the newest."""
_KINDS = 256
"""Kinds that wait; the one heard of longest ago goes first."""
_HISTORY = 2048
"""Runs of production and sandbox, each, that are looked through for one that succeeded."""
_TIMEOUT = 30.0
"""Seconds for the execution of one reference."""
_LEAST = 3
"""Failures of a kind before tasks are made of them: one or two are chance, or somebody's typing error."""


class LiveFailures(Actor):
    """Actor: failures in, tasks of the pool out."""

    name = "failures"
    inputs = (TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME)
    batch = 128
    tick_seconds = 5.0
    renews = True

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        families: str | None,
        kinds: Curriculum,
        searcher: ShadowSearch | None = None,
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        """
        Args:
            kinds: says which failures are alike, and is told which kinds traffic fails at.
            exam: whether a production trajectory, by id, is the gate's: nothing is made of it.
            families: that the rollout plays, one letter each; None for the environment's usual mix.
            searcher: None: where nobody succeeded, nothing is made.
        """
        self._store, self._environment, self._families = store, environment, families
        self._kinds, self._searcher, self._exam = kinds, searcher, exam
        self._waiting: Remembered[Waiting] = Remembered(_KINDS)
        self._sampled: list[Task] = []
        """The environment's tasks that were looked at this tick."""
        self._changed = False
        self.counts: Counter[str] = Counter()
        """What became of failures: seen, held_out, crowded_out (others of their kind, or other kinds, came), urged,
        own and made (used, for tasks of the environment and for self-made ones), full (enough tasks of that kind),
        gone (forgotten meanwhile), given_up, retracted (corrected to a success). And of attempts to make tasks:
        offered, no_way, no_world, and what `call_plans.carry_out` says."""

    async def start(self) -> None:
        data = await self._store.state_get(_WAITING)
        self._waiting = Remembered(_KINDS)
        try:
            kinds = msgspec.msgpack.decode(data, type=dict[str, SavedKind]) if data else {}
        except msgspec.DecodeError as error:
            _log.warning("failures_unreadable", error=str(error), bytes=len(data or b""))
            return
        for kind, saved in kinds.items():
            waiting = Waiting(saved.party, _MOST_WAITING)
            waiting.ticks = saved.ticks
            for one in saved.failures:
                waiting.failures.append(one)
            self._waiting.put(kind, saved.party, waiting)

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Note the failures of a batch, and take back what is none any more."""
        latest = await self._store.latest(self.name, [received.message for received in batch])
        changed = {received.message.id for received in batch if isinstance(received.message, OutcomeChanged)}
        records: list[Used] = []
        for key, item in latest.runs.items():
            run = item.trajectory
            if run.outcome is not None and not latest.news(run):
                continue
            if self._fails(item):
                self._note(run)
                if run.outcome is not None:
                    records.append(Used(id=key, actor=self.name, revision=run.outcome_revision))
            elif key in changed:
                self._retract(key)
        await self._save()
        return Result(records)

    async def tick(self) -> Result:
        """Make tasks of the kinds of which there are failures enough."""
        self._sampled.clear()
        for kind, waiting in self._due():
            runs = await self._runs(waiting.ids)
            if len(runs) < len(waiting.ids):
                self.counts["gone"] += len(waiting.ids) - len(runs)
                waiting.keep({run.id for run in runs})
                self._changed = True
            asked = Asked(kind, runs, _LEAST)
            used = await self._use(asked) if len(runs) >= _LEAST else ""
            waiting.ticks += 1
            if not used and waiting.ticks >= _PATIENCE:
                used = "given_up"
            if used:
                self.counts[used] += len(asked.runs)
                _log.info("failures_used", kind=kind, failures=len(asked.runs), what=used)
                waiting.keep(set(waiting.ids) - {run.id for run in asked.runs})
                self._changed = True
            if not waiting.ids:
                self._waiting.drop(kind)
        await self._save()
        return Result()

    def _due(self) -> list[tuple[str, Waiting]]:
        """Kinds with failures enough, those first that were tried least often, each party's in its turn."""
        found = [(name, one) for name, _, one in self._waiting if len(one.failures) >= _LEAST]
        found.sort(key=lambda item: item[1].ticks)
        return [found[place] for place in in_turn([one.party for _, one in found])[:_A_TICK]]

    def _retract(self, run_id: str) -> None:
        """It was no failure, after all."""
        for kind, _, waiting in list(self._waiting):
            if run_id in waiting.ids:
                waiting.keep(set(waiting.ids) - {run_id})
                self.counts["retracted"] += 1
                self._changed = True
                if not waiting.ids:
                    self._waiting.drop(kind)

    def _fails(self, item: Attributed) -> bool:
        run = item.trajectory
        if run.source != "production" or not template_of(run.goal):
            return False
        failed = run.outcome < _BELOW if run.outcome is not None else loops(run.steps)
        if failed and self._exam(run.id):
            self.counts["held_out"] += 1
            return False
        return failed

    def _note(self, run: Trajectory) -> None:
        kind, party = self._kinds.failed(run), party_of(run.tenant, run.caller)
        waiting = self._waiting.get(kind)
        if waiting is None:
            waiting = Waiting(party, _MOST_WAITING)
            gone = self._waiting.put(kind, party, waiting)
            if gone is not None:
                self.counts["crowded_out"] += len(gone.failures)
        if run.id in waiting.ids:
            return
        self.counts["seen"] += 1
        if waiting.failures.full:
            self.counts["crowded_out"] += 1
        waiting.failures.append(Failure(run.id, party))
        self._changed = True

    async def _use(self, asked: Asked) -> str:
        """What failures were used for; empty if nothing could be made of them yet."""
        # What was said in so many words is looked for in the environment first: its own tasks have its own verifier.
        if not asked.template:
            made = await self._reproduce(asked)
            if made:
                return made
        own = [task for task in self._worlds() if asked.has(task.goal, self._kinds)]
        # What the sandbox has of the kind is known to the curriculum by another level perhaps, or not yet at all.
        if raised := sorted({self._kinds.kind(task.goal) for task in own} - {REST}):
            for name in raised:
                self._kinds.urge(name)
            return "urged"
        if own:
            known, room = await self._room(asked)
            fresh = [task for task in own if task.id not in known]
            return "own" if await self._offer(fresh[: max(0, room)], asked.runs) else "full"
        return await self._reproduce(asked) if asked.template else ""

    async def _room(self, asked: Asked) -> tuple[set[str], int]:
        """Ids of the tasks in the pool, and how many more of a kind may be made now."""
        pool = await self._store.task_states()
        live = sum(one.state != "retired" and asked.has(one.task.goal, self._kinds) for one in pool)
        return {one.task.id for one in pool}, min(_PER_KIND - live, _VARIANTS)

    async def _reproduce(self, asked: Asked) -> str:
        """Make tasks of what was asked for: one request after the other, the newest first, each as it was said."""
        known, room = await self._room(asked)
        if room <= 0:
            return "full"
        won = await self._won(asked)
        requests = list(dict.fromkeys(template_of(run.goal) for run in reversed(asked.runs)))[:_REQUESTS]
        made = 0
        for left, template in zip(range(len(requests), 0, -1), requests, strict=True):
            # Each has its share of the room, so that the first does not take it all.
            made += await self._make(asked, template, won, -(-(room - made) // left), known)
        return "made" if made else ""

    async def _runs(self, ids: Sequence[str]) -> list[Trajectory]:
        found = {run.id: run for run, _ in await self._store.closed_runs(ids)}
        gone = await self._store.tombstoned(ids)
        return [found[key] for key in ids if key in found and key not in gone]

    def _worlds(self) -> list[Task]:
        """The environment's own tasks, within reach."""
        if self._sampled:
            return self._sampled
        for seed in range(_FIRST_SEED, _FIRST_SEED + _WORLDS):
            try:
                self._sampled.append(self._environment.sample(seed, "train", self._families))
            except (AdapterError, ValueError):
                self.counts["not_sampled"] += 1
        return self._sampled

    async def _make(
        self, asked: Asked, template: str, won: Sequence[Sequence[Trajectory]], room: int, known: Collection[str]
    ) -> int:
        """Offer self-made tasks of one request of a kind; how many were new. They rest on all failures of the kind."""
        runs = [run for run in asked.runs if template_of(run.goal) == template]
        places = [
            (base, goal)
            for number, base in enumerate(self._worlds())
            if (goal := carried_over(runs[number % len(runs)].goal, entities(base.goal))) is not None
            and template_of(goal) == template
        ]
        if not places:
            self.counts["no_world"] += 1
            return 0
        plans = self._plans(won, template, runs[-1].goal) or await self._searched(places)
        if not plans:
            self.counts["no_way"] += 1
            return 0
        tasks: dict[str, Task] = {}
        sources = [run.id for run in asked.runs]
        for base, goal in places:
            if len(tasks) == room:
                break
            task = await self._task(plans, base, goal, sources)
            if task is not None and task.id not in known:
                tasks[task.id] = task
        return await self._offer(list(tasks.values()), ())

    async def _task(self, plans: Sequence[CallPlan], base: Task, goal: str, sources: Sequence[str]) -> Task | None:
        for plan in plans:
            made_from = (*sources, *plan.runs)
            spec = await carry_out(self._environment, plan, base, goal, made_from, _TIMEOUT)
            if isinstance(spec, str):
                self.counts[spec] += 1
                continue
            return Task(
                id=derived_id("failure", base.id, goal), goal=goal, environment=base.environment,
                spec=msgspec.to_builtins(spec), difficulty=base.difficulty, origin="production",
            )  # fmt: skip
        return None

    async def _won(self, asked: Asked) -> list[list[Trajectory]]:
        """Runs that succeeded at what was asked for, the sandbox's own first: nobody outside wrote those. What one
        tenant's agents found out makes no task of another's failures."""
        tenants, found = {run.tenant for run in asked.runs}, list[list[Trajectory]]()
        for source in ("sandbox", "production"):
            rows = await self._store.recent_outcomes(source=source, limit=_HISTORY)
            ids = [
                row.id for row in rows
                if row.outcome is not None and row.outcome >= _SUCCESS and asked.has(row.goal, self._kinds)
                and not (source == "production" and self._exam(row.id))
            ]  # fmt: skip
            runs = await self._runs(ids[:_MOST_WAITING])
            found.append([run for run in runs if source == "sandbox" or run.tenant in tenants])
        return found

    def _plans(self, won: Sequence[Sequence[Trajectory]], template: str, goal: str) -> list[CallPlan]:
        for runs in won:
            plans = plans_of([run for run in runs if template_of(run.goal) == template])
            if plans:
                return plans
        return in_other_words([run for runs in won for run in runs], goal, least=_OTHER_WORDS)

    async def _searched(self, places: Sequence[tuple[Task, str]]) -> list[CallPlan]:
        if self._searcher is None:
            return []
        base, goal = places[self.counts["searched"] % len(places)]
        self.counts["searched"] += 1
        try:
            run = await self._searcher.search(base, goal)
        except AdapterError as error:
            _log.warning("failure_search_failed", reason=f"{type(error).__name__}: {error}")
            return []
        # The attempt is no record of anybody: nothing has to be forgotten with it.
        return [msgspec.structs.replace(plan, runs=()) for plan in plans_of([run])] if run is not None else []

    async def _offer(self, tasks: Sequence[Task], runs: Collection[Trajectory]) -> int:
        new = await self._store.offer(tasks, [run.id for run in runs])
        self.counts["offered"] += new
        return new

    async def _save(self) -> None:
        if self._changed:
            saved = {kind: SavedKind(one.party, list(one.failures), one.ticks) for kind, _, one in self._waiting}
            await self._store.state_put(_WAITING, msgspec.msgpack.encode(saved))
            self._changed = False
