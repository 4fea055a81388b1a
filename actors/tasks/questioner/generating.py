"""`Generator`: one world a round: look around, learn programs and words, execute, filter, keep.

A round follows from seed, number and state alone, so a run that was killed goes on from its last whole round and comes
to the same tasks. Executions decide what is kept; a language model may word a goal, and is checked.
"""

import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from actors.messages import Task, derived_id
from actors.ports.environments import Environment
from actors.ports.errors import AnswerRefused, ModelUnavailable
from actors.ports.models import Draft, Embedder, TaskPhrasing
from actors.tasks.questioner.arguments import Values
from actors.tasks.questioner.drafting import Drafter
from actors.tasks.questioner.errors import BudgetSpent, SolverUnavailable, TaskFileMalformed, WorldLost
from actors.tasks.questioner.exploring import Explorer
from actors.tasks.questioner.filters import Dropped, Filters, Proposal
from actors.tasks.questioner.goal_templates import unfit
from actors.tasks.questioner.hindsight import Hindsight
from actors.tasks.questioner.instance_pool import InstancePool
from actors.tasks.questioner.settings import FilterSettings, Preferences, ProbeSettings, QuestionerSettings
from actors.tasks.questioner.solving import EngineSolver
from actors.tasks.questioner.state import Known, QuestionerState
from actors.tasks.reference_calls import SyntheticTaskSpec, replay

_FIRST_SEED = 1_000_000
"""Number of the first training task whose world is looked at; far from the rollout's, which begin at 0."""
_WORDINGS = 1000
"""Goals that a language model may be asked to word, of one run."""
_WORDINGS_LOST = 5
"""Failures in a row after which a wording is not asked again in this run."""
_STALE = 80
"""Failures in a row after which a program is forgotten."""
_SHARED_FROM = 12
"""Tasks from which one program may not have more than its share."""


class Generator:
    """Makes tasks, into `state`.

    Args:
        known: tasks that exist already.
    """

    def __init__(
        self,
        settings: QuestionerSettings,
        environment: Environment,
        *,
        clock: Callable[[], float],
        seed: int = 0,
        embedder: Embedder | None = None,
        wording: TaskPhrasing | None = None,
        solver: EngineSolver | None = None,
        state: QuestionerState | None = None,
        known: Sequence[Task] = (),
        probe: ProbeSettings | None = None,
        filters: FilterSettings | None = None,
    ) -> None:
        """
        Raises:
            TaskFileMalformed: `state` is of another environment, seed, or settings.
        """
        probe, filters = probe or ProbeSettings(), filters or FilterSettings()
        options = options_digest(settings, environment.name, seed)
        self.state = state or QuestionerState(environment=environment.name, options=options, seed=seed)
        if self.state.environment != environment.name or self.state.options != options:
            raise TaskFileMalformed(
                f"tasks of {self.state.environment!r} with seed {self.state.seed}, made with other settings than now; "
                "continue with the same ones, or begin another file"
            )
        self.state.model.environment = environment.name
        self._settings, self._environment, self._probe = settings, environment, probe
        self._wording, self._solver = wording, solver
        profile = environment.profile()
        self.instances = InstancePool(environment, probe, clock)
        # Looking around takes every value but those to avoid: what may be used decides only which tasks are made.
        looking = Preferences(avoid=settings.prefer.avoid)
        values = Values(self.state.model, profile, looking)
        self._explorer = Explorer(self.instances, self.state.model, values, probe)
        self._hindsight = Hindsight(self.instances, self.state, values, profile)
        wanted = Values(self.state.model, profile, settings.prefer)
        self._drafter = Drafter(self.instances, self.state, wanted, profile, settings.prefer)
        self._filters = Filters(filters, settings.prefer, embedder, known)
        self._filters.restore(self.state.entries)
        self._program_share = filters.program_share
        self._wordings, self._wordings_lost = 0, 0

    async def run(self, count: int, done: Callable[[QuestionerState], Awaitable[None] | None]) -> QuestionerState:
        """Rounds until there are `count` tasks, or nothing more is to be had; `state.ended` says which.

        Args:
            done: called after each round, to save and to show.

        Raises:
            NotProbeable
        """
        self.state.ended = ""
        while len(self.state.tasks) < count:
            if not self.instances.left:
                self.state.ended = "the budget of instances, calls or seconds is spent"
                break
            new = await self.round(count - len(self.state.tasks))
            self.state.barren = 0 if new else self.state.barren + 1
            if self.state.barren >= self._probe.barren:
                self.state.ended = f"{self.state.barren} worlds in a row gave no new task"
                break
            if (waits := done(self.state)) is not None:
                await waits
        else:
            self.state.ended = "complete"
        if (waits := done(self.state)) is not None:
            await waits
        return self.state

    async def round(self, most: int) -> list[Task]:
        """Look at the next world; at most `most` new tasks, which are in the state, too.

        Raises:
            NotProbeable: nothing can be learned here; budgets that end and instances that fail do not raise.
        """
        state = self.state
        rng = random.Random(f"{state.seed}-{state.round}")
        base = self._environment.sample(_FIRST_SEED + state.round, "train", self._settings.families or None)
        before = dict(self.instances.counts)
        kept: list[Task] = []
        try:
            await self._look(base, rng)
            for known in self._order(rng):
                if len(kept) >= most:
                    break
                if self._full(known):
                    continue
                try:
                    async for proposal, draft in self._drafter.drafts(base, known, self._probe.tries, rng):
                        if await self._take(proposal, draft, known):
                            kept.append(proposal.task)
                        if len(kept) >= most or self._full(known):
                            break
                except WorldLost:
                    known.failed += 1
        except (WorldLost, BudgetSpent):
            # What was kept so far stays; the laboratory has counted it.
            pass
        state.round += 1
        for shape in [shape for shape, one in state.library.items() if one.in_a_row >= _STALE]:
            # The environment has changed; what still works will be found again.
            del state.library[shape]
            state.count("programs_stale")
        for name, count in self.instances.counts.items():
            state.count(name, max(0, count - before.get(name, 0)))
        state.entries = list(self._filters.entries.values())
        still = {task.id for task in state.tasks}
        return [task for task in kept if task.id in still]

    def forget(self, task: str) -> None:
        """Compare new tasks with the kept one `task` no more."""
        self._filters.forget(task)

    async def _look(self, base: Task, rng: random.Random) -> None:
        """Explore the world of `base` and learn from it."""
        known = set(self.state.library)
        await self._explorer.breadth(base, rng)
        for _ in range(self._probe.walks):
            try:
                await self._hindsight.learn(base, await self._explorer.walk(base, rng))
            except WorldLost:
                continue
        await self._hindsight.combine(base, rng)
        await self._hindsight.word(base, rng)
        for shape in [shape for shape in self.state.library if shape not in known]:
            dropped = self._filters.before_execution(self.state.library[shape].program)
            if dropped is not None:
                # Of one program once, and not in every world again.
                self.state.count("proposed")
                self.state.drop(msgspec.structs.replace(dropped, goal=shape))

    def _order(self, rng: random.Random) -> list[Known]:
        """Programs that may become tasks, those that have become few first."""
        library = list(self.state.library.values())
        closed = {frozenset(one.aims) for one in library if one.closed}
        useful = [
            one
            for one in library
            if self._filters.before_execution(one.program) is None
            # Told in the environment's own words, and so ended, is better than told from the tools' names.
            and (one.closed or frozenset(one.aims) not in closed)
        ]
        rng.shuffle(useful)
        return sorted(useful, key=lambda one: one.kept)

    def _full(self, known: Known) -> bool:
        """Whether a program has its share of the tasks."""
        tasks = sum(one.kept for one in self.state.library.values())
        others = sum(one.kept > 0 for one in self.state.library.values())
        return tasks >= _SHARED_FROM and others > 2 and known.kept > self._program_share * tasks

    async def _take(self, proposal: Proposal, draft: Draft, known: Known) -> bool:
        """Whether the task was kept; if not, it is counted with its reason."""
        state = self.state
        state.count("proposed")
        proposal = await self._worded(proposal, draft)
        dropped = self._filters.before_execution(proposal.program) or await self._filters.check(proposal)
        if dropped is not None and dropped.reason == "ambiguous":
            for task in self._filters.contradicted(proposal):
                self._withdraw(task)
        if dropped is None:
            dropped = await self._replayed(proposal)
        if dropped is None:
            dropped = await self._solvable(proposal)
        if dropped is not None:
            state.drop(dropped)
            return False
        self._filters.keep(proposal)
        state.tasks.append(proposal.task)
        state.count("kept")
        known.kept += 1
        return True

    def _withdraw(self, task_id: str) -> None:
        """A kept task turned out to be ambiguous."""
        task = next((one for one in self.state.tasks if one.id == task_id), None)
        self._filters.forget(task_id)
        if task is not None:
            self.state.tasks.remove(task)
            self.state.count("kept", -1)
            self.state.drop(Dropped(goal=task.goal, reason="ambiguous", detail="the same goal led to another state"))

    async def _replayed(self, proposal: Proposal) -> Dropped | None:
        """Execute the reference once more, as every attempt at the task will be verified."""
        self.state.count("replays")
        spec = msgspec.convert(proposal.task.spec, SyntheticTaskSpec)
        self.instances.counts["instances"] += 1
        self.instances.counts["steps"] += len(spec.reference)
        try:
            reached = await self.instances.within(replay(self._environment, spec))
        except WorldLost as error:
            return Dropped(goal=proposal.task.goal, reason="does_not_replay", detail=str(error))
        problem = reached.problem
        if not problem and (reached.state != msgspec.to_builtins(proposal.after) or reached.answer != proposal.answer):
            problem = "another state than the first time"
        if problem:
            return Dropped(goal=proposal.task.goal, reason="does_not_replay", detail=problem)
        self.state.count("replayed")
        return None

    async def _solvable(self, proposal: Proposal) -> Dropped | None:
        """Whether the current policy solves it sometimes; asked twice where the first word is always or never."""
        if self._solver is None or not self._settings.attempts:
            return None
        try:
            rate = await self._solver.attempt(proposal.task, self._settings.attempts)
            if rate in (0.0, 1.0):
                rate = (rate + await self._solver.attempt(proposal.task, self._settings.attempts)) / 2
        except SolverUnavailable as error:
            self.state.count("solver.unavailable")
            return Dropped(goal=proposal.task.goal, reason="not_tried", detail=str(error))
        if rate in (0.0, 1.0):
            reason = "too_easy" if rate else "too_hard"
            return Dropped(goal=proposal.task.goal, reason=reason, detail=f"{2 * self._settings.attempts} attempts")
        return None

    async def _worded(self, proposal: Proposal, draft: Draft) -> Proposal:
        """The proposal in a language model's words, where there is one and its words will do."""
        if self._wording is None or self._wordings >= _WORDINGS or self._wordings_lost >= _WORDINGS_LOST:
            return proposal
        self._wordings += 1
        try:
            goal = " ".join((await self._wording.word(draft)).split())
            self._wordings_lost = 0
        except ModelUnavailable:
            self._wordings_lost += 1
            self.state.count("wording.unavailable")
            return proposal
        except AnswerRefused as error:
            self.state.count(f"wording.{error.reason}")
            return proposal
        reason = unfit(goal, draft)
        self.state.count(f"wording.{reason or 'used'}")
        if reason:
            return proposal
        task = msgspec.structs.replace(
            proposal.task, goal=goal, id=derived_id("selfmade", proposal.task.id, goal)
        )  # fmt: skip
        return msgspec.structs.replace(proposal, task=task)


def options_digest(settings: QuestionerSettings, environment: str, seed: int) -> str:
    """Names what tasks depend on: the settings, without the budgets."""
    return derived_id(msgspec.json.encode([settings, environment, seed], order="deterministic").hex())
