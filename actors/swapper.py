"""The swapper: brings what serves to what should serve, one engine after the other, and keeps the books on it.

    policy.verdict, policy.directive  ->  policy.serving

A reconciler: each time something is heard, and with every tick, it derives the goal from the store's records (`goal`, a
pure function), asks each engine what it serves, and closes the gap if there is one. So it does not matter what it
missed: a daemon that died in mid-swap, an engine that came up again with the weights of its start, a verdict that
arrived twice.

The pause-to-resume section runs behind the `SwapRunner` port in a child process that outlives this one. A version is
loaded only under a verdict that the gatekeeper signed, and if its directory still has the manifest that was judged,
with the learner's signature on it (the runner sees to that); one that an engine refused or lost its way with is not
tried again after a few attempts. While frozen nothing new is swapped in; going back, and bringing an engine back to
what it served, stay possible.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.messages import Directive, Serving, Verdict, derived_id
from actors.ports import PolicyStore, SwapReport, SwapRunner
from actors.signing import PublicKeys, verdict_problem
from actors.system.actor import Output, Received, Result
from actors.system.streams import POLICY_DIRECTIVE, POLICY_SERVING, POLICY_VERDICT
from adapters.engines import Engine
from adapters.errors import CheckpointRefused, EngineError, SwapFailed

_log = structlog.get_logger(__name__)
_REMEMBERED = 1000


class SwapperSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the swapper works."""

    reconcile_seconds: float = 5.0
    """Between two looks at the engines when nothing is heard."""
    attempts: int = 2
    """Swaps to one version that may fail on one engine before it is left alone for good."""
    engine_timeout: float = 10.0
    """Seconds an engine has to say which version it serves."""
    keep: int = 3
    """Versions that served last and are kept on disk to go back to, an engine."""
    swap_timeout: float = 180.0
    """Seconds a swap may take in all, validation and a rollback included."""


class Goal(msgspec.Struct, frozen=True):
    """What an engine should serve, and why."""

    version: int
    path: str
    manifest: str
    """sha256 that manifest.json must have; empty for weights that were there before any verdict."""
    why: Literal["verdict", "rollback", "restore"]


def goal(
    engine: str,
    verdicts: Iterable[Verdict],
    directives: Iterable[Directive],
    servings: Iterable[Serving],
    *,
    frozen: bool,
    attempts: int,
) -> Goal | None:
    """What `engine` should serve after all that was decided; None if nothing was, or nothing good is left.

    Verdicts must have been verified. The order of the arguments does not matter, the times in them do: the latest
    decision counts. A version that was rolled back, or that failed `attempts` times, is never wanted again; while
    `frozen` a promotion counts only if it was carried out before.
    """
    # What another engine refused counts here too: a version that one of them cannot take is taken by none.
    mine = [item for item in servings if item.engine == engine or item.result in ("refused", "rolled_back")]
    served = {serving.version for serving in mine if serving.result in ("started", "swapped")}
    events: list[tuple[float, Verdict | Directive | Serving]] = []
    events += [(verdict.created, verdict) for verdict in verdicts]
    events += [(directive.created, directive) for directive in directives]
    events += [(serving.since, serving) for serving in mine]
    good: list[Goal] = []
    manifests: dict[int, str] = {}
    failures: dict[int, int] = {}
    banned: set[int] = set()
    wanted: Goal | None = None

    def fall_back(why: Literal["rollback", "restore"], to: int | None = None) -> Goal | None:
        choices = [choice for choice in reversed(good) if choice.version not in banned]
        named = [choice for choice in choices if choice.version == to]
        return next((msgspec.structs.replace(choice, why=why) for choice in named or choices), None)

    for _, event in sorted(events, key=lambda item: item[0]):
        match event:
            case Verdict(decision="promote"):
                manifests[event.version] = event.manifest
                if event.version not in banned and not (frozen and event.version not in served):
                    wanted = Goal(event.version, event.path, event.manifest, "verdict")
            case Directive(kind="rollback"):
                bad, to = _number(event, "version"), _number(event, "to")
                if bad is None and good:
                    bad = good[-1].version
                if bad is not None:
                    banned.add(bad)
                wanted = fall_back("rollback", to) or wanted
            case Serving(result="started" | "swapped"):
                good.append(Goal(event.version, event.path, manifests.get(event.version, ""), "restore"))
                if wanted is None or wanted.version == event.version:
                    wanted = good[-1]
            case Serving(result="refused" | "rolled_back"):
                failures[event.version] = failures.get(event.version, 0) + 1
                if failures[event.version] >= attempts:
                    banned.add(event.version)
                    if wanted is not None and wanted.version == event.version:
                        wanted = fall_back("restore") or wanted
            case _:
                pass
    return wanted if wanted is None or wanted.version not in banned else None


def _number(directive: Directive, key: str) -> int | None:
    text = directive.details.get(key, "")
    return int(text) if text.isdecimal() else None


class Swapper:
    """Actor: verdicts and directives in, served versions out."""

    name = "swapper"
    inputs = (POLICY_VERDICT, POLICY_DIRECTIVE)
    batch = 32

    def __init__(
        self,
        settings: SwapperSettings,
        *,
        store: PolicyStore,
        engines: Mapping[str, Engine],
        runner: SwapRunner,
        versions: Path,
        keys: PublicKeys,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            engines: those that serve users, by name, in the order in which they are swapped.
            versions: directory that holds the version directories `v<NNNNNN>`.
            keys: the gatekeeper's public ones.
        """
        self._settings, self._store, self._engines, self._runner = settings, store, engines, runner
        self._versions, self._keys, self._clock = versions, keys, clock
        self._verdicts: dict[str, Verdict] = {}
        self._directives: dict[str, Directive] = {}
        self._servings: dict[str, Serving] = {}
        self._frozen = False
        self._collected: set[str] = set()
        self._silent: set[str] = set()
        self._pins: set[int] = set()
        self.unsigned = 0
        """Verdicts that were not signed by the gatekeeper, or were changed since."""

    @property
    def tick_seconds(self) -> float | None:
        return self._settings.reconcile_seconds

    async def start(self) -> None:
        self._verdicts.clear()
        for verdict in await self._store.verdicts(limit=_REMEMBERED):
            self._hear_verdict(verdict)
        self._directives = {item.id: item for item in await self._store.directives(limit=_REMEMBERED)}
        self._servings = {}
        for name in self._engines:
            self._servings |= {item.id: item for item in await self._store.servings(engine=name, limit=_REMEMBERED)}
        self._frozen = await self._store.frozen()
        self._collected.clear()

    async def handle(self, batch: Sequence[Received]) -> Result:
        for received in batch:
            match received.message:
                case Verdict() as verdict:
                    self._hear_verdict(verdict)
                case Directive() as directive:
                    self._directives[directive.id] = directive
                    if directive.kind in ("freeze", "thaw"):
                        self._frozen = directive.kind == "freeze"
                case _:
                    pass
        return await self._reconcile()

    async def tick(self) -> Result:
        return await self._reconcile()

    def _hear_verdict(self, verdict: Verdict) -> None:
        problem = verdict_problem(verdict, self._keys)
        if problem:
            self.unsigned += 1
            _log.error("verdict_not_signed", version=verdict.version, verdict=verdict.id, reason=problem)
            return
        self._verdicts[verdict.id] = verdict

    async def _reconcile(self) -> Result:
        """Close the gap on each engine; the first one that does not take a version spares the others."""
        for items in (self._verdicts, self._directives, self._servings):
            for old in list(items)[: max(0, len(items) - 4 * _REMEMBERED)]:
                del items[old]
        done: list[Serving] = []
        for name, engine in self._engines.items():
            try:
                events = await self._converge(name, engine)
            except (EngineError, TimeoutError) as error:
                if name not in self._silent:
                    self._silent.add(name)
                    _log.error("engine_not_reconciled", engine=name, reason=f"{type(error).__name__}: {error}")
                continue
            if name in self._silent:
                self._silent.discard(name)
                _log.info("engine_reconciled", engine=name)
            for event in events:
                self._servings[event.id] = event
            done += events
            if any(event.result in ("refused", "rolled_back") for event in events):
                break
        await self._pin()
        return Result(done, [Output(POLICY_SERVING, event) for event in done])

    async def _pin(self) -> None:
        """Tell the learner, who deletes old versions, which ones must stay: what serves, what one would go back to, and
        what was promoted and is on its way."""
        pins: set[int] = set()
        for name in self._engines:
            mine = [item for item in self._servings.values() if item.engine == name]
            good = sorted((item for item in mine if item.result in ("started", "swapped")), key=_since, reverse=True)
            pins |= set(list(dict.fromkeys(item.version for item in good))[: self._settings.keep])
        promoted = [verdict for verdict in self._verdicts.values() if verdict.decision == "promote"]
        if promoted:
            pins.add(max(promoted, key=lambda verdict: verdict.created).version)
        if pins != self._pins:
            await anyio.to_thread.run_sync(write_pins, self._versions, frozenset(pins))
            self._pins = pins

    async def _converge(self, name: str, engine: Engine) -> list[Serving]:
        events: list[Serving] = []
        if name not in self._collected:
            report = await self._runner.collect(name)
            self._collected.add(name)
            if report is not None and not self._booked(name, report):
                _log.info("swap_collected", engine=name, version=report.version, result=report.result)
                previous = self._current(name, self._servings.values())
                path = str(self._directory(report.version))
                events.append(self._reported(name, report, previous=previous, path=path, why="collected"))
        with anyio.fail_after(self._settings.engine_timeout):
            version = await engine.version()
        known = [*self._servings.values(), *events]
        want = goal(
            name, self._verdicts.values(), self._directives.values(), known,
            frozen=self._frozen, attempts=self._settings.attempts,
        )  # fmt: skip
        last = self._current(name, known)
        if want is None:
            if last >= 0:
                return events  # everything that ever served was rolled back: it stays, a person must look
            # What the engine came up with is where everything starts from.
            return [*events, self._event(name, "started", max(version, 0), previous=-1)]
        if version != want.version:
            return [*events, await self._swap(name, want, version)]
        if last != version:
            events.append(self._event(name, "swapped", version, previous=last, path=want.path, reason="found"))
        return events

    async def _swap(self, name: str, want: Goal, version: int) -> Serving:
        path = Path(want.path)
        _log.info("swap_started", engine=name, version=want.version, previous=version, why=want.why)
        # Until a report is in hand, a child of ours may be at it: the next look collects it before anything else.
        self._collected.discard(name)
        try:
            with anyio.fail_after(self._settings.swap_timeout):
                report = await self._runner.swap(
                    name, path, want.version, manifest=want.manifest, last_good=self._directory(version),
                    last_version=max(version, 0),
                )  # fmt: skip
        except CheckpointRefused as error:
            report = SwapReport(result="refused", version=want.version, reason=str(error))
        except SwapFailed as error:
            report = SwapReport(result="rolled_back", version=want.version, reason=str(error))
        self._collected.add(name)
        return self._reported(name, report, previous=version, path=want.path, why=want.why)

    def _current(self, name: str, known: Iterable[Serving]) -> int:
        """What the books say that engine `name` serves, -1 if nothing."""
        mine = [item for item in known if item.engine == name and item.result in ("started", "swapped")]
        return max(mine, key=_since).version if mine else -1

    def _booked(self, name: str, report: SwapReport) -> bool:
        """Whether what a child left behind is in the books already: the daemon died after it had read the report."""
        return any(
            item.engine == name and item.version == report.version and item.result == report.result
            and item.since >= report.finished > 0
            for item in self._servings.values()
        )  # fmt: skip

    def _reported(self, name: str, report: SwapReport, *, previous: int, path: str, why: str) -> Serving:
        log = _log.info if report.result == "swapped" else _log.error
        log(
            "swap_done", engine=name, version=report.version, result=report.result, reason=report.reason,
            paused_seconds=round(report.paused_seconds, 4), total_seconds=round(report.total_seconds, 4),
        )  # fmt: skip
        return self._event(
            name, report.result, report.version, previous=previous, path=path, reason=report.reason or why,
            paused=report.paused_seconds, total=report.total_seconds,
        )  # fmt: skip

    def _event(
        self,
        name: str,
        result: Literal["started", "swapped", "refused", "rolled_back"],
        version: int,
        *,
        previous: int,
        path: str = "",
        reason: str = "",
        paused: float = 0.0,
        total: float = 0.0,
    ) -> Serving:
        now = self._clock()
        return Serving(
            id=derived_id("serving", name, version, result, now),
            engine=name,
            version=version,
            previous=previous,
            path=path or str(self._directory(version)),
            result=result,
            since=now,
            paused_seconds=paused,
            total_seconds=total,
            reason=reason,
        )

    def _directory(self, version: int) -> Path:
        return self._versions / f"v{max(version, 0):06d}"


def write_pins(versions: Path, pins: frozenset[int]) -> None:
    """Replace `<versions>/pinned`: the numbers that must not be deleted, one a line."""
    versions.mkdir(parents=True, exist_ok=True)
    aside = versions / ".pinned.new"
    with aside.open("w") as file:
        file.write("".join(f"{pin}\n" for pin in sorted(pins)))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(versions / "pinned")


def _since(serving: Serving) -> float:
    return serving.since
