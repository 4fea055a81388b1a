"""The sentinel: monitors that act. It watches production and orders; others carry the orders out.

    trajectory.closed, traffic.feedback, policy.serving  ->  policy.directive

* Agents fare worse since a swap: roll back to the version before, and freeze learning until a person has looked.
* The tools changed, or behave otherwise: `drift`, with what is missing and what is new; the experiencer probes, the
  gate measures again.
* An engine that cannot be reached is logged once when it breaks and once when it is back.

What is concluded from which numbers stands in `monitors.py`; this file is its I/O.
"""

from collections.abc import Callable, Mapping, Sequence

import anyio
import msgspec
import structlog

from actors.messages import Directive, Feedback, Serving, Trajectory, derived_id
from actors.monitors import Drift, MonitorSettings, Regression, State, Swap, Watch, summarize
from actors.ports import StateStore
from actors.system.actor import Output, Received, Result
from actors.system.streams import POLICY_DIRECTIVE, POLICY_SERVING, TRAFFIC_FEEDBACK, TRAJECTORY_CLOSED
from adapters.engines import Engine
from adapters.errors import EngineError

_log = structlog.get_logger(__name__)
_STATE = "sentinel/state"


class SentinelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the sentinel watches."""

    monitors: MonitorSettings = MonitorSettings()
    """When the monitors speak up."""
    probe_seconds: float = 10.0
    """Between two looks at the engines, and between two saves of what is remembered."""
    probe_timeout: float = 5.0
    """Seconds an engine has to say which version it serves."""
    batch: int = 128
    """Records taken at a time."""
    responses: int = 4096
    """Responses of runs without an outcome that are remembered, so that late feedback finds its run."""


class Sentinel:
    """Actor: production in, directives out."""

    name = "sentinel"
    inputs = (TRAJECTORY_CLOSED, TRAFFIC_FEEDBACK, POLICY_SERVING)

    def __init__(
        self,
        settings: SentinelSettings,
        *,
        store: StateStore,
        engines: Mapping[str, Engine],
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            engines: every engine to look after, by name; those that serve users must have the name that the swapper
                gives them in `Serving.engine`.
        """
        self._settings, self._store, self._engines, self._clock = settings, store, engines, clock
        self._watch = Watch(settings.monitors)
        self._runs: dict[str, str] = {}
        """Response or exchange id to trajectory id, oldest first."""
        self._dirty = False
        self.unreachable: set[str] = set()
        """Engines that did not answer the last time."""

    @property
    def batch(self) -> int:
        return self._settings.batch

    @property
    def tick_seconds(self) -> float | None:
        return self._settings.probe_seconds

    async def start(self) -> None:
        data = await self._store.state_get(_STATE)
        state = None
        if data is not None:
            try:
                state = msgspec.msgpack.decode(data, type=State)
            except msgspec.DecodeError as error:
                # Written by another version of evolved: what it held is a window that fills again by itself.
                _log.warning("sentinel_state_unreadable", error=str(error))
        self._watch = Watch(self._settings.monitors, state)
        self._runs.clear()

    async def handle(self, batch: Sequence[Received]) -> Result:
        directives: list[Directive] = []
        for received in batch:
            match received.message:
                case Trajectory() as trajectory if trajectory.source == "production":
                    self._saw(trajectory)
                case Feedback() as feedback if feedback.outcome is not None:
                    self._late(feedback, feedback.outcome)
                case Serving(result="swapped" | "started") as serving if serving.engine in self._engines:
                    self._watch.swapped(Swap(serving.engine, serving.version, serving.previous, serving.since))
                case _:
                    continue
            self._dirty = True
        regression = self._watch.regression()
        if regression is not None:
            directives += self._go_back(regression)
        directives += [self._drifted(drift) for drift in self._watch.drifts(self._clock())]
        # Saved with the next tick, not here: a crash in between tells a thing twice, under one id, instead of never.
        return Result(directives, [Output(POLICY_DIRECTIVE, directive) for directive in directives])

    async def tick(self) -> Result:
        async with anyio.create_task_group() as group:
            for name, engine in self._engines.items():
                group.start_soon(self._probe, name, engine)
        if self._dirty:
            await self._save()
        return Result()

    async def _save(self) -> None:
        await self._store.state_put(_STATE, msgspec.msgpack.encode(self._watch.snapshot()))
        self._dirty = False

    def _saw(self, trajectory: Trajectory) -> None:
        run, names = summarize(trajectory)
        self._watch.add(run, names)
        if trajectory.outcome is not None:
            return
        for step in trajectory.steps:
            for key in (step.response_id, step.exchange_id):
                if key:
                    self._runs[key] = trajectory.id
        while len(self._runs) > self._settings.responses:
            del self._runs[next(iter(self._runs))]

    def _late(self, feedback: Feedback, outcome: float) -> None:
        keys = (feedback.response_id, feedback.exchange_id)
        trajectory_id = feedback.trajectory_id or next((self._runs[key] for key in keys if key in self._runs), "")
        if trajectory_id:
            self._watch.outcome(trajectory_id, outcome)

    def _go_back(self, found: Regression) -> list[Directive]:
        swap, now = found.swap, self._clock()
        reason = (
            f"success {found.after[0]}/{found.after[1]} under version {swap.version}, "
            f"{found.before[0]}/{found.before[1]} under {swap.previous}"
        )
        details = {
            "engine": swap.engine,
            "version": str(swap.version),
            "to": str(swap.previous),
            "difference": f"{found.difference.estimate:.3f}",
            "low": f"{found.difference.low:.3f}",
            "high": f"{found.difference.high:.3f}",
        }
        _log.error("regression_found", engine=swap.engine, version=swap.version, to=swap.previous, reason=reason)
        return [
            Directive(
                id=derived_id(kind, swap.engine, swap.version, swap.since),
                kind=kind,
                reason=reason,
                origin=self.name,
                created=now,
                details=details,
            )
            for kind in ("rollback", "freeze")
        ]

    def _drifted(self, drift: Drift) -> Directive:
        now = self._clock()
        details = {"cause": drift.cause, "tenant": drift.tenant, "tools": drift.tools}
        if drift.missing:
            details["missing"] = ",".join(drift.missing)
        if drift.new:
            details["new"] = ",".join(drift.new)
        if drift.difference is not None:
            details["difference"] = f"{drift.difference.estimate:.3f}"
        reason = {
            "tools": f"tools changed: {len(drift.missing)} gone, {len(drift.new)} new",
            "errors": "tools answer with errors more often than before",
            "outcomes": "success fell although nothing was swapped",
        }[drift.cause]
        _log.warning("drift_found", **details)
        # The period stands in the id so that a tool list that comes back after it was forgotten is told again.
        period = int(now // self._settings.monitors.cooldown_seconds)
        return Directive(
            id=derived_id("drift", drift.tenant, drift.cause, drift.tools, period),
            kind="drift",
            reason=reason,
            origin=self.name,
            created=now,
            details=details,
        )

    async def _probe(self, name: str, engine: Engine) -> None:
        try:
            with anyio.fail_after(self._settings.probe_timeout):
                await engine.version()
        except (EngineError, TimeoutError) as error:
            if name not in self.unreachable:
                self.unreachable.add(name)
                _log.error("engine_unreachable", engine=name, reason=f"{type(error).__name__}: {error}")
        else:
            if name in self.unreachable:
                self.unreachable.discard(name)
                _log.info("engine_reachable", engine=name)
