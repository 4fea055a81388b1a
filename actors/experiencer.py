"""The experiencer: draws lessons from trajectories, has the tools probed after a drift, and keeps books on lessons.

    trajectory.attributed, policy.directive (drift)  ->  experience.lesson, trajectory.closed (probes)

Two sources of lessons, both open to anybody who watches: contrast between trajectories (`lessons`), and experiments in
the sandbox (`probing`). A lesson that a probe has verified is active at once; one from contrast is a candidate until
guided rollouts do better than unguided ones, and every lesson is retired when they no longer do (`lesson_trials`). When
tools vanish, so do the lessons about them.

Counters are not stored: they follow from the newest trajectories, which the store has, so nothing is counted twice.
Stored beside the lessons are the tool list before the drift, and a round of probing that is due again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio.to_thread
import msgspec
import structlog

from actors.calls import first_word
from actors.episodes import EpisodeLost
from actors.lesson_trials import Trial, TrialSettings, next_state, read_trial, tally, window_of
from actors.lessons import ContrastSettings, Kind, Practice, contrast, lesson_id, read_practice
from actors.messages import Attributed, Directive, Experience, Trajectory
from actors.monitors import tool_names
from actors.ports import StateStore
from actors.probing import Finding, Report
from actors.system.actor import Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import EXPERIENCE_LESSON, POLICY_DIRECTIVE, TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from adapters.errors import AdapterError

_log = structlog.get_logger(__name__)
_STATE = "experiencer/state"
_FORMER = 256
"""Names of former tools that are remembered."""


class ExperiencerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How lessons come and go."""

    contrast: ContrastSettings = ContrastSettings()
    """How much evidence a contrast needs."""
    trials: TrialSettings = TrialSettings()
    """How lessons prove themselves."""
    window: int = 256
    """Newest trajectories that are contrasted with each other."""
    trial_window: int = 1024
    """Newest sandbox rollouts that are remembered as trials."""
    contrast_every: int = 16
    """New trajectories after which lessons are drawn again."""
    revise_seconds: float = 30.0
    """Between two revisions of one lesson that follow from trials."""
    probe_rounds: int = 3
    """Rounds of probing for one drift at most."""
    probe_again_seconds: float = 60.0
    """Between two rounds."""
    drift_seconds: float = 300.0
    """Within which another report of a drift to the same tools is the same drift."""
    tenant: str = "default"
    """Tenant that lessons from the sandbox belong to."""
    batch: int = 64
    """Records taken at a time."""
    tick_seconds: float = 5.0
    """Between two looks at what is due."""


class ExperienceStore(StateStore, Protocol):
    """What the experiencer reads."""

    async def experiences(self, state: str | None = ...) -> list[Experience]:
        """The latest revision of each lesson."""
        ...

    async def recent_attributed(
        self, *, source: str | None = ..., tenant: str | None = ..., since: float = ..., limit: int = ...
    ) -> list[Attributed]:
        """Newest first."""
        ...


class ToolProber(Protocol):
    """Experiments with a sandbox's tools; `probing.Prober` is one."""

    def tools(self) -> tuple[str, ...]:
        """Names of the tools as they are now."""
        ...

    async def probe(self, known: Sequence[str], label: str, former: Sequence[str] = ...) -> Report:
        """One round of probing; `known` are the tools before the drift, `former` those of earlier times."""
        ...


class _State(msgspec.Struct):
    """What outlives the process beside the lessons."""

    known: tuple[str, ...] = ()
    """The sandbox's tools before the drift that was looked into last."""
    former: tuple[str, ...] = ()
    """Tools of earlier times."""
    now: tuple[str, ...] = ()
    """Its tools after that; empty before the first drift."""
    directive: str = ""
    """The drift that was looked into last."""
    since: float = 0.0
    """When that drift was first heard of."""
    rounds: int = 0
    """Rounds of probing done for it."""
    due: float = 0.0
    """When the next round is due, 0 for no more."""


class Experiencer:
    """Actor: attributed trajectories and drift directives in, lessons out.

    Args:
        settings: evidence, trials, rounds.
        store: lessons, trajectories, state.
        prober: experiments in the sandbox; None where there is no sandbox, lessons then come from contrast alone.
        clock: unix seconds.
    """

    name = "experiencer"
    inputs = (TRAJECTORY_ATTRIBUTED, POLICY_DIRECTIVE)

    def __init__(
        self,
        settings: ExperiencerSettings,
        *,
        store: ExperienceStore,
        prober: ToolProber | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._store, self._prober, self._clock = settings, store, prober, clock
        self._state = _State()
        self._lessons: dict[str, Experience] = {}
        self._changed: dict[str, Experience] = {}
        """By lesson: its last published revision, or what stands for none, for those that changed since."""
        self._intents: dict[str, str] = {}
        self._runs: deque[Trajectory] = deque(maxlen=settings.window)
        self._trials: deque[Trial] = deque(maxlen=settings.trial_window)
        """Newest first."""
        self._seen: deque[str] = deque(maxlen=settings.window + settings.trial_window)
        self._fresh = 0
        """Trajectories since the last contrast."""
        self._dirty = False
        """The state changed and is saved with the next batch or tick, when the lessons that go with it are committed. A
        crash in between probes once more instead of never."""

    @property
    def batch(self) -> int:
        return self._settings.batch

    @property
    def tick_seconds(self) -> float | None:
        return self._settings.tick_seconds

    async def start(self) -> None:
        """Read lessons, recent trajectories and state.

        Raises:
            DependencyUnavailable: the sandbox does not say which tools it has.
        """
        settings = self._settings
        self._lessons = {lesson.id: lesson for lesson in await self._store.experiences()}
        self._changed.clear()
        self._intents.clear()
        for lesson in self._lessons.values():
            self._learn_intent(lesson)
        for memory in (self._runs, self._trials, self._seen):
            memory.clear()
        recent = {item.id: item for item in await self._store.recent_attributed(limit=settings.window)}
        for item in await self._store.recent_attributed(source="sandbox", limit=settings.trial_window):
            recent.setdefault(item.id, item)
        for item in sorted(recent.values(), key=lambda item: item.trajectory.ended):
            self._remember(item.trajectory)
        self._fresh, self._dirty = 0, False
        data = await self._store.state_get(_STATE)
        try:
            self._state = msgspec.msgpack.decode(data, type=_State) if data is not None else _State()
        except msgspec.DecodeError as error:
            _log.warning("experiencer_state_unreadable", error=str(error))
            self._state = _State()
        if self._prober is not None and not self._state.known:
            # Before anything has drifted: later it would be too late to know what was there before.
            self._state.known = self._tools(self._prober)
            await self._save()

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Take in trajectories, draw and revise lessons; after a drift probe the tools.

        Raises:
            DependencyUnavailable: the sandbox or its engine are away.
        """
        if self._dirty:
            await self._save()
        outputs: list[Output] = []
        for received in batch:
            match received.message:
                case Attributed() as attributed:
                    self._remember(attributed.trajectory)
                case Directive(kind="drift") as directive:
                    outputs += await self._drifted(directive)
                case _:
                    continue
        if self._fresh >= self._settings.contrast_every:
            self._fresh = 0
            await self._contrast()
        self._review()
        return self._result(outputs)

    async def tick(self) -> Result:
        """The next round of probing, if one is due, and revisions that had to wait.

        Raises:
            DependencyUnavailable: the sandbox or its engine are away.
        """
        if self._dirty:
            await self._save()
        outputs: list[Output] = []
        if self._prober is not None and 0 < self._state.due <= self._clock():
            outputs += await self._probe(self._prober)
        self._review()
        return self._result(outputs)

    def _result(self, outputs: Sequence[Output]) -> Result:
        """Publish what changed: one revision for each lesson, however often it changed on the way."""
        now = self._clock()
        revised: list[Experience] = []
        for id_, before in self._changed.items():
            lesson = self._lessons[id_]
            if (lesson.state, lesson.kind) == (before.state, before.kind) and before.revision >= 0:
                continue
            lesson = msgspec.structs.replace(lesson, revision=before.revision + 1, updated=now)
            self._lessons[id_] = lesson
            revised.append(lesson)
            _log.info("lesson_revised", lesson=id_, state=lesson.state, kind=lesson.kind, revision=lesson.revision)
        self._changed.clear()
        probes = [output.message for output in outputs]
        lessons = [Output(EXPERIENCE_LESSON, lesson) for lesson in revised]
        return Result([*revised, *probes], [*lessons, *outputs])

    def _remember(self, trajectory: Trajectory) -> None:
        if trajectory.source == "probe" or trajectory.id in self._seen:
            return
        self._seen.append(trajectory.id)
        self._runs.append(msgspec.structs.replace(trajectory, rows=()))
        self._fresh += 1
        trial = read_trial(trajectory)
        if trial is not None:
            self._trials.appendleft(trial)

    async def _contrast(self) -> None:
        """Draw lessons from the newest trajectories of each tenant, as far as they have the tools of today."""
        newest = {run.tenant: tool_names(run.tools) for run in self._runs}
        for tenant, tools in newest.items():
            runs = [run for run in self._runs if run.tenant == tenant and tool_names(run.tools) == tools]
            evidence, intents = self._settings.contrast, dict(self._intents)
            for drawn in await anyio.to_thread.run_sync(contrast, runs, evidence, intents):
                known = self._lessons.get(lesson_id(tenant, drawn.practice))
                # What was given up before the world changed may be right again.
                fresh = known is None or (known.state == "retired" and known.updated < self._state.since)
                if fresh and not self._taught(tenant, drawn.practice):
                    self._put(tenant, drawn.practice, drawn.kind, drawn.sources, "candidate")

    def _taught(self, tenant: str, practice: Practice) -> bool:
        """Whether an active lesson already says how to carry out this intent with this tool."""
        return any(
            lesson.state == "active"
            and (lesson.tenant, lesson.when_to_use) == (tenant, practice.intent)
            and practice.tool in _tools_of(lesson)
            for lesson in self._lessons.values()
        )

    def _review(self) -> None:
        """The state of every lesson after its trials."""
        now, trials = self._clock(), self._settings.trials
        for lesson in list(self._lessons.values()):
            if lesson.state == "retired" or now - lesson.updated < self._settings.revise_seconds:
                continue
            found = tally(lesson, self._trials, window_of(lesson, trials))
            state = next_state(lesson, found, trials)
            if state != lesson.state:
                self._change(msgspec.structs.replace(lesson, state=state, guided=found.guided, unguided=found.unguided))

    async def _drifted(self, directive: Directive) -> list[Output]:
        now, settings, state = self._clock(), self._settings, self._state
        missing = frozenset(filter(None, directive.details.get("missing", "").split(",")))
        self._retire_about(missing, directive.details.get("tenant", settings.tenant))
        if self._prober is None:
            state.since, self._dirty = now, True
            return []
        tools = self._tools(self._prober)
        if directive.id != state.directive:
            if state.directive and tools == state.now and now - state.since < settings.drift_seconds:
                _log.info("drift_known", directive=directive.id)
                return []
            known = state.now or state.known
            former = tuple(dict.fromkeys((*state.known, *state.former)))[:_FORMER]
            self._state = _State(known=known, former=former, now=tools, directive=directive.id, since=now)
        self._retire_about(frozenset(self._state.known) - frozenset(tools), settings.tenant)
        return await self._probe(self._prober)

    async def _probe(self, prober: ToolProber) -> list[Output]:
        """One round; plans the next if it left something open."""
        settings, state = self._settings, self._state
        try:
            report = await prober.probe(state.known, f"{state.directive}-{state.rounds}", state.former)
        except (EpisodeLost, AdapterError) as error:
            raise DependencyUnavailable(f"probing: {error}") from error
        new = frozenset(report.tools) - frozenset(state.known)
        for found in report.findings:
            self._take(found, new)
        unexplained = new - {name for lesson in self._lessons.values() for name in _tools_of(lesson)}
        rounds, now = state.rounds + 1, self._clock()
        wanted = frozenset(report.open) if not report.findings else frozenset(report.open) - frozenset(report.tools)
        again = bool(wanted or unexplained) and rounds < settings.probe_rounds
        due = now + settings.probe_again_seconds if again else 0.0
        self._state = msgspec.structs.replace(state, now=report.tools, rounds=rounds, due=due)
        self._dirty = True
        return [Output(TRAJECTORY_CLOSED, trajectory) for trajectory in report.trajectories]

    def _take(self, found: Finding, new: frozenset[str]) -> None:
        """Make a finding a lesson: active if it was verified, else a candidate."""
        tenant = self._settings.tenant
        practice = Practice(
            intent=self._intents.get(found.tool) or first_word(found.tool),
            tool=found.name,
            before=found.before,
            producer=found.producer,
        )
        known = self._lessons.get(lesson_id(tenant, practice))
        if known is not None and known.state == "retired" and not practice.tools & new:
            return  # learnt long ago; that the policy slipped once in a probe is no news
        kind: Kind = "rename" if found.name != found.tool else "precondition" if found.before else "practice"
        self._put(tenant, practice, kind, found.sources, "active" if found.verified else "candidate")

    def _put(self, tenant: str, practice: Practice, kind: Kind, sources: tuple[str, ...], state: str) -> None:
        """Add the lesson, or change it; an active one takes the place of the others for its intent."""
        id_ = lesson_id(tenant, practice)
        known = self._lessons.get(id_)
        if known is not None and (known.state == state or known.state == "active"):
            return
        lesson = Experience(
            id=id_,
            tenant=tenant,
            when_to_use=practice.intent,
            content=practice.content,
            kind=kind,
            sources=sources,
            state="active" if state == "active" else "candidate",
            revision=known.revision if known is not None else -1,
            updated=known.updated if known is not None else 0.0,
        )
        self._change(lesson)
        self._learn_intent(lesson)

    def _change(self, lesson: Experience) -> None:
        self._changed.setdefault(lesson.id, self._lessons.get(lesson.id, lesson))
        self._lessons[lesson.id] = lesson
        if lesson.state != "active":
            return
        for other in list(self._lessons.values()):
            same = (other.tenant, other.when_to_use) == (lesson.tenant, lesson.when_to_use)
            if same and other.id != lesson.id and other.state != "retired":
                self._change(msgspec.structs.replace(other, state="retired"))

    def _retire_about(self, gone: frozenset[str], tenant: str) -> None:
        for lesson in list(self._lessons.values()):
            if lesson.tenant == tenant and lesson.state != "retired" and _tools_of(lesson) & gone:
                self._change(msgspec.structs.replace(lesson, state="retired"))

    def _learn_intent(self, lesson: Experience) -> None:
        practice = read_practice(lesson)
        if practice is not None:
            self._intents[practice.tool] = practice.intent

    def _tools(self, prober: ToolProber) -> tuple[str, ...]:
        try:
            return prober.tools()
        except AdapterError as error:
            raise DependencyUnavailable(f"sandbox: {error}") from error

    async def _save(self) -> None:
        self._dirty = False
        await self._store.state_put(_STATE, msgspec.msgpack.encode(self._state))


def _tools_of(lesson: Experience) -> frozenset[str]:
    practice = read_practice(lesson)
    return practice.tools if practice is not None else frozenset()
