"""The experiencer: draws lessons from trajectories, has the tools probed after a drift, and keeps books on lessons.

    trajectory.attributed, trajectory.outcome, policy.directive (drift), policy.serving
        ->  experience.lesson, trajectory.closed (probes)

A lesson that a probe has verified is active at once; any other needs independent sources, then trials: guided rollouts
that do better than unguided ones, and it is retired when they no longer do. When tools vanish, so do the lessons about
them. More in docs/how-it-learns.md.

Counters follow from the newest trajectories, which the store has, so nothing is counted twice. Stored beside the
lessons are the tool list before the drift, a round of probing that is due, and which tenants have several agent keys.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import structlog

from actors.experience.drawing import Drawing
from actors.experience.inquiry import Inquiry
from actors.experience.opinions import Opinions
from actors.experience.origins import Origins
from actors.experience.pool import LessonPool, tools_of
from actors.experience.probing import Prober
from actors.experience.reviewing import Reviewing
from actors.experience.skill_trials import SkillReplayer
from actors.experience.window import Window
from actors.kinds.holdout import held_out
from actors.kinds.kinds import Kinds
from actors.messages import Attributed, Directive, Message, OutcomeChanged, Serving, Trajectory
from actors.ports.errors import AdapterError
from actors.ports.models import Embedder, Extractor
from actors.store import Store
from actors.store.records import Used
from actors.system.actor import Actor, Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import (
    EXPERIENCE_LESSON,
    POLICY_DIRECTIVE,
    POLICY_SERVING,
    TRAJECTORY_ATTRIBUTED,
    TRAJECTORY_CLOSED,
    TRAJECTORY_OUTCOME,
)

_log = structlog.get_logger(__name__)
_ORIGINS = "experiencer/origins"
_WINDOW = 256
"""Newest trajectories that are contrasted with each other; comparing them takes half a second."""
_LATE_SHARE = _WINDOW // 4
"""Places in the window for runs that left it and whose outcome came late, at a start."""
_TRIAL_WINDOW = 1024
"""Newest sandbox rollouts that are remembered as trials: some twenty rounds."""
REVISE_SECONDS = 30.0
"""Between two revisions of one lesson that follow from trials, so that a round of rollouts makes one."""
_REFRESH_SECONDS = 30.0
"""Between two looks at the store for what others wrote: imports, orders of people, what was forgotten."""
_CONTRAST_EVERY = 16
"""New trajectories after which lessons are drawn again."""
_MAX_LESSONS = 1024
"""Lessons of one tenant at most, retired ones included: those leave memory first, then live ones are retired, those
whose utility is the least at best."""
_TENANT = "default"
"""Tenant that lessons from the sandbox belong to."""


class Experiencer(Actor):
    """Actor: attributed trajectories, drift directives and swaps in, lessons out.

    Args:
        draw: what lessons are drawn beside those of contrast ("skills", "tools").
        prober: None where there is no sandbox; lessons then come from contrast alone.
        extractor: draws lessons in free words; None without a language model. It needs an `embedder`.
        exam: whether a production trajectory, by id, is the gate's and so no source.
    """

    name = "experiencer"
    inputs = (TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME, POLICY_DIRECTIVE, POLICY_SERVING)
    batch = 64
    tick_seconds = 5.0
    renews = True

    def __init__(
        self,
        *,
        store: Store,
        prober: Prober | None,
        clock: Callable[[], float],
        draw: Collection[str] = (),
        tester: SkillReplayer | None = None,
        extractor: Extractor | None = None,
        embedder: Embedder | None = None,
        kinds: Kinds | None = None,
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        """
        Args:
            kinds: says which goals are alike, for lessons; none: those alone that differ in names and numbers.
        """
        self._exam, self.kinds = exam, kinds or Kinds()
        self._draw, self._store, self._prober, self._clock = draw, store, prober, clock
        self._tester, self._extractor, self._embedder = tester, extractor, embedder
        self._begin(Origins())

    def _begin(self, origins: Origins) -> None:
        """Make the parts, empty."""
        clock = self._clock
        self._origins = origins
        self._pool = LessonPool(_MAX_LESSONS)
        self._window = Window(_WINDOW, exam=self._exam)
        self._inquiry = Inquiry(store=self._store, prober=self._prober, clock=clock)
        self._drawing = Drawing(
            draw=self._draw, pool=self._pool, window=self._window, origins=origins, tenant=_TENANT,
            sandbox=self._prober is not None, since=lambda: self._inquiry.since, kind=self.kinds.kind,
        )  # fmt: skip
        self._reviewing = Reviewing(pool=self._pool, memory=_TRIAL_WINDOW, between=REVISE_SECONDS, clock=clock)
        self._opinions = None
        if self._extractor is not None and self._embedder is not None:
            self._opinions = Opinions(
                extractor=self._extractor, embedder=self._embedder, pool=self._pool,
                drawing=self._drawing, window=self._window, origins=origins, clock=clock,
                kind=self.kinds.kind,
            )  # fmt: skip
        self._seen: deque[str] = deque(maxlen=_WINDOW + _TRIAL_WINDOW)
        self._untestable: set[str] = set()
        """Skills that the sandbox has no tasks for."""
        self._fresh, self._refreshed, self._keys_changed = 0, self._clock(), False

    @property
    def pool(self) -> Mapping[tuple[str, str, str], int]:
        """Lessons in memory by tenant, kind and state."""
        return self._pool.figures()

    @property
    def counts(self) -> Mapping[str, int]:
        """What was counted since the start."""
        opinions = {
            f"opinion_{name}": number for name, number in (self._opinions.counts if self._opinions else {}).items()
        }
        return {**self._pool.counts, **self._window.counts, **opinions}

    async def start(self) -> None:
        """Read lessons, recent trajectories and state.

        Raises:
            DependencyUnavailable: the sandbox does not say which tools it has.
        """
        self._begin(Origins(await self._known_keys()))
        lessons = await self._store.experiences()
        self._pool.load(lessons)
        self._drawing.learn_intents(lessons)
        for serving in await self._store.newest(Serving, 1):
            self._reviewing.swapped(serving)
        recent = {item.id: item for item in await self._store.recent_attributed(limit=_WINDOW)}
        for item in await self._store.recent_attributed(source="sandbox", limit=_TRIAL_WINDOW):
            recent.setdefault(item.id, item)
        for item in sorted(recent.values(), key=lambda item: item.trajectory.ended):
            self._remember(item.trajectory)
        since = min((item.trajectory.ended for item in recent.values()), default=0.0)
        for key in await self._store.newest_late(since, _LATE_SHARE):
            item = await self._store.trajectory(key)
            if isinstance(item, Attributed):
                self._revise(item.trajectory)
        self._fresh = 0
        await self._inquiry.start()

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Take in trajectories, draw and revise lessons; after a drift probe the tools.

        Raises:
            DependencyUnavailable: the sandbox or its engine are away.
        """
        await self._save()
        outputs: list[Output] = []
        records: list[Message] = []
        latest = await self._store.latest(self.name, [received.message for received in batch])
        for received in batch:
            match received.message:
                case Attributed(id=key) | OutcomeChanged(id=key) if key in latest.runs:
                    run = latest.runs[key].trajectory
                    if run.source != "production" or run.outcome is None:
                        self._remember(run)
                    elif latest.news(run) and self._revise(run):
                        records.append(Used(id=key, actor=self.name, revision=run.outcome_revision))
                case Directive(kind="drift") as directive:
                    outputs += await self._drifted(directive)
                case Serving() as serving:
                    self._reviewing.swapped(serving)
                case _:
                    continue
        if self._fresh >= _CONTRAST_EVERY:
            self._fresh = 0
            await self._drawing.draw()
        self._reviewing.review()
        return self._result(outputs, records)

    async def tick(self) -> Result:
        """What is due: another round of probing, what others wrote, a skill's trial, a question to the language model.

        Raises:
            DependencyUnavailable: the sandbox or its engine are away.
        """
        await self._save()
        outputs: list[Output] = []
        if self._clock() - self._refreshed >= _REFRESH_SECONDS:
            await self._refresh()
        if self._inquiry.due:
            outputs += await self._probe()
        await self._try_skill()
        if self._opinions is not None:
            await self._opinions.ask()
        self._reviewing.review()
        return self._result(outputs)

    def _result(self, outputs: Sequence[Output], records: Sequence[Message] = ()) -> Result:
        """Publish what changed: one revision for each lesson, however often it changed on the way."""
        revised = self._pool.revised(self._clock(), self._window.asked)
        probes = [output.message for output in outputs]
        lessons = [Output(EXPERIENCE_LESSON, lesson) for lesson in revised]
        return Result([*revised, *probes, *records], [*lessons, *outputs])

    def _remember(self, trajectory: Trajectory) -> None:
        if trajectory.source == "probe" or trajectory.id in self._seen:
            return
        self._seen.append(trajectory.id)
        self._keys_changed |= self._origins.see(trajectory)
        self._fresh += self._window.add(msgspec.structs.replace(trajectory, rows=()))
        self._reviewing.remember(trajectory)

    def _revise(self, trajectory: Trajectory) -> bool:
        """Take in a run with its outcome, which most often comes late: contrast needs both ends. Whether it is in the
        window now."""
        if trajectory.id not in self._seen:
            self._seen.append(trajectory.id)
            self._keys_changed |= self._origins.see(trajectory)
        taken = self._window.revise(msgspec.structs.replace(trajectory, rows=()))
        self._fresh += taken
        return taken

    async def _refresh(self) -> None:
        """What others wrote to the store, and what must not be known any more."""
        self._refreshed = self._clock()
        gone = frozenset(await self._store.tombstoned(tuple(self._seen)))
        self._window.forget(gone)
        self._reviewing.forget(gone)
        news = self._pool.absorb(await self._store.experiences())
        self._drawing.learn_intents(news)
        if news and self._opinions is not None:
            try:
                await self._opinions.merge(news)
            except AdapterError as error:
                _log.warning("lessons_not_compared", reason=str(error))

    async def _drifted(self, directive: Directive) -> list[Output]:
        missing = frozenset(filter(None, directive.details.get("missing", "").split(",")))
        self._pool.retire_about(missing, directive.details.get("tenant", _TENANT))
        gone = self._inquiry.heard(directive)
        if gone is None:
            return []
        self._pool.retire_about(gone, _TENANT)
        for lesson in self._pool.live(_TENANT):
            if lesson.kind == "skill" and lesson.state == "active":
                self._pool.put(msgspec.structs.replace(lesson, state="candidate", reason="the tools drifted"))
        self._untestable.clear()
        return await self._probe()

    async def _probe(self) -> list[Output]:
        played = await self._inquiry.probe(
            self._drawing.take,
            lambda: frozenset[str]().union(*(tools_of(lesson) for lesson in self._pool)),
            self._drawing.asker,
        )
        return [Output(TRAJECTORY_CLOSED, trajectory) for trajectory in played]

    async def _try_skill(self) -> None:
        """Replay one candidate skill in the sandbox."""
        if self._tester is None:
            return
        for lesson in self._pool.live(_TENANT):
            if lesson.kind != "skill" or lesson.state != "candidate" or lesson.id in self._untestable:
                continue
            try:
                works = await self._tester.test(lesson)
            except AdapterError as error:
                raise DependencyUnavailable(f"sandbox: {error}") from error
            if works is None:
                self._untestable.add(lesson.id)
            elif works:
                self._pool.put(msgspec.structs.replace(lesson, state="active", reason="replayed in the sandbox"))
            else:
                self._pool.retire(lesson, "its replay failed")
            return

    async def _known_keys(self) -> dict[str, tuple[str, ...]]:
        data = await self._store.state_get(_ORIGINS)
        try:
            return msgspec.msgpack.decode(data, type=dict[str, tuple[str, ...]]) if data is not None else {}
        except msgspec.DecodeError as error:
            _log.warning("experiencer_origins_unreadable", error=str(error))
            return {}

    async def _save(self) -> None:
        """Write the state that changed."""
        await self._inquiry.save()
        if self._keys_changed:
            self._keys_changed = False
            await self._store.state_put(_ORIGINS, msgspec.msgpack.encode(self._origins.known))
