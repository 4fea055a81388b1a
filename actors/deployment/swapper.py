"""The swapper: brings what serves to what should serve, one engine after the other, and keeps the books on it.

    policy.verdict, policy.directive  ->  policy.serving, policy.directive

A reconciler: with every tick it derives the goal from the store's records (`desired_state.plan`), asks each engine what
it serves, and closes the gap. So it does not matter what it missed: a daemon that died in mid-swap, an engine that came
up with other weights, a verdict that came twice.

A promoted version is on trial first (`canary.py`). Of several engines one is swapped at a time, and to something new
only while another serves; a file tells the tap who takes no new trajectories (`routes.py`). The swap itself runs behind
`SwapRunner`, in a child that outlives this process. Weights come in only under a signed verdict or order, from a
directory with that record's manifest. While frozen nothing new comes in; going back stays possible.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.deployment.arms import Arms
from actors.deployment.canary import CanarySettings, CanaryWatch
from actors.deployment.deployment_log import DeploymentLog
from actors.deployment.fleet import EngineView, Fleet, Look, look_at
from actors.deployment.pinned_versions import read_pins, write_pins
from actors.kinds.kinds import Kinds
from actors.messages import Directive, Message, Serving, Verdict, derived_id
from actors.messages.routes import Routes, write_routes
from actors.messages.signing import PublicKeys, SigningKey, sign
from actors.ports.engines import Engine
from actors.ports.errors import CheckpointRefused, EngineError, SwapFailed
from actors.ports.store import SwapReport, SwapRunner
from actors.store import Store
from actors.system.actor import Actor, Output, Received, Result
from actors.system.streams import POLICY_DIRECTIVE, POLICY_SERVING, POLICY_VERDICT
from actors.versions.desired_state import ATTEMPTS, Goal, Plan
from actors.versions.version_timeline import VersionTimeline

_log = structlog.get_logger(__name__)
_ENGINE_SECONDS = 10.0
"""That an engine has to say which version it serves."""
_KEEP = 3
"""Versions that served last and are kept on disk to go back to, an engine: the one before may be no better. Of those
before, one of each age stays too: up to a quarter of an hour, to an hour, to four, and so on."""
_CLOSE_SECONDS = 0.5
"""With several engines: from telling the tap that one takes nothing new to pausing it; it looks every 0.2 s."""
_STALE_TICKS = 6
"""The tap believes its routes for so many reconciliations without news."""


class Swapper(Actor):
    """Actor: verdicts and directives in, served versions and the canary's end out."""

    name = "swapper"
    inputs = (POLICY_VERDICT, POLICY_DIRECTIVE)
    batch = 32

    def __init__(
        self,
        *,
        store: Store,
        engines: Mapping[str, Engine],
        runner: SwapRunner,
        versions: Path,
        key: SigningKey,
        keys: PublicKeys,
        clock: Callable[[], float],
        canary: CanarySettings,
        reconcile_seconds: float = 5.0,
        swap_timeout: float = 180.0,
        times: VersionTimeline | None = None,
        routes: Path | None = None,
        weights: Mapping[str, float] | None = None,
        halted: Callable[[], str] = lambda: "",
        kinds: Kinds | None = None,
    ) -> None:
        """
        Args:
            engines: those that serve users, by name, in the order in which they are swapped; the tap has the same
                names for them.
            versions: directory that holds the version directories `v<NNNNNN>`.
            key: signs what becomes of a canary.
            keys: that verdicts and orders must be signed with.
            reconcile_seconds: between two looks at the engines when nothing is heard.
            swap_timeout: seconds a swap may take in all, validation and a rollback included.
            times: told what every engine was seen to serve.
            routes: file for the tap; none: the tap has one engine.
            weights: by engine, of new trajectories at the tap; none: all have the same.
            halted: why nothing may be brought in, whatever was ordered; empty if nothing says so.
            kinds: what goals are alike, for trials.
        """
        self._store, self._engines, self._runner, self._swap_timeout = store, engines, runner, swap_timeout
        self.tick_seconds = self._reconcile_seconds = reconcile_seconds
        self._versions, self._key, self._clock, self._halted = versions, key, clock, halted
        self._routes = routes if len(engines) > 1 else None
        self._times = times or VersionTimeline(clock)
        weighed = {name: (weights or {}).get(name, 1.0) for name in engines}
        total = sum(weighed.values()) or 1.0
        parts = {name: weight / total for name, weight in weighed.items()}
        self._watch = CanaryWatch(canary, store, parts=parts, kinds=kinds)
        self._deployment_log = DeploymentLog(engines, versions=versions, keys=keys, clock=clock)
        self.pauses = self._deployment_log.pauses
        """Seconds that each engine took no new request for, by swap."""
        self._collected: set[str] = set()
        self._silent: set[str] = set()
        self._pins: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
        """Versions that must stay, and those of them that serve."""
        self._kept: frozenset[int] | None = None
        """Those that had to stay when this was last written down, and are there to go back to; None: not known."""
        self._looks: dict[str, Look] = {}
        self._waits: dict[str, str] = {}
        self._shown = Routes(until=0.0)
        self._unpinned = False
        self.unpinned = 0
        """Times that the versions that must stay could not be written down."""
        self.untold = 0
        """Times that the tap's routes could not be written."""

    @property
    def unsigned(self) -> int:
        """Verdicts and orders that were not signed, or were changed since."""
        return self._deployment_log.unsigned

    @property
    def fleet(self) -> Fleet:
        """What serves and what should, as of the last look."""
        wanted = self._plan()
        trial = wanted.trial
        arms = Arms() if trial is None else self._watch.arms(trial)
        views: dict[str, EngineView] = {}
        for name in self._engines:
            look = self._looks.get(name, Look())
            canary = trial is not None and trial.engine == name
            views[name] = EngineView(
                version=look.version,
                since=next((item.since for item in self._deployment_log.good(name)), 0.0),
                reachable=look.version is not None,
                paused=look.paused,
                canary_share=self._watch.share(trial) if canary and trial is not None else 0.0,
                note=self._waits.get(name, ""),
            )
        return Fleet(
            stable=None if wanted.stable is None else wanted.stable.version,
            stable_since=0.0 if wanted.stable is None else self._deployment_log.first_served(wanted.stable.version),
            canary=None if trial is None else trial.goal.version,
            canary_engine="" if trial is None else trial.engine,
            canary_since=0.0 if trial is None else trial.since,
            canary_runs=arms.errors.runs,
            canary_judged=arms.failures.runs,
            canary_against=arms.failures.rest,
            canary_due=0 if trial is None else self._watch.due(trial),
            waiting=None if wanted.waiting is None else wanted.waiting.version,
            good=wanted.good,
            banned=tuple(sorted(wanted.banned)),
            engines=views,
        )

    async def start(self) -> None:
        await self._deployment_log.open(self._store)
        self._collected.clear()
        # Another daemon may have led, and written them, since.
        self._pins, self._shown = (frozenset(), frozenset()), Routes(until=0.0)
        self._kept = await anyio.to_thread.run_sync(read_pins, self._versions)

    async def handle(self, batch: Sequence[Received]) -> Result:
        for received in batch:
            if isinstance(received.message, Verdict | Directive):
                self._deployment_log.hear(received.message)
        return await self._reconcile()

    async def tick(self) -> Result:
        return await self._reconcile()

    @property
    def _held(self) -> bool:
        return self._deployment_log.frozen or bool(self._halted())

    def _plan(self) -> Plan:
        kept = None if self._kept is None else self._kept | {0}  # which the learner never deletes
        return self._deployment_log.plan(frozen=self._held, kept=kept)

    async def _reconcile(self) -> Result:
        """Close the gap on each engine; the first one that does not take a version spares the others."""
        done: list[Serving | Directive] = []
        self._waits.clear()
        for name, engine in self._engines.items():
            asked = self._clock()
            self._looks[name] = await self._look(name, engine, done)
            self._seen(name, asked)
        done += await self._judge()
        await self._pin()  # before a swap that takes its time: the learner clears away what nobody wants
        await self._tell()
        for name in self._engines:
            event = await self._converge(name)
            if event is not None:
                self._deployment_log.book(event)
                done.append(event)
            if event is not None and event.result in ("refused", "rolled_back"):
                break
        await self._tell()
        await self._pin()
        return Result(done, [Output(_subject(event), event) for event in done])

    async def _look(self, name: str, engine: Engine, done: list[Serving | Directive]) -> Look:
        """What `name` is at; books in `done` what an earlier child left, and wakes an engine that nobody swaps."""
        try:
            if name not in self._collected:
                done += await self._collect(name)
            look = await look_at(engine, _ENGINE_SECONDS)
            if look.paused:
                # A child may have begun or died since; if there is none, nobody will ever resume it.
                done += await self._collect(name)
                look = await look_at(engine, _ENGINE_SECONDS)
            if look.paused:
                _log.warning("engine_found_paused", engine=name)
                self._times.lost(name)
                with anyio.fail_after(_ENGINE_SECONDS):
                    await engine.resume()
                look = msgspec.structs.replace(look, paused=False)
        except (EngineError, TimeoutError) as error:
            look = Look(problem=f"{type(error).__name__}: {error}")
        if look.problem:
            self._waits[name] = "away"
            if name not in self._silent:
                _log.error("engine_not_reconciled", engine=name, reason=look.problem)
            self._silent.add(name)
        elif name in self._silent:
            self._silent.discard(name)
            _log.info("engine_reconciled", engine=name)
        return look

    def _seen(self, name: str, asked: float) -> None:
        version = self._looks[name].version
        if version is None:
            self._times.lost(name)
        else:
            self._times.seen(name, version, asked)

    async def _collect(self, name: str) -> list[Serving]:
        report = await self._runner.collect(name)
        self._collected.add(name)
        if report is None or self._deployment_log.booked(name, report):
            return []
        _log.info("swap_collected", engine=name, version=report.version, result=report.result)
        event = self._deployment_log.report(name, report, previous=self._deployment_log.current(name), why="collected")
        self._deployment_log.book(event)
        return [event]

    async def _judge(self) -> list[Directive]:
        """End the trial that is on, if its time has come."""
        wanted = self._plan()
        trial, now = wanted.trial, self._clock()
        if trial is None or not trial.engine or wanted.stable is None:
            return []
        end, reason = await self._watch.verdict(
            trial,
            wanted.stable.version,
            now,
            hold=self._held,
            good=wanted.good,
            world=self._deployment_log.drifted,
            served=self._deployment_log.served_since(wanted.stable.version, trial.since),
        )
        if trial.swaps > ATTEMPTS:
            end, reason = "rollback", f"on trial: {trial.engine} came up again without it {trial.swaps - 1} times"
        elif end == "roll_on" and self._looks[trial.engine].version != trial.goal.version:
            return []  # it passed, but is away at the moment: it may have died of what it serves
        if end not in ("rollback", "roll_on"):
            return []
        version, back = str(trial.goal.version), str(self._watch.best(wanted.stable.version))
        directive = Directive(
            id=derived_id("trial", end, trial.goal.version, trial.since),
            kind=end,
            reason=reason,
            origin=self.name,
            created=now,
            details={"version": version, "engine": trial.engine} | ({"to": back} if end == "rollback" else {}),
        )
        directive = sign(directive, self._key)
        (_log.info if end == "roll_on" else _log.error)("trial_ended", version=version, end=end, reason=reason)
        self._deployment_log.hear(directive)
        return [directive]

    async def _converge(self, name: str) -> Serving | None:
        look = self._looks[name]
        if look.version is None:
            return None
        wanted = self._plan()
        want = wanted.goal(name)
        if want is None and wanted.gave_up.get(name):
            self._waits[name] = "did not take what is stable"
        # What the first engine came up with is where everything starts from, also for a trial that waits for it. Later
        # on, if everything that ever served was rolled back, it stays: a person must look.
        if self._deployment_log.current(name) < 0 and wanted.stable is None and not wanted.banned:
            return self._deployment_log.record(
                name, "started", await self._deployment_log.first(name, look.version), previous=-1
            )
        if want is None:
            return None
        if look.version == want.version:
            last = self._deployment_log.current(name)
            if last == look.version:
                return None
            result = "started" if last < 0 else "swapped"
            return self._deployment_log.record(
                name, result, look.version, previous=last, path=want.path, reason="found"
            )
        if wanted.forward(name, want) and not await self._another_serves(name):
            self._waits[name] = "waits for another engine to serve"
            return None
        return await self._swap(name, want, look.version)

    async def _another_serves(self, name: str) -> bool:
        """Whether users have somebody to go to while `name` is paused; yes if there is only one engine."""
        others = [other for other in self._engines if other != name]
        for other in others:
            self._looks[other] = await look_at(self._engines[other], _ENGINE_SECONDS)
        return not others or any(self._looks[other].serves for other in others)

    async def _swap(self, name: str, want: Goal, version: int) -> Serving | None:
        _log.info("swap_started", engine=name, version=want.version, previous=version, why=want.why)
        if self._routes is not None:
            await self._tell(swapping=name)
            await anyio.sleep(_CLOSE_SECONDS)
        self._times.swapping(name)
        try:
            report = await self._run(name, want, version)
        except (EngineError, TimeoutError) as error:
            self._looks[name] = Look()
            self._waits[name] = f"{type(error).__name__}: {error}"
            _log.error("swap_not_done", engine=name, version=want.version, reason=self._waits[name])
            return None
        self._collected.add(name)
        asked = self._clock()
        self._looks[name] = await look_at(self._engines[name], _ENGINE_SECONDS)
        self._seen(name, asked)
        return self._deployment_log.report(name, report, previous=version, path=want.path, why=want.why)

    async def _run(self, name: str, want: Goal, version: int) -> SwapReport:
        """
        Raises:
            EngineUnavailable, TimeoutError: nothing is known of it yet; the next look collects what comes of it.
        """
        # Until a report is in hand, a child of ours may be at it: the next look collects it before anything else.
        self._collected.discard(name)
        good = self._deployment_log.directory(version)
        try:
            with anyio.fail_after(self._swap_timeout):
                return await self._runner.swap(
                    name, Path(want.path), want.version, manifest=want.manifest, last_good=good,
                    last_version=max(version, 0),
                )  # fmt: skip
        except CheckpointRefused as error:
            return SwapReport(result="refused", version=want.version, reason=str(error))
        except SwapFailed as error:
            # A program that was killed left its work half done: it is finished here, not with the next tick.
            report = await self._runner.collect(name)
            return report or SwapReport(result="rolled_back", version=want.version, reason=str(error))

    async def _tell(self, swapping: str = "") -> None:
        """Tell the tap, if that is news or the old news gets stale."""
        if self._routes is None:
            return
        now, trial = self._clock(), self._plan().trial
        lasts = self._swap_timeout if swapping else 0.0
        routes = Routes(
            until=now + lasts + _STALE_TICKS * self._reconcile_seconds,
            canary="" if trial is None else trial.engine,
            share=0.0 if trial is None else self._watch.share(trial),
            closed=tuple(name for name, look in self._looks.items() if name == swapping or look.paused),
            versions={name: look.version for name, look in self._looks.items() if look.version is not None},
        )
        old = self._shown
        fresh = old.until - now > self._reconcile_seconds * _STALE_TICKS / 2
        if fresh and msgspec.structs.replace(routes, until=old.until) == old:
            return
        try:
            await anyio.to_thread.run_sync(write_routes, self._routes, routes)
        except OSError as error:
            # The tap falls back by itself when what it knows gets stale.
            self.untold += 1
            _log.error("routes_not_written", path=str(self._routes), reason=str(error))
        self._shown = routes

    async def _pin(self) -> None:
        """Tell the learner, who deletes old versions, which ones must stay."""
        pins = self._deployment_log.pins(self._plan(), _KEEP, self._kept or ())
        if pins == self._pins:
            return
        try:
            await anyio.to_thread.run_sync(write_pins, self._versions, *pins)
        except OSError as error:
            # A full disk must not keep a bad version serving: what one goes back to was pinned before, and the learner
            # that would clear away what is new has no room for a version either. Written anew with the next tick.
            if not self._unpinned:
                _log.error("pins_not_written", path=str(self._versions), reason=str(error))
            self._unpinned = True
            self.unpinned += 1
            return
        self._pins, self._kept, self._unpinned = pins, pins[0], False


def _subject(message: Message) -> str:
    return POLICY_SERVING if isinstance(message, Serving) else POLICY_DIRECTIVE
