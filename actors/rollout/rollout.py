"""The rollout: keeps rounds of sandbox groups going on the shadow engine, so that the learner has fresh groups.

    task numbers, lessons  ->  shadow engine x environment  ->  trajectory.closed

A round is `groups` tasks with `group_size` attempts each, all at once. One comes at the start, one for each version
that the shadow engine takes, with a few ahead at most, and another after a while where no version comes. There are none
while learning is frozen, and none begins while the engine has a version that is too old to be trained on.

No task can hold up the others: a lost attempt is made again a few times, a task that loses one after the other is given
up for this round, a group that does not end goes out with the attempts that did. A share `eta` of each group sees the
lessons that fit: the difference tells what a lesson is worth. Its span is recorded, so that the learner can cut it out.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

import anyio
import structlog

from actors.messages import Experience, Task, Trajectory, derived_id
from actors.messages.experience import lessons_text
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.ports.errors import AdapterError, EngineError
from actors.ports.store import Retriever, TaskPlanner
from actors.rollout.episode_runner import Played, begin, play
from actors.rollout.errors import EpisodeLost
from actors.rollout.guidance import Guidance
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.rollout.own_tasks import OwnTasks
from actors.rollout.settings import RolloutSettings
from actors.rollout.task_source import Play, TaskSource
from actors.store import Store
from actors.system.actor import Actor, Output, Result
from actors.system.outbox import Outbox
from actors.system.streams import TRAJECTORY_CLOSED
from actors.versions.version_timeline import VersionTimeline

__all__ = ["Rollout", "RolloutSettings"]

_log = structlog.get_logger(__name__)
_TENANT = "default"
"""Whose trajectories these are."""
_AHEAD = 2
"""Rounds at most that no version has answered yet, and rounds at most at once: older ones would be off-policy."""
_AGREEING = 2
"""Rounds in a row without a group whose outcomes differ that are followed by another at once: a policy that has
mastered the tasks, or none of them, is asked again only every `stall_seconds`."""
_LOOKAHEAD = 16
"""Task numbers looked at for each task of a round, to find the kinds that are planned."""
_RETRIES = 1
"""Times that an attempt is made again that was lost."""
_LOSSES = 4
"""Lost attempts at a task, and none that came to an end, after which it is given up for the round. Losses that are the
engine's do not count."""
_RETRY_SECONDS = 2.0
"""Between two looks at an engine that does not answer, or at a frozen switch."""
_BLAMELESS = frozenset({"engine_unavailable", "no_token_ids", "malformed_response"})
"""Losses that are the engine's: they say nothing about the task."""
_CERTAIN = frozenset({"hint_not_separable"})
"""Losses that would come again."""


class Rollout(Actor):
    """Actor without inputs: groups of sandbox trajectories."""

    name = "rollout"

    def __init__(
        self,
        settings: RolloutSettings,
        *,
        store: Store,
        engine: Engine,
        environment: Environment,
        retriever: Retriever | None,
        clock: Callable[[], float],
        rng: random.Random,
        planner: TaskPlanner | None = None,
        times: VersionTimeline | None = None,
        harness: HarnessConfig = PLAIN,
        mixture: TaskSource | None = None,
        trains: Callable[[int], bool] = lambda version: True,
    ) -> None:
        """
        Args:
            trains: whether what a version plays now can still be trained on.
            times: what it has when, for an engine that does not say it with its answers.
            mixture: brings tasks that were made here; `environment` must know them. None for none.
        """
        self._settings, self._store, self._engine, self._environment = settings, store, engine, environment
        self._clock, self._rng = clock, rng
        self._guidance: Guidance | None = None
        if retriever is not None and settings.guided_share > 0:
            self._guidance = Guidance(
                retriever, engine=engine, environment=environment, tenant=_TENANT, most=settings.lessons,
                timeout=settings.step_timeout,
                failed=partial(self._count, "lessons_unavailable", 1), context=harness.context,
            )  # fmt: skip
        self._mixture, self._trains = mixture, trains
        self._own = OwnTasks(
            store=store, environment=environment, planner=planner, families=settings.families or None,
            first=settings.first_seed, lookahead=_LOOKAHEAD,
        )  # fmt: skip
        self._times, self._harness = times or VersionTimeline(clock), harness
        self._slots = anyio.CapacityLimiter(settings.concurrency)
        self._wake = anyio.Event()
        self._newest = -1
        self._due = self._unanswered = self._flying = self._agreed = 0
        self._away = False
        self.lost: dict[str, int] = {}
        """Episodes that came to nothing, by reason."""
        self.played = 0
        """Episodes that were emitted."""
        self.retried = 0
        """Attempts that were made again."""
        self.cut: dict[str, int] = {}
        """Episodes that the environment did not end, by what did: steps, context, budget, left."""

    @property
    def tasks(self) -> Mapping[str, int]:
        """Of the environment's own: planned, unplanned and let_go (`OwnTasks.counts`)."""
        return self._own.counts

    @property
    def waiting(self) -> int:
        """Numbers of the environment's tasks that were looked at and wait for their kind to be planned."""
        return self._own.waiting

    def loaded(self, version: int) -> None:
        """The shadow engine took `version`: a round is answered, the next one is due. Call it on our event loop."""
        if version != self._newest:
            self._newest = version
            if self._trains(version):
                self._unanswered = max(0, self._unanswered - 1)
                self._due = 1
            self._wake.set()

    async def start(self) -> None:
        await self._own.start()
        if self._mixture is not None:
            self._mixture.release()
        self._slots = anyio.CapacityLimiter(self._settings.concurrency)
        self._wake = anyio.Event()
        self._due, self._unanswered, self._flying, self._agreed = 1, 0, 0, 0

    async def run(self, outbox: Outbox) -> None:
        try:
            await self._run(outbox)
        except ExceptionGroup:
            # `emit` ends it with an error of its own while draining; out of a task group it comes wrapped.
            if not outbox.lifecycle.draining.is_set():
                raise

    async def _run(self, outbox: Outbox) -> None:
        last = self._clock()
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_with, outbox, group.cancel_scope)
            while not outbox.lifecycle.draining.is_set():
                outbox.lifecycle.beat()
                stalled = self._clock() - last >= self._settings.stall_seconds
                if stalled:
                    # Whatever went out has come to nothing; it must not count against rounds that will.
                    self._due, self._unanswered = 1, 0
                # After a stall it is played anyway: what is known here of the learner may be old.
                useful = stalled or self._newest < 0 or self._trains(self._newest)
                wanted = self._due > 0 and self._unanswered < _AHEAD and useful
                if wanted and self._flying < _AHEAD:
                    if await self._ready(outbox):
                        self._due = 0
                        self._unanswered += 1
                        self._flying += 1
                        last = self._clock()
                        plays = await self._draw(self._settings.groups, outbox)
                        group.start_soon(self._round, plays, outbox)
                    else:
                        await outbox.lifecycle.pause(_RETRY_SECONDS)
                    continue
                # Woken by a version or by the end of a round; the timeout is for the heartbeat and the stall.
                with anyio.move_on_after(min(5.0, max(0.05, last + self._settings.stall_seconds - self._clock()))):
                    await self._wake.wait()
                self._wake = anyio.Event()

    async def _end_with(self, outbox: Outbox, scope: anyio.CancelScope) -> None:
        """Episodes under way are given up when the process ends; their tasks are not drawn again."""
        await outbox.lifecycle.draining.wait()
        scope.cancel()

    async def _ready(self, outbox: Outbox) -> bool:
        """Whether a round makes sense now."""
        if await outbox.insist(self._store.frozen):
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

    async def _draw(self, count: int, outbox: Outbox) -> list[Play]:
        """The tasks of a round."""
        mixture = self._mixture
        made = await outbox.insist(lambda: mixture.draw(count)) if mixture is not None else []
        plays = list(made)
        # Numbers that it had when the store went away are nobody's.
        for number in await outbox.insist(lambda: self._own.take(count - len(made))):
            try:
                task = self._environment.sample(number, "train", self._settings.families or None)
            except (AdapterError, ValueError) as error:
                self._count("group_failed", self._settings.group_size, error)
                continue
            plays.append(Play(task, str(number)))
        return plays

    async def _round(self, plays: Sequence[Play], outbox: Outbox) -> None:
        started, before = self._clock(), self.played
        mixed: set[str] = set()
        try:
            async with anyio.create_task_group() as group:
                for play in plays:
                    group.start_soon(self._group, play, outbox, mixed)
        finally:
            self._flying -= 1
            self._agreed = 0 if mixed else self._agreed + 1
            if not mixed:
                # Nothing to learn from in groups that agree with themselves: no version will answer this round.
                self._unanswered = max(0, self._unanswered - 1)
                if self._agreed <= _AGREEING:
                    self._due = 1
            self._wake.set()
        _log.info(
            "round_played", groups=len(plays), made_here=sum(play.task.origin != "environment" for play in plays),
            episodes=self.played - before,
            seconds=round(self._clock() - started, 2),
        )  # fmt: skip

    async def _group(self, play: Play, outbox: Outbox, mixed: set[str]) -> None:
        """All attempts at one task; emitted together. Joins `mixed` if their outcomes differ."""
        finished: list[Trajectory] = []
        blamed = True
        try:
            blamed = await self._attempts(play, outbox, finished)
        except (EpisodeLost, AdapterError, ValueError) as error:
            blamed = not isinstance(error, EpisodeLost) or error.reason not in _BLAMELESS
            self._count("group_failed", self._settings.group_size, error)
        if finished:
            finished.sort(key=lambda trajectory: trajectory.id)
            await outbox.emit(Result(finished, [Output(TRAJECTORY_CLOSED, item) for item in finished]))
            self.played += len(finished)
            if len({trajectory.outcome for trajectory in finished}) > 1:
                mixed.add(play.task.id)
        if (mixture := self._mixture) is not None:
            outcomes = [run.outcome for run in finished if run.outcome is not None]
            await outbox.insist(lambda: mixture.report(play.task.id, outcomes, blamed=blamed))

    async def _attempts(self, play: Play, outbox: Outbox, finished: list[Trajectory]) -> bool:
        """Play a group; what comes to an end within its time is appended to `finished`. Whether losses are the task's.

        Raises:
            EpisodeLost, AdapterError: the task cannot even be begun.
        """
        settings = self._settings
        lessons, plain = await self._guidance.of(play.task) if self._guidance else ((), ())
        group = derived_id("group", self._environment.name, play.key)
        guided = round(settings.guided_share * settings.group_size) if lessons else 0
        ended = losses = 0
        last: list[EpisodeLost] = []

        async def one(member: int) -> None:
            nonlocal ended, losses
            async with self._slots:
                # Waiting for others is not what a group has its time for.
                scope.deadline = min(scope.deadline, anyio.current_time() + settings.group_seconds)
                given = lessons if member < guided else ()
                for attempt in range(_RETRIES + 1):
                    outbox.lifecycle.beat()
                    started = self._clock()
                    try:
                        played = await self._attempt(play.task, given, plain)
                    except EpisodeLost as error:
                        losses += error.reason not in _BLAMELESS
                        if not finished and losses >= _LOSSES:
                            last.append(error)
                            scope.cancel()
                            return
                        if attempt < _RETRIES and error.reason not in _CERTAIN:
                            self.retried += 1
                            continue
                        ended += 1
                        self._count(error.reason, 1, error)
                    else:
                        ended += 1
                        finished.append(self._trajectory(play, group, member, given, played, started))
                    break

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as members:
                for member in range(settings.group_size):
                    members.start_soon(one, member)
        if missing := settings.group_size - ended:
            late = EpisodeLost("group_late", f"task {play.task.id}: {settings.group_seconds:g} s are over")
            self._count("given_up" if last else late.reason, missing, last[0] if last else late)
        return losses > 0 or missing > 0

    async def _attempt(self, task: Task, lessons: Sequence[Experience], plain: Sequence[int]) -> Played:
        settings = self._settings
        version = self._times.hold(self._engine.name)
        async with aclosing(await begin(self._environment, task, settings.step_timeout)) as episode:
            return await play(
                self._engine,
                episode,
                context=self._harness.context,
                agent=self._harness.agent,
                lessons_text=lessons_text(lessons),
                system=self._environment.profile().system,
                plain_opening=plain,
                max_steps=settings.max_steps,
                max_tokens=settings.max_tokens,
                temperature=1.0,
                seed=self._rng.getrandbits(31),
                timeout=settings.step_timeout,
                version=version,
            )

    def _trajectory(
        self, play: Play, group: str, member: int, lessons: Sequence[Experience], played: Played, started: float
    ) -> Trajectory:
        if not played.finished:
            self.cut[played.ending] = self.cut.get(played.ending, 0) + 1
        versions = [version for version in (played.min_version, played.max_version) if version >= 0]
        return Trajectory(
            id=derived_id("sandbox", group, member),
            source="sandbox",
            tenant=_TENANT,
            goal=play.task.goal,
            tools=json.dumps(played.tools).encode(),
            steps=played.steps,
            rows=played.rows,
            outcome=played.outcome,
            graded=played.graded,
            closed_by="finish" if played.finished else "limit",
            started=started,
            ended=self._clock(),
            trainable=not played.why_not,
            why_not=played.why_not,
            task_id=play.task.id,
            group=group,
            origin=play.task.origin if play.task.origin != "heldout" else "environment",
            scale=play.scale,
            experience_ids=tuple(lesson.id for lesson in lessons),
            min_version=min(versions, default=-1),
            max_version=max(versions, default=-1),
        )

    def _count(self, reason: str, count: int, error: Exception) -> None:
        if reason not in self.lost:
            _log.warning("rollout_loses", reason=reason, error=f"{type(error).__name__}: {error}")
        self.lost[reason] = self.lost.get(reason, 0) + count
