"""The sentinel: monitors that act. It watches production and orders; others carry the orders out.

    trajectory.closed, trajectory.attributed, trajectory.outcome, traffic.exchange, policy.serving, policy.directive
    ->  policy.directive

`rollback` (and `freeze` until a person has looked, unless the version was on trial) where agents fare worse since a
swap, the judge alone is pleased, or calls fail; `freeze` where the model or the judge behaves otherwise; `drift` where
tools do; else `notice`, which orders nothing. Each cause is told once a version. What is concluded from which numbers
stands in `actors/monitoring/`; this file is its I/O.
"""

import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Literal

import anyio
import msgspec
import structlog

from actors.kinds.kinds import Kinds
from actors.messages import Attributed, Directive, Exchange, Message, OutcomeChanged, Serving, Trajectory, derived_id
from actors.monitoring.agent_outcomes import AgentOutcomes
from actors.monitoring.engine import EngineWatch
from actors.monitoring.first_version import FirstVersion, Place, VersionSuccess
from actors.monitoring.history import History, Remembered, Swap
from actors.monitoring.judge_drift import JudgeDrift
from actors.monitoring.monitor import SEVERITY, Finding, Monitor
from actors.monitoring.settings import SAMPLE, USUAL, VERSIONS, WINDOW, Actions
from actors.monitoring.tools import ToolDrift
from actors.monitoring.versions import version_monitors
from actors.ports.engines import Engine
from actors.ports.errors import EngineError
from actors.statistics.parties import binds, with_evidence
from actors.store import Store
from actors.system.actor import Actor, Output, Received, Result
from actors.system.streams import (
    POLICY_DIRECTIVE,
    POLICY_SERVING,
    TRAFFIC_EXCHANGE,
    TRAJECTORY_ATTRIBUTED,
    TRAJECTORY_CLOSED,
    TRAJECTORY_OUTCOME,
)
from actors.tool_results.runs import lateness, summarize, take_judgement
from actors.versions.desired_state import number

_log = structlog.get_logger(__name__)
_STATE = "sentinel/state"
_RECENT = 16
_ORDERS = 256
"""Newest orders among which the end of a version's trial is looked for."""
_RELEARNED = "hacking"
"""Cause that is in what is learned from, and so comes again."""
_PROBE_SECONDS = 10.0
"""Between two looks at the engines, and between two saves of what is remembered."""
_PROBE_TIMEOUT = 5.0
"""Seconds an engine has to say which version it serves."""
_BATCH = 128
"""Records taken at a time."""


class _State(msgspec.Struct):
    """All that outlives the process."""

    history: Remembered = msgspec.field(default_factory=Remembered)
    monitors: dict[str, bytes] = {}
    """What each monitor gave, by its name."""


class Told(msgspec.Struct, frozen=True):
    """A finding that was acted on, for people."""

    time: float
    cause: str
    action: str
    reason: str


class Sentinel(Actor):
    """Actor: production in, directives out."""

    name = "sentinel"
    inputs = (
        TRAJECTORY_CLOSED, TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME, TRAFFIC_EXCHANGE, POLICY_SERVING,
        POLICY_DIRECTIVE,
    )  # fmt: skip
    batch = _BATCH
    tick_seconds = _PROBE_SECONDS

    def __init__(
        self,
        actions: Actions = USUAL,
        *,
        store: Store,
        engines: Mapping[str, Engine],
        clock: Callable[[], float],
        kinds: Kinds | None = None,
    ) -> None:
        """Those of `engines` that serve users must have the names that the swapper gives them in `Serving.engine`."""
        self._actions, self._store, self._engines, self._clock = actions, store, engines, clock
        self._kinds = kinds or Kinds()
        self._dirty = False
        self.unreachable: set[str] = set()
        """Engines that did not answer the last time."""
        self.told: Counter[tuple[str, str]] = Counter()
        """Findings acted on since the start, by cause and action."""
        self.recent: deque[Told] = deque(maxlen=_RECENT)
        """The last of them, oldest first."""
        self._begin(Remembered())

    def _begin(self, history: Remembered) -> None:
        actions = self._actions
        self._history = History(WINDOW, SAMPLE, VERSIONS, history)
        self._tools, self._engine = ToolDrift(), EngineWatch()
        self._agents, self._first = AgentOutcomes(actions.success), FirstVersion()
        self._monitors: list[Monitor] = [
            *version_monitors(actions),
            self._agents,
            self._first,
            self._engine,
            JudgeDrift(actions.judge_drift),
            self._tools,
        ]

    def readings(self) -> dict[str, Mapping[str, float]]:
        """The present values of every monitor, by its name."""
        return {monitor.name: monitor.readings() for monitor in self._monitors}

    def versions(self) -> dict[Place, VersionSuccess]:
        """Success of the versions that people compare."""
        return self._first.versions(self._history)

    def status(self) -> dict[str, Any]:
        """What people want to see of it."""
        parties = self._history.parties()
        return {
            "monitors": self.readings(),
            "told": list(self.recent),
            "unreachable": sorted(self.unreachable),
            "parties": {"with_evidence": with_evidence(parties), "binds": binds(parties)},
        }

    async def start(self) -> None:
        data = await self._store.state_get(_STATE)
        try:
            state = _State() if data is None else msgspec.msgpack.decode(zlib.decompress(data), type=_State)
        except (zlib.error, msgspec.DecodeError) as error:
            # Written by another version of evolved: what it held is a window that fills again by itself.
            _log.warning("sentinel_state_unreadable", error=str(error))
            state = _State()
        self._begin(state.history)
        for monitor in (one for one in self._monitors if one.name in state.monitors):
            try:
                monitor.restore(state.monitors[monitor.name])
            except msgspec.DecodeError as error:
                _log.warning("monitor_state_unreadable", monitor=monitor.name, error=str(error))
        first = await self._store.first_served()
        if first is not None:
            self._first.begin(first)

    async def handle(self, batch: Sequence[Received]) -> Result:
        changed: list[str] = []
        for received in batch:
            if isinstance(received.message, OutcomeChanged):
                changed.append(received.message.id)
            else:
                self._dirty |= self._heard(received.message)
        for run, told in await self._store.reported(changed) if changed else ():
            # After the runs of the batch, which it may be of.
            self._reported(run, told)
            self._dirty = True
        # Saved with the next tick, not here: a crash in between tells a thing twice, under one id, instead of never.
        return await self._look()

    async def tick(self) -> Result:
        async with anyio.create_task_group() as group:
            for name, engine in self._engines.items():
                group.start_soon(self._probe, name, engine)
        result = await self._look()
        if self._dirty or result.records:
            await self._save()
        return result

    async def _save(self) -> None:
        monitors = {monitor.name: monitor.save() for monitor in self._monitors}
        state = _State(self._history.snapshot(), monitors)
        # Written every few seconds, and mostly the same few names again and again: a fifth of the bytes for 3 ms.
        await self._store.state_put(_STATE, zlib.compress(msgspec.msgpack.encode(state), level=1))
        self._dirty = False

    def _heard(self, message: Message) -> bool:
        """Whether `message` changed anything."""
        match message:
            case Trajectory() as trajectory if trajectory.source == "production":
                self._saw(trajectory)
            case Attributed() as attributed if attributed.trajectory.source == "production":
                self._judged(attributed)
            case Exchange() as exchange if exchange.source == "tap":
                self._engine.called(exchange)
            case Serving(result="swapped" | "started") as serving if serving.engine in self._engines:
                swap = Swap(serving.engine, serving.version, serving.previous, serving.since)
                self._history.swapped(swap)
                self._engine.swapped(swap)
            case _:
                return False
        return True

    def _saw(self, trajectory: Trajectory) -> None:
        summary, names = summarize(trajectory)
        summary.agent, summary.near = self._tools.known_as(summary, names), self._kinds.kind(trajectory)
        if self._history.add(summary):
            self._tools.sighted(summary, names)

    def _judged(self, attributed: Attributed) -> None:
        self._saw(attributed.trajectory)  # the streams are two: the judgement may be heard of first
        self._history.judgement(attributed.id, attributed.attribution, attributed.cluster or "none")

    def _reported(self, message: Attributed | Trajectory, told: float | None) -> None:
        """The run has an outcome now, or another than it had, which was reported `told` a time."""
        trajectory = message.trajectory if isinstance(message, Attributed) else message
        if self._history.outcome(trajectory.id, trajectory.outcome or 0.0, told):
            return
        run, names = summarize(trajectory)
        run.agent, run.near = self._tools.known_as(run, names), self._kinds.kind(trajectory)
        run.late = 0 if told is None else lateness(told - run.ended)
        if isinstance(message, Attributed):
            # Without its kind: should the judgement be heard of yet, the monitors are told.
            take_judgement(run, message.attribution, "")
        self._history.found(run)

    async def _look(self) -> Result:
        """What every monitor finds, as directives."""
        now, directives = self._clock(), list[Directive]()
        for monitor in self._monitors:
            for finding in monitor.look(self._history, now):
                directives += await self._ordered(finding, now)
        self._history.looked()
        return Result(directives, [Output(POLICY_DIRECTIVE, directive) for directive in directives])

    async def _ordered(self, finding: Finding, now: float) -> list[Directive]:
        kinds: list[Literal["rollback", "freeze", "drift", "notice"]]
        match finding.action:
            case "rollback":
                version = int(finding.details["version"])
                freezes = finding.cause == _RELEARNED or await self._passed(version)
                kinds = ["rollback", "freeze"] if freezes else ["rollback"]
                since = finding.details.get("since")
                self._history.condemn(version, None if since is None else int(since))
            case "tell":
                kinds = ["notice"]
            case "drift":
                self._agents.forget(str(finding.key[0]))
                kinds = ["drift"]
            case kind:
                kinds = [kind]
        serious = SEVERITY[finding.action] >= SEVERITY["freeze"]
        log = _log.error if serious else _log.warning
        log("sentinel_found", cause=finding.cause, action=finding.action, reason=finding.reason)
        self.told[finding.cause, finding.action] += 1
        self.recent.append(Told(now, finding.cause, finding.action, finding.reason))
        return [
            Directive(
                id=derived_id(kind, finding.cause, *finding.key),
                kind=kind,
                reason=finding.reason,
                origin=self.name,
                created=now,
                details={"cause": finding.cause, **finding.details},
            )
            for kind in kinds
        ]

    async def _passed(self, version: int) -> bool:
        """Whether the trial of `version` ended well: by itself, or by an operator who ordered it again meanwhile."""
        swap = self._history.swap
        since = swap.since if swap is not None and swap.version == version else inf
        orders = await self._store.newest(Directive, _ORDERS, kinds=("roll_on", "promote"))
        mine = [order for order in orders if number(order, "version") == version]
        return any(order.kind == "roll_on" or order.created > since for order in mine)

    async def _probe(self, name: str, engine: Engine) -> None:
        try:
            with anyio.fail_after(_PROBE_TIMEOUT):
                await engine.version()
        except (EngineError, TimeoutError) as error:
            if name not in self.unreachable:
                self.unreachable.add(name)
                silent = f"no answer within {_PROBE_TIMEOUT:g} s"
                reason = silent if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
                _log.error("engine_unreachable", engine=name, reason=reason)
            return
        if name in self.unreachable:
            self.unreachable.discard(name)
            _log.info("engine_reachable", engine=name)
