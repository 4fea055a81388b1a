"""The gatekeeper: owns the weights of the shadow engine, and decides which candidate may serve.

    policy.candidate  ->  shadow engine  ->  policy.verdict, policy.directive

Every candidate goes into the shadow engine at once (the newest, if several wait): the rollouts run there. Every few
versions, or after some time, the newest is tried against what serves (`panel`) and gets a signed verdict. Missing
evidence is none: the candidate waits. What is rejected, held to the end, or judged by nobody for too long while nothing
newer comes, sends the learner back to what serves (`rebase`), and what came of it is rejected untried.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec
import structlog

from actors.gate.sandbox_trial import Comparison, Trial
from actors.messages import MANIFEST, Candidate, Directive, Lineage, Message, Serving, Verdict, derived_id
from actors.messages.lineage import REMEMBERED
from actors.messages.signing import SigningKey, sign
from actors.ports.engines import Engine
from actors.ports.errors import CheckpointRefused, EngineError
from actors.ports.store import SwapRunner
from actors.store import Store
from actors.system.actor import Actor, Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import POLICY_CANDIDATE, POLICY_DIRECTIVE, POLICY_VERDICT
from actors.versions.desired_state import number
from actors.versions.version_timeline import VersionTimeline

_log = structlog.get_logger(__name__)
_REFUSED = "refused"
"""Measurement of a candidate that the shadow engine did not take."""
_LINE = "abandoned_ancestor"
"""Measurement of a candidate that was not tried: the version of its line that was rolled back or given up."""
_ENDED = {"rollback": "rolled back", "rebase": "given up"}
"""Directives that end a branch."""
_PATIENCE = 3600.0
"""Seconds that a candidate may be without a final verdict while nothing newer comes; then it gives way. What was
promoted and waits to serve is waited for, however long that takes."""
_HOLDS = 4
"""Verdicts of one candidate at most, each on more evidence than the one before; then the learner goes back to what
serves: 512 tasks in all."""
_LOAD_SECONDS = 120.0
"""To put a version into the shadow engine, from its disk."""
_ENGINE_SECONDS = 10.0
"""That the shadow engine has to say which version it has."""


class Waiting(msgspec.Struct, frozen=True):
    """What a verdict waits for."""

    version: int
    since: float
    """Unix seconds."""
    reason: str
    have: int = 0
    """Pieces of evidence."""
    need: int = 0
    """0: it is not evidence that is waited for."""
    gives_way: bool = False
    """Another candidate, a smaller step, may be judged sooner."""


class Gatekeeper(Actor):
    """Actor: candidates in, verdicts and orders to go back out."""

    name = "gatekeeper"
    inputs = (POLICY_CANDIDATE,)
    batch = 64

    def __init__(
        self,
        *,
        store: Store,
        shadow: Engine,
        shadow_name: str,
        runner: SwapRunner,
        trial: Trial,
        versions: Path,
        key: SigningKey,
        clock: Callable[[], float],
        gate_every: int = 4,
        gate_seconds: float = 60.0,
        tick_seconds: float = 5.0,
        times: VersionTimeline | None = None,
        loaded: Callable[[int], None] = lambda version: None,
    ) -> None:
        """
        Args:
            shadow_name: the name that `runner` knows the shadow engine by.
            versions: directory that holds the version directories `v<NNNNNN>`.
            key: signs verdicts.
            gate_every: versions from one verdict to the next.
            gate_seconds: after the last verdict, when the newest candidate is judged even if fewer versions came, and
                when one that was held is judged again.
            tick_seconds: between two looks at the shadow engine and the clock.
            times: told what the shadow engine has.
            loaded: told each version that the shadow engine took; the rollout waits for it.
        """
        self._store, self._shadow, self._shadow_name = store, shadow, shadow_name
        self._gate_every, self._gate_seconds, self.tick_seconds = gate_every, gate_seconds, tick_seconds
        self._runner, self._trial, self._versions, self._key = runner, trial, versions, key
        self._clock, self._loaded = clock, loaded
        self._times = times or VersionTimeline(clock)
        self._newest: Candidate | None = None
        """What the shadow engine should have: where the learner stands."""
        self._last: Verdict | None = None
        self._attempts = 0
        """Verdicts about the newest candidate that was judged."""
        self._since = self._asked = 0.0
        self._lineage = Lineage()
        self._sent: tuple[str, int] = ("", -1)
        """The last order to go back: from which candidate, to where."""
        self.waiting: Waiting | None = None
        """What the next verdict waits for; None: for a candidate."""
        self.counts: Counter[str] = Counter()
        """Since this object was made: skipped (never loaded, a newer one had come), abandoned (of a branch that was
        left), rebased (orders to go back), waited (looks without enough evidence)."""

    @property
    def until(self) -> float | None:
        """Unix seconds when the newest candidate gives way if nobody judges it; None: it does not, or there is none."""
        newest, last = self._newest, self._last
        if newest is None or newest.answer == "went_back" or (self.waiting is not None and not self.waiting.gives_way):
            return None
        judged = last is not None and last.manifest == newest.manifest
        return (last.created if judged and last is not None else newest.created) + _PATIENCE

    async def start(self) -> None:
        verdicts = await self._store.newest(Verdict, 100)
        refused = {verdict.manifest for verdict in verdicts if _REFUSED in verdict.measurements}
        candidates = await self._store.newest(Candidate, REMEMBERED)
        self._lineage = Lineage((item.version, item.parent) for item in candidates)
        head = await self._store.head()
        self._newest = head if head is not None and head.manifest not in refused else None
        self._last = verdicts[0] if verdicts else None
        self._attempts = sum(1 for verdict in verdicts if self._last and verdict.manifest == self._last.manifest)
        self._since = self._clock()
        self._asked, self._sent, self.waiting = 0.0, ("", -1), None

    async def handle(self, batch: Sequence[Received]) -> Result:
        heard = [received.message for received in batch if isinstance(received.message, Candidate)]
        moves = [candidate for candidate in heard if candidate.answer in ("trained", "went_back")]
        for candidate in moves:
            self._lineage.add(candidate.version, candidate.parent)
        newest = max(moves, key=lambda candidate: (candidate.created, candidate.version), default=None)
        if newest is None or (self._newest is not None and newest.created < self._newest.created):
            self.counts["skipped"] += len(moves)
            return Result(list(heard))
        self.counts["skipped"] += len(moves) - 1
        condemned = await self._condemned(newest) if newest.answer == "trained" else None
        if condemned is not None:
            # It is not even loaded: the rollouts would go on from what was refused.
            self.counts["abandoned"] += 1
            return await self._decided(newest, condemned, heard)
        problem = await self._put(newest.version, Path(newest.path), newest.manifest)
        if problem:
            return await self._decided(newest, Comparison("reject", problem, {_REFUSED: 1.0}), heard)
        self._newest, self.waiting = newest, None
        self._loaded(newest.version)
        judged = self._last.version if self._last is not None else 0
        early = abs(newest.version - judged) < self._gate_every and not self._overdue()
        if newest.answer == "went_back" or early or await self._pending(newest):
            return Result(list(heard))
        return await self._look(newest, heard)

    async def tick(self) -> Result:
        newest = self._newest
        if newest is None:
            await self._begin()
            return Result()
        await self._refresh(newest)
        if self._newest is None:
            return Result()
        if newest.answer == "went_back":
            return await self._follow(newest)
        if not self._open(newest):
            return await self._settle(newest)
        if not self._overdue() or await self._pending(newest):
            return Result()
        looked = await self._look(newest)
        return looked if looked.outputs else await self._settle(newest)

    async def _pending(self, candidate: Candidate) -> bool:
        """Whether another version was promoted and does not serve yet: a step is measured from what serves, and one
        that waits for another's trial to end may never do so."""
        awaited = await self._awaited()
        if awaited is None or awaited.manifest == candidate.manifest:
            return False
        told = self.waiting
        since = told.since if told is not None and told.version == candidate.version else self._clock()
        reason = f"v{awaited.version} was promoted and waits to serve; the next verdict is against it"
        self.waiting = Waiting(candidate.version, since, reason)
        return True

    async def _awaited(self) -> Verdict | None:
        """The promotion that the swapper has neither carried out nor given up yet."""
        last = self._last
        if last is None or last.decision != "promote":
            return None
        servings = await self._store.newest(Serving, 1)
        if servings and servings[0].since >= last.created:
            return None
        # What waits for a trial is dropped with it.
        orders = await self._store.newest(Directive, REMEMBERED)
        return None if any(one.kind == "rollback" and one.created >= last.created for one in orders) else last

    async def _look(self, candidate: Candidate, heard: Sequence[Message] = ()) -> Result:
        """Judge `candidate`, if there is enough to judge it by."""
        self._asked = self._clock()
        comparison = await self._compare(candidate)
        if comparison.decision != "wait":
            return await self._decided(candidate, comparison, heard)
        self.counts["waited"] += 1
        told, figures = self.waiting, comparison.measurements
        if told is None or told.reason != comparison.reason:
            _log.info("verdict_waits", version=candidate.version, reason=comparison.reason)
        since = told.since if told is not None and told.version == candidate.version else self._clock()
        have, need = int(figures.get("evidence", 0)), int(figures.get("evidence_needed", 0))
        self.waiting = Waiting(
            candidate.version, since, comparison.reason, have, need, gives_way=comparison.gives_way
        )  # fmt: skip
        return Result(list(heard))

    async def _decided(self, candidate: Candidate, comparison: Comparison, heard: Sequence[Message] = ()) -> Result:
        """The verdict, and the order to go back if it ends the branch."""
        incumbent = await self._incumbent()
        verdict = self._verdict(candidate, incumbent, comparison)
        self.waiting = None
        self.counts[verdict.decision] += 1
        back = (
            self._back(candidate, incumbent, f"v{candidate.version}: {verdict.reason}") if self._ends(verdict) else []
        )
        outputs = [Output(POLICY_VERDICT, verdict), *(Output(POLICY_DIRECTIVE, order) for order in back)]
        return Result([*heard, verdict, *back], outputs)

    def _ends(self, verdict: Verdict) -> bool:
        """Whether the learner must not go on from what was judged."""
        held = verdict.decision == "hold" and self._attempts >= _HOLDS
        return verdict.decision == "reject" or held

    async def _follow(self, head: Candidate) -> Result:
        """The learner went back, and something else serves since that it does not come of: go on from there."""
        serves = await self._incumbent()
        if serves in self._lineage.line(head.version) or await self._awaited() is not None:
            return Result()
        back = self._back(head, serves, f"v{serves} serves, which v{head.version} does not come of", follow="yes")
        return Result(back, [Output(POLICY_DIRECTIVE, order) for order in back])

    async def _settle(self, newest: Candidate) -> Result:
        """Nothing newer comes, and `newest` is judged for good, or was not within its time: go back to what serves."""
        incumbent, last, now = await self._incumbent(), self._last, self._clock()
        judged = last is not None and last.manifest == newest.manifest
        since = last.created if judged and last is not None else newest.created
        ended = judged and last is not None and self._ends(last)
        waiting = self.waiting
        # Where there is too little to judge anything by, another candidate would only wait in its place.
        patient = waiting is not None and not waiting.gives_way and not judged
        if incumbent == newest.version or patient or not (ended or now - since >= _PATIENCE):
            return Result()
        if await self._awaited() is not None:
            return Result()
        reason = last.reason if judged and last is not None else waiting.reason if waiting is not None else "not judged"
        back = self._back(newest, incumbent, f"v{newest.version} gives way after {now - since:.0f} s: {reason}")
        return Result(back, [Output(POLICY_DIRECTIVE, order) for order in back])

    def _back(self, bad: Candidate, to: int, reason: str, **details: str) -> list[Directive]:
        """The order to the learner to go on from `to`; none if it has it."""
        if to == bad.version or self._sent == (bad.id, to):
            return []
        self._sent = (bad.id, to)
        self.counts["rebased"] += 1
        _log.warning("learner_sent_back", version=bad.version, to=to, reason=reason)
        order = Directive(
            # The learner may stand at one version several times, and then be told each time.
            id=derived_id("rebase", bad.id, bad.manifest, to),
            kind="rebase",
            reason=reason,
            origin=self.name,
            created=self._clock(),
            details={"version": str(bad.version), "to": str(to), **details},
        )
        return [order]

    def _overdue(self) -> bool:
        last = self._last.created if self._last is not None else self._since
        # A time that lies before us was told by a clock that has been put back since.
        return not 0.0 <= self._clock() - max(last, self._asked) < self._gate_seconds

    def _open(self, candidate: Candidate) -> bool:
        """Whether `candidate` has no final verdict yet."""
        if self._last is None or self._last.manifest != candidate.manifest:
            return True
        return self._last.decision == "hold" and self._attempts < _HOLDS

    async def _begin(self) -> None:
        """Before the first candidate, load version 0 into an engine whose label says nothing (a vLLM comes up with
        "default"): what it plays would be of unknown version, nothing could be trained on it, and no candidate come."""
        path = self._versions / "v000000"
        if await self._version() >= 0 or not (path / MANIFEST).exists():
            return
        if not await self._put(0, path):
            self._loaded(0)

    async def _version(self) -> int:
        """What the shadow has; -1 if nobody knows, as of one that a swap left paused: its weights may be half loaded,
        and another swap resumes it."""
        asked = self._clock()
        try:
            with anyio.fail_after(_ENGINE_SECONDS):
                version, paused = await self._shadow.version(), await self._shadow.is_paused()
            if paused:
                _log.warning("shadow_found_paused", engine=self._shadow_name, version=version)
                self._times.lost(self._shadow_name)
                return -1
            self._times.seen(self._shadow_name, version, asked)
            return version
        except (EngineError, TimeoutError) as error:
            self._times.lost(self._shadow_name)
            raise DependencyUnavailable(f"shadow engine: {type(error).__name__}: {error}") from error

    async def _refresh(self, newest: Candidate) -> None:
        """Bring a shadow engine that has other weights than it should (it was restarted) up to date."""
        version = await self._version()
        if version != newest.version:
            _log.info("shadow_behind", version=version, wanted=newest.version)
            problem = await self._put(newest.version, Path(newest.path), newest.manifest)
            if problem:
                self._newest = None  # its directory is gone or broken; the next candidate brings the shadow up to date
                return
            self._loaded(newest.version)

    async def _put(self, version: int, path: Path, manifest: str = "") -> str:
        """Load a version into the shadow engine; why it was refused, empty if it was not. `manifest` is the
        sha256 that its manifest must have, empty for any that the learner signed."""
        self._times.swapping(self._shadow_name)
        try:
            with anyio.fail_after(_LOAD_SECONDS):
                report = await self._runner.swap(self._shadow_name, path, version, manifest=manifest)
        except CheckpointRefused as error:
            return str(error)
        except (EngineError, TimeoutError) as error:
            raise DependencyUnavailable(f"shadow engine: {type(error).__name__}: {error}") from error
        if report.result == "swapped":
            self._times.seen(self._shadow_name, version, self._clock())
            _log.info("shadow_loaded", version=version, seconds=round(report.total_seconds, 3))
            return ""
        _log.error("candidate_refused", version=version, result=report.result, reason=report.reason)
        return report.reason or report.result

    async def _load(self, version: int) -> None:
        problem = await self._put(version, self._versions / f"v{version:06d}")
        if problem:
            raise DependencyUnavailable(f"version {version} cannot be loaded again: {problem}")

    async def _compare(self, candidate: Candidate) -> Comparison:
        condemned = await self._condemned(candidate)
        if condemned is not None:
            return condemned
        incumbent, served = await self._incumbent(), await self._served()
        measured = await self._trial.compare(candidate.version, incumbent, served, self._load)
        # Trials take minutes: the rollback may have come meanwhile, or an order that brought in something else.
        condemned, serves = await self._condemned(candidate), await self._incumbent()
        if condemned is None and serves != incumbent:
            return Comparison("wait", f"v{serves} serves since v{incumbent} was compared with", {})
        return condemned or measured

    async def _condemned(self, candidate: Candidate) -> Comparison | None:
        """A rejection if `candidate`, or a version between it and what serves, was rolled back or given up."""
        incumbent, since = await self._serves()
        orders = await self._store.newest(Directive, REMEMBERED)
        ended = [order for order in reversed(orders) if order.kind in _ENDED and "follow" not in order.details]
        bad = {number(order, "version"): order for order in ended}
        for version in self._lineage.line(candidate.version):
            order = bad.get(version)
            # What an operator brought back since serves, and so may what comes of it.
            if order is not None and not (version == incumbent and since > order.created):
                reason = f"comes of v{version}, which was {_ENDED[order.kind]}"
                return Comparison("reject", reason, {_LINE: float(version)})
            if version == incumbent:
                return None
        return None

    def _verdict(self, candidate: Candidate, incumbent: int, comparison: Comparison) -> Verdict:
        assert comparison.decision != "wait"
        now = self._clock()
        same = self._last is not None and self._last.manifest == candidate.manifest
        self._attempts = self._attempts + 1 if same else 1
        verdict = Verdict(
            id=derived_id("verdict", candidate.version, candidate.manifest, self._attempts, now),
            version=candidate.version,
            path=candidate.path,
            manifest=candidate.manifest,
            incumbent=incumbent,
            decision=comparison.decision,
            reason=comparison.reason,
            measurements=comparison.measurements,
            created=now,
        )
        self._last = sign(verdict, self._key)
        _log.info(
            "verdict", version=candidate.version, incumbent=incumbent, decision=comparison.decision,
            reason=comparison.reason,
        )  # fmt: skip
        return self._last

    async def _servings(self) -> list[Serving]:
        servings = await self._store.newest(Serving, 1000)
        return [item for item in servings if item.result in ("started", "swapped") and item.engine != self._shadow_name]

    async def _incumbent(self) -> int:
        return (await self._serves())[0]

    async def _serves(self) -> tuple[int, float]:
        """What serves, and since when."""
        good = await self._servings()
        return (good[0].version, good[0].since) if good else (0, 0.0)

    async def _served(self) -> list[int]:
        """Versions that have served, of which the weights are still there: nothing can be compared with the others."""
        there = {int(path.parent.name[1:]) for path in self._versions.glob(f"v[0-9]*/{MANIFEST}")}
        return sorted({item.version for item in await self._servings()} & there)
