"""The rollout: keeps rounds of sandbox groups going on the shadow engine, so that the learner has fresh groups.

    task numbers, lessons  ->  shadow engine x environment  ->  trajectory.closed

A round is `groups` tasks with `group_size` attempts each, all at once: the engine batches them. Rounds follow the
learner: one at the start, then one for each version that the shadow engine takes, with a few ahead at most; if no
version comes (all groups of a round were equal, the learner is away), another one after a while. While learning is
frozen there are none.

Which tasks: the planner says how many of each cluster of goals a round should have, and the next task numbers that fit
are played; numbers that fit nothing are passed over for good. What no number within reach fits is played as it comes.

The first share `eta` of each group sees the lessons that fit its goal, the rest sees none: the difference is what tells
whether a lesson is worth anything, and guided successes are how a policy gets over a change that it would never find by
itself. The span of the lesson is recorded, so that the learner can cut it out.
"""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import anyio
import msgspec
import structlog

from actors.clusters import cluster_of
from actors.episodes import EpisodeLost, Played, begin, opening_ids, play
from actors.lessons import render
from actors.messages import Experience, Task, Trajectory, derived_id
from actors.playing.manner import PLAIN, Manner
from actors.ports import Retriever, RolloutStore, TaskPlanner
from actors.serving_times import ServingTimes
from actors.system.actor import Context, Output, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import TRAJECTORY_CLOSED
from adapters.engines import Engine
from adapters.environments import Environment
from adapters.errors import AdapterError, EngineError

_log = structlog.get_logger(__name__)
_NEXT = "rollout/next"
"""Number of the next task, in decimal."""


class RolloutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is played, and how."""

    groups: int = 8
    """Tasks a round."""
    group_size: int = 8
    """Attempts a task."""
    ahead: int = 2
    """Rounds at most that no version has answered yet, and rounds at most at once."""
    agreeing: int = 2
    """Rounds in a row without a group whose outcomes differ that are followed by another at once: a policy that has
    mastered the tasks, or none of them, is asked again only every `stall_seconds`."""
    stall_seconds: float = 60.0
    """Without a new version for so long, another round is played."""
    guidance: Literal["none", "mixed", "all"] = "mixed"
    """Who sees lessons, if there are any that fit: nobody, a share `eta` of each group, or everybody. Without an
    unguided part nothing tells what a lesson is worth: neither its trials nor the closed-book probe go on."""
    eta: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.5
    """Share of a group that sees lessons under `mixed`."""
    lessons: int = 2
    """Lessons in a prompt at most."""
    families: str = ""
    """Kinds of task, one letter each; empty for the environment's usual mix."""
    lookahead: int = 16
    """Task numbers looked at for each task of a round, to find the kinds that are planned."""
    first_seed: int = 0
    """Number of the first task of a fresh store."""
    system: str = ""
    """System text of the model's chat template, for guided prompts: a lesson is appended to it. Only needed where the
    environment's opening messages have none."""
    tenant: str = "default"
    """Whose trajectories these are."""
    max_steps: int = 24
    max_tokens: int = 512
    """Per step."""
    temperature: float = 1.0
    context: str = "causal"
    """What of an episode's history stands in a prompt, in rollout and gate alike: causal (all of it), reasoning,
    sliding, self-managing, an entry point `context.NAME`, or a class path "package.module:Class"."""
    context_budget: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens of a prompt at most, leave `max_tokens` below the engine's limit; 0 for that limit alone."""
    context_options: dict[str, Any] = {}
    """Keyword arguments for the template."""
    agent: str = ""
    """Class path of your own agent loop, "package.module:Class" with `async def run(self, session)`; empty for ours."""
    agent_options: dict[str, Any] = {}
    """Keyword arguments for it."""
    agent_seconds: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    """Deadline of your loop for one episode."""
    concurrency: int = 64
    """Episodes at once."""
    step_timeout: float = 60.0
    """Seconds for one answer of the engine or the environment."""
    retry_seconds: float = 2.0
    """Between two looks at an engine that does not answer, or at a frozen switch."""

    @property
    def guided_share(self) -> float:
        """Share of a group that sees lessons."""
        return {"none": 0.0, "mixed": self.eta, "all": 1.0}[self.guidance]


class Rollout:
    """Producer: groups of sandbox trajectories."""

    name = "rollout"

    def __init__(
        self,
        settings: RolloutSettings,
        *,
        store: RolloutStore,
        engine: Engine,
        environment: Environment,
        retriever: Retriever | None,
        clock: Callable[[], float],
        rng: random.Random,
        planner: TaskPlanner | None = None,
        times: ServingTimes | None = None,
        manner: Manner = PLAIN,
    ) -> None:
        """
        Args:
            engine: the shadow engine.
            times: what it has when, for an engine that does not say it with its answers.
            retriever: finds lessons; None for unguided rollouts only.
            rng: seeds of the sampling.
            planner: which kinds of task; None for the environment's mix.
            manner: in which episodes are played.
        """
        self._settings, self._store, self._engine, self._environment = settings, store, engine, environment
        self._retriever, self._clock, self._rng, self._planner = retriever, clock, rng, planner
        self._times, self._manner = times or ServingTimes(clock), manner
        self._slots = anyio.CapacityLimiter(settings.concurrency)
        self._wake = anyio.Event()
        self._newest = -1
        self._next = settings.first_seed
        self._due = self._unanswered = self._flying = self._agreed = 0
        self._away = False
        self.lost: dict[str, int] = {}
        """Episodes that came to nothing, by reason."""
        self.played = 0
        """Episodes that were emitted."""
        self.unplanned = 0
        """Tasks that were played as they came, because none of the planned kind was within reach."""
        self.cut: dict[str, int] = {}
        """Episodes that the environment did not end, by what did: steps, context, budget, left."""

    def loaded(self, version: int) -> None:
        """The shadow engine took `version`: a round is answered, the next one is due. Call it on our event loop."""
        if version != self._newest:
            self._newest = version
            self._unanswered = max(0, self._unanswered - 1)
            self._due = 1
            self._wake.set()

    async def start(self) -> None:
        data = await self._store.state_get(_NEXT)
        self._next = int(data) if data is not None else self._settings.first_seed
        self._slots = anyio.CapacityLimiter(self._settings.concurrency)
        self._wake = anyio.Event()
        self._due, self._unanswered, self._flying, self._agreed = 1, 0, 0, 0

    async def run(self, context: Context) -> None:
        try:
            await self._run(context)
        except ExceptionGroup:
            # `emit` ends a producer with an error of its own while draining; out of a task group it comes wrapped.
            if not context.draining.is_set():
                raise

    async def _run(self, context: Context) -> None:
        last = self._clock()
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_with, context, group.cancel_scope)
            while not context.draining.is_set():
                context.beat()
                stalled = self._clock() - last >= self._settings.stall_seconds
                if stalled:
                    # Whatever went out has come to nothing; it must not count against rounds that will.
                    self._due, self._unanswered = 1, 0
                wanted = self._due > 0 and self._unanswered < self._settings.ahead
                if wanted and self._flying < self._settings.ahead:
                    if await self._ready():
                        self._due = 0
                        self._unanswered += 1
                        self._flying += 1
                        last = self._clock()
                        numbers = await self._take(self._settings.groups)
                        group.start_soon(self._round, numbers, context)
                    else:
                        await context.pause(self._settings.retry_seconds)
                    continue
                # Woken by a version or by the end of a round; the timeout is for the heartbeat and the stall.
                with anyio.move_on_after(min(5.0, max(0.05, last + self._settings.stall_seconds - self._clock()))):
                    await self._wake.wait()
                self._wake = anyio.Event()

    async def _end_with(self, context: Context, scope: anyio.CancelScope) -> None:
        """Episodes under way are given up when the process ends; their tasks are not drawn again."""
        await context.draining.wait()
        scope.cancel()

    async def _ready(self) -> bool:
        """Whether a round makes sense now."""
        if await self._store.frozen():
            return False
        try:
            with anyio.fail_after(self._settings.step_timeout):
                await self._engine.version()
        except (EngineError, TimeoutError) as error:
            if not self._away:
                _log.warning("rollout_waits_for_engine", reason=f"{type(error).__name__}: {error}")
            self._away = True
            return False
        if self._away:
            _log.info("rollout_engine_back")
        self._away = False
        return True

    async def _take(self, count: int) -> list[int]:
        """The next `count` task numbers that fit the plan, which nobody gets again, whatever happens to this round."""
        numbers = self._choose(count)
        self._next = max(numbers, default=self._next - 1) + 1
        await self._store.state_put(_NEXT, str(self._next).encode())
        return numbers

    def _choose(self, count: int) -> list[int]:
        plan = dict(self._planner.plan(count)) if self._planner is not None else {}
        free = count - sum(plan.values())
        chosen: list[int] = []
        passed: list[int] = []
        for number in range(self._next, self._next + count * max(1, self._settings.lookahead)):
            if len(chosen) == count:
                break
            # First what the environment chooses: it must not be what the plan left over.
            cluster = "" if free else self._cluster(number)
            if free:
                free -= 1
            elif plan.get(cluster):
                plan[cluster] -= 1
            else:
                passed.append(number)
                continue
            chosen.append(number)
        missing = passed[: count - len(chosen)]
        self.unplanned += len(missing)
        return sorted(chosen + missing)

    def _cluster(self, number: int) -> str:
        try:
            return cluster_of(self._environment.sample(number, "train", self._settings.families or None).goal)
        except (AdapterError, ValueError):
            # Its turn to fail, and to be counted, is when it is played.
            return ""

    async def _round(self, numbers: Sequence[int], context: Context) -> None:
        started, before = self._clock(), self.played
        mixed: set[int] = set()
        try:
            async with anyio.create_task_group() as group:
                for number in numbers:
                    group.start_soon(self._group, number, context, mixed)
        finally:
            self._flying -= 1
            self._agreed = 0 if mixed else self._agreed + 1
            if not mixed:
                # Nothing to learn from in groups that agree with themselves: no version will answer this round.
                self._unanswered = max(0, self._unanswered - 1)
                if self._agreed <= self._settings.agreeing:
                    self._due = 1
            self._wake.set()
        _log.info(
            "round_played", first=min(numbers, default=-1), groups=len(numbers), episodes=self.played - before,
            seconds=round(self._clock() - started, 2),
        )  # fmt: skip

    async def _group(self, number: int, context: Context, mixed: set[int]) -> None:
        """All attempts at one task; emitted together. Joins `mixed` if their outcomes differ."""
        settings = self._settings
        try:
            task = self._environment.sample(number, "train", settings.families or None)
            lessons = await self._lessons(task)
            plain = await self._plain_opening(task) if lessons else ()
        except (EpisodeLost, AdapterError, ValueError) as error:
            self._count("group_failed", settings.group_size, error)
            return
        group = derived_id("group", self._environment.name, number)
        guided = round(settings.guided_share * settings.group_size) if lessons else 0
        finished: list[Trajectory] = []

        async def one(member: int) -> None:
            async with self._slots:
                context.beat()
                started = self._clock()
                given = lessons if member < guided else ()
                try:
                    played = await self._attempt(task, given, plain)
                except EpisodeLost as error:
                    self._count(error.reason, 1, error)
                    return
                finished.append(self._trajectory(task, group, member, given, played, started))

        async with anyio.create_task_group() as members:
            for member in range(settings.group_size):
                members.start_soon(one, member)
        if finished:
            finished.sort(key=lambda trajectory: trajectory.id)
            await context.emit(Result(finished, [Output(TRAJECTORY_CLOSED, item) for item in finished]))
            self.played += len(finished)
            if len({trajectory.outcome for trajectory in finished}) > 1:
                mixed.add(number)

    async def _lessons(self, task: Task) -> tuple[Experience, ...]:
        if self._retriever is None or self._settings.guided_share <= 0:
            return ()
        try:
            found = await self._retriever.lessons(task.goal)
            # Whoever finds lessons may be behind: what is quarantined by now is shown to nobody.
            return tuple(one for one in found if one.state != "quarantined")[: self._settings.lessons]
        except (DependencyUnavailable, AdapterError) as error:
            # A group without guidance is worth more than none.
            self._count("lessons_unavailable", 1, error)
            return ()

    async def _plain_opening(self, task: Task) -> Sequence[int]:
        timeout = self._settings.step_timeout
        async with aclosing(await begin(self._environment, task, timeout)) as episode:
            context, system = self._manner.context, self._settings.system
            return await opening_ids(self._engine, episode, timeout=timeout, context=context, system=system)

    async def _attempt(self, task: Task, lessons: Sequence[Experience], plain: Sequence[int]) -> Played:
        settings = self._settings
        version = self._times.hold(self._engine.name)
        async with aclosing(await begin(self._environment, task, settings.step_timeout)) as episode:
            return await play(
                self._engine,
                episode,
                context=self._manner.context,
                agent=self._manner.agent,
                lessons_text=render(lessons),
                system=settings.system,
                plain_opening=plain,
                max_steps=settings.max_steps,
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                seed=self._rng.getrandbits(31),
                timeout=settings.step_timeout,
                version=version,
            )

    def _trajectory(
        self, task: Task, group: str, member: int, lessons: Sequence[Experience], played: Played, started: float
    ) -> Trajectory:
        if not played.finished:
            self.cut[played.ending] = self.cut.get(played.ending, 0) + 1
        versions = [version for version in (played.min_version, played.max_version) if version >= 0]
        return Trajectory(
            id=derived_id("sandbox", group, member),
            source="sandbox",
            tenant=self._settings.tenant,
            goal=task.goal,
            tools=json.dumps(played.tools).encode(),
            steps=played.steps,
            rows=played.rows,
            outcome=played.outcome,
            closed_by="finish" if played.finished else "limit",
            started=started,
            ended=self._clock(),
            trainable=not played.why_not,
            why_not=played.why_not,
            task_id=task.id,
            group=group,
            experience_ids=tuple(lesson.id for lesson in lessons),
            min_version=min(versions, default=-1),
            max_version=max(versions, default=-1),
        )

    def _count(self, reason: str, count: int, error: Exception) -> None:
        if reason not in self.lost:
            _log.warning("rollout_loses", reason=reason, error=f"{type(error).__name__}: {error}")
        self.lost[reason] = self.lost.get(reason, 0) + count
