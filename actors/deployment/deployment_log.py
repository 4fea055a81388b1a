"""The swapper's books: what was decided and what served, as records, and new records for what is done.

Kept in memory, bounded, and rebuilt from the store; nothing is decided here but whose word counts. Of what a plan goes
by the newest of each kind are remembered, so that a thousand rejections push out no promotion.
"""

from collections.abc import Callable, Collection
from math import inf
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from prometheus_client import Histogram

from actors.deployment.pinned_versions import aged
from actors.messages import Directive, Serving, ServingResult, Verdict, concerns, derived_id
from actors.messages.signing import PublicKeys, record_problem
from actors.ports.store import SwapReport
from actors.store import Store
from actors.versions.desired_state import FORWARD, Plan, plan, when

_log = structlog.get_logger(__name__)
E = TypeVar("E", Verdict, Directive, Serving)
_REMEMBERED = 1000
"""Of promotions, of orders, of drifts, and of what each engine served."""
_ORDERS = ("promote", "roll_on", "rollback")
_TURNS = ("freeze", "thaw")
_PAUSE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class DeploymentLog:
    """Verdicts, directives and servings of the engines that serve."""

    def __init__(
        self, engines: Collection[str], *, versions: Path, keys: PublicKeys, clock: Callable[[], float]
    ) -> None:
        """
        Args:
            engines: names of those that serve users.
            versions: directory that holds the version directories `v<NNNNNN>`.
            keys: that verdicts and orders must be signed with.
        """
        self._engines, self._versions, self._keys, self._clock = engines, versions, keys, clock
        self._forget()
        self.unsigned = 0
        """Verdicts and orders that were not signed, or were changed since."""
        self.pauses = Histogram(
            "evolved_swap_paused_seconds", "Time that an engine took no new request for, by swap.", ["engine"],
            registry=None, buckets=_PAUSE_SECONDS,
        )  # fmt: skip
        for name in engines:
            self.pauses.labels(name)

    def _forget(self) -> None:
        self._promoted: dict[str, Verdict] = {}
        self._orders: dict[str, Directive] = {}
        self._drifts: dict[str, Directive] = {}
        self._servings: dict[str, dict[str, Serving]] = {name: {} for name in self._engines}
        """By engine."""
        self.frozen = False
        """The last freeze or thaw was a freeze."""
        self._turned = 0.0

    async def open(self, store: Store) -> None:
        """Read everything anew."""
        self._forget()
        for verdict in reversed(await store.newest(Verdict, _REMEMBERED, kinds=("promote",))):
            self.hear(verdict)
        for kinds, most in ((_ORDERS, _REMEMBERED), (("drift",), _REMEMBERED), (_TURNS, 1)):
            for directive in reversed(await store.newest(Directive, most, kinds=kinds)):
                self.hear(directive)
        for name in self._engines:
            for serving in reversed(await store.newest(Serving, _REMEMBERED, engine=name)):
                self.book(serving)

    def hear(self, message: Verdict | Directive) -> None:
        """Take in what was decided, if it is whose it says.

        Whoever can write to the broker but has no key can make us stop or go back, and bring nothing in.
        """
        if isinstance(message, Verdict) or message.kind in FORWARD:
            problem = record_problem(message, self._keys)
            if problem:
                self.unsigned += 1
                kind = "verdict" if isinstance(message, Verdict) else message.kind
                _log.error("not_signed", kind=kind, id=message.id, version=_version(message), reason=problem)
                return
        if isinstance(message, Verdict):
            if message.decision == "promote":
                _keep(self._promoted, message)
        elif message.kind in _ORDERS:
            _keep(self._orders, message)
        elif message.kind == "drift":
            _keep(self._drifts, message)
        elif message.kind in _TURNS and message.created >= self._turned:
            self._turned, self.frozen = message.created, message.kind == "freeze"

    def drifted(self, agent: str) -> float:
        """When the world of `agent` was last seen to change, unix seconds; 0 if it never was."""
        drifts = self._drifts.values()
        return max((item.created for item in drifts if concerns(item.details, agent)), default=0.0)

    def book(self, serving: Serving) -> None:
        """Take in what was done."""
        _keep(self._servings.setdefault(serving.engine, {}), serving)

    def plan(self, *, frozen: bool, kept: Collection[int] | None = None) -> Plan:
        """What should serve; see `desired_state.plan`."""
        books = [self._promoted.values(), self._orders.values(), *(one.values() for one in self._servings.values())]
        # A promotion without the end of its trial, or the other way round, would tell another story: where one of the
        # books begins in the middle, all begin there.
        since = max((min(map(when, book)) for book in books if len(book) >= _REMEMBERED), default=0.0)
        events = [event for book in books for event in book if when(event) >= since]
        return plan(self._engines, events, frozen=frozen, kept=kept)

    def good(self, name: str) -> list[Serving]:
        """What engine `name` served, the latest first."""
        good = [item for item in self._servings.get(name, {}).values() if item.result in ("started", "swapped")]
        return sorted(good, key=lambda item: item.since, reverse=True)

    def first_served(self, version: int) -> float:
        """Unix seconds when the first engine took `version` that has it in the books; 0 if none has."""
        good = (item for name in self._engines for item in self.good(name))
        return min((item.since for item in good if item.version == version), default=0.0)

    def served_since(self, version: int, until: float) -> float:
        """Since when the only engine had served `version`, and nothing else, at `until`; infinity if it had not."""
        since = inf
        for item in (item for name in self._engines for item in self.good(name) if item.since < until):
            if item.version != version:
                break
            since = item.since
        return since

    async def first(self, name: str, version: int) -> int:
        """The version that everything starts from, where engine `name` came up labelled `version`.

        A label whose version is not here was given by an installation that is gone: the learner would take runs under
        it for ones from the future.
        """
        if version <= 0 or await anyio.to_thread.run_sync(self.directory(version).is_dir):
            return max(version, 0)
        _log.warning("engine_has_another_line", engine=name, version=version, remedy="v0 is loaded")
        return 0

    def current(self, name: str) -> int:
        """What engine `name` serves, as far as is written; -1 if nothing."""
        return self.good(name)[0].version if self.good(name) else -1

    def pins(self, wanted: Plan, keep: int, kept: Collection[int] = ()) -> tuple[frozenset[int], frozenset[int]]:
        """Versions that must stay on disk: what serves, the `keep` an engine that one would go back to and some before
        them, and what was promoted and is on its way; and those of them that serve, are stable or are on trial, which
        learning may have to go on from.

        Args:
            kept: what stayed until now.
        """
        trial = None if wanted.trial is None else wanted.trial.goal
        serving = {goal.version for goal in (wanted.stable, trial) if goal is not None}
        serving |= {self.current(name) for name in self._engines} - {-1}
        pins = {*serving} if wanted.waiting is None else {*serving, wanted.waiting.version}
        for name in self._engines:
            served = {item.version: item.since for item in reversed(self.good(name))}
            pins |= {*list(dict.fromkeys(item.version for item in self.good(name)))[:keep]}
            pins |= aged(list(served.items()), kept, self._clock())
        if self._promoted:
            pins.add(max(self._promoted.values(), key=when).version)
        return frozenset(pins), frozenset(serving)

    def booked(self, name: str, report: SwapReport) -> bool:
        """Whether what a child left behind is written already: the daemon died after it had read the report."""
        return any(
            item.version == report.version and item.result == report.result and item.since >= report.finished > 0
            for item in self._servings.get(name, {}).values()
        )  # fmt: skip

    def report(self, name: str, report: SwapReport, *, previous: int, why: str, path: str = "") -> Serving:
        """The record of a swap."""
        if report.paused_seconds > 0:
            self.pauses.labels(name).observe(report.paused_seconds)
        log = _log.info if report.result == "swapped" else _log.error
        log(
            "swap_done", engine=name, version=report.version, result=report.result, reason=report.reason,
            paused_seconds=round(report.paused_seconds, 4), total_seconds=round(report.total_seconds, 4),
        )  # fmt: skip
        return self.record(
            name, report.result, report.version, previous=previous, path=path, reason=report.reason or why,
            paused=report.paused_seconds, total=report.total_seconds,
        )  # fmt: skip

    def record(
        self,
        name: str,
        result: ServingResult,
        version: int,
        *,
        previous: int,
        path: str = "",
        reason: str = "",
        paused: float = 0.0,
        total: float = 0.0,
    ) -> Serving:
        """A record of now; not yet booked."""
        now = self._clock()
        return Serving(
            id=derived_id("serving", name, version, result, now),
            engine=name,
            version=version,
            previous=previous,
            path=path or str(self.directory(version)),
            result=result,
            since=now,
            paused_seconds=paused,
            total_seconds=total,
            reason=reason,
        )

    def directory(self, version: int) -> Path:
        """Where a version lies."""
        return self._versions / f"v{max(version, 0):06d}"


def _keep(book: dict[str, E], event: E) -> None:
    """Write `event` into a book; the oldest goes."""
    book[event.id] = event
    if len(book) > _REMEMBERED:
        del book[min(book, key=lambda key: when(book[key]))]


def _version(message: Verdict | Directive) -> str:
    return str(message.version) if isinstance(message, Verdict) else message.details.get("version", "")
