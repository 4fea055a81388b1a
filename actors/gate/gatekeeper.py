"""The gatekeeper: owns the weights of the shadow engine, and decides which candidate may serve.

    policy.candidate  ->  shadow engine  ->  policy.verdict, policy.directive

Every candidate goes into the shadow engine at once (the newest, if several wait): the rollouts run there. Every few
versions, or after some time, the newest is tried against what serves (`panel`) and gets a signed verdict. Until then,
and while it is held, it is open: missing evidence is no verdict. If it is refused, or nobody could judge it for too
long while nothing newer comes, the learner starts again from what serves (`rebase`), and anything trained from it is
refused untried.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec
import structlog

from actors.gate.panel import Comparison, Trial
from actors.gate.standing import ENDS, Standing
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
from actors.versions.version_timeline import VersionTimeline

_log = structlog.get_logger(__name__)
_REFUSED = "refused"
"""Measurement of a candidate that the shadow engine did not take."""
_PATIENCE = 3600.0
"""Seconds that a candidate may be without a final verdict while nothing newer comes; then it gives way. They run while
nothing that was promoted waits to serve and the shadow engine answers."""
_HOLDS = 4
"""Verdicts of one candidate at most, each on more evidence than the one before; then the learner goes back to what
serves: 512 tasks in all."""
_VERDICTS, _SERVINGS = 100, 1000
"""Newest records that are read."""
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
        self._verdicts: list[Verdict] = []
        """The newest first."""
        self._measured = 0.0, 0
        """When a candidate was last measured, and which."""
        self._started = False
        self._stopped = 0.0
        """When it was last seen that nobody could judge the newest candidate, for no fault of its own."""
        self._lineage = Lineage()
        self.waiting: Waiting | None = None
        """What the next verdict waits for; None: for a candidate."""
        self.counts: Counter[str] = Counter()
        """Since this object was made: skipped (never loaded, a newer one had come), abandoned (of a branch that was
        left), rebased (orders to go back), waited (looks without enough evidence)."""

    @property
    def until(self) -> float | None:
        """Unix seconds when the newest candidate gives way if nobody judges it; None: it does not, or there is none."""
        newest, waiting = self._newest, self.waiting
        if newest is None or newest.answer == "went_back":
            return None
        judged = [verdict.created for verdict in self._about(newest)[:1]]
        # Where there is too little to judge anything by, another candidate would only wait in its place.
        if not judged and waiting is not None and not waiting.gives_way:
            return None
        return max(newest.created, self._stopped, *judged) + _PATIENCE

    async def start(self) -> None:
        if self._started:  # an engine was away, or what else it was
            self._stopped = self._clock()
        self._started = True
        self._verdicts = await self._store.newest(Verdict, _VERDICTS)
        refused = {verdict.manifest for verdict in self._verdicts if _REFUSED in verdict.measurements}
        candidates = await self._store.newest(Candidate, REMEMBERED)
        self._lineage = Lineage((item.version, item.parent) for item in candidates)
        head = await self._store.head()
        self._newest = head if head is not None and head.manifest not in refused else None
        last = self._verdicts[0] if self._verdicts else None
        self._measured = (last.created, last.version) if last is not None else (self._clock(), 0)
        self.waiting = None

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
        standing, refused = await self._standing(), None
        if newest.answer == "trained":
            refused = standing.condemned(self._lineage.line(newest.version))
        if refused is not None:
            # It is not even loaded: the rollouts would go on from what was refused.
            self.counts["abandoned"] += 1
        elif problem := await self._put(newest.version, Path(newest.path), newest.manifest):
            refused = Comparison("reject", problem, {_REFUSED: 1.0})
        if refused is not None:
            return self._decided(newest, refused, standing, heard)
        self._newest, self.waiting = newest, None
        self._loaded(newest.version)
        return await self._go_on(newest, heard)

    async def tick(self) -> Result:
        await self._refresh()
        return await self._go_on(self._newest) if self._newest is not None else Result()

    async def _go_on(self, head: Candidate, heard: Sequence[Message] = ()) -> Result:
        """Judge where the learner stands, if it is open, due, and there is enough to judge it by; else see whether the
        learner must leave it."""
        judged = head.answer == "went_back" or self._final(head)
        if not judged and not self._due(head):
            return Result(list(heard))
        standing = await self._standing()
        if not judged:
            comparison, standing = await self._compare(head, standing)
            if comparison.decision != "wait":
                return self._decided(head, comparison, standing, heard)
            self._wait(head, comparison)
        left = self._settle(head, standing)
        return Result([*heard, *left.records], left.outputs)

    def _due(self, candidate: Candidate) -> bool:
        at, version = self._measured
        # A time that lies before us was told by a clock that has been put back since.
        soon = 0.0 <= self._clock() - at < self._gate_seconds
        return not soon or abs(candidate.version - version) >= self._gate_every

    async def _compare(self, candidate: Candidate, before: Standing) -> tuple[Comparison, Standing]:
        """What came of measuring `candidate`, and the books afterwards."""
        line, awaited = self._lineage.line(candidate.version), before.awaited
        if awaited is not None and awaited.manifest != candidate.manifest:
            # A step is measured from what serves, and one that waits for another's trial to end may never do so.
            reason = f"v{awaited.version} was promoted and waits to serve; the next verdict is against it"
            return Comparison("wait", reason, {}), before
        condemned = before.condemned(line)
        if condemned is not None:
            return condemned, before
        there = {int(path.parent.name[1:]) for path in self._versions.glob(f"v[0-9]*/{MANIFEST}")}
        # Nothing can be compared with those whose weights are gone.
        served = sorted({item.version for item in before.served} & there)
        measured = await self._trial.compare(candidate.version, before.serves, served, self._load)
        self._measured = self._clock(), candidate.version
        self.counts["waited"] += measured.decision == "wait"
        # Trials take minutes: the rollback may have come meanwhile, or an order that brought in something else.
        after = await self._standing()
        condemned = after.condemned(line)
        if condemned is None and after.serves != before.serves:
            measured = Comparison("wait", f"v{after.serves} serves since v{before.serves} was compared with", {})
        return condemned or measured, after

    def _wait(self, candidate: Candidate, comparison: Comparison) -> None:
        told, figures = self.waiting, comparison.measurements
        if told is None or told.reason != comparison.reason:
            _log.info("verdict_waits", version=candidate.version, reason=comparison.reason)
        since = told.since if told is not None and told.version == candidate.version else self._clock()
        have, need = int(figures.get("evidence", 0)), int(figures.get("evidence_needed", 0))
        self.waiting = Waiting(
            candidate.version, since, comparison.reason, have, need, gives_way=comparison.gives_way
        )  # fmt: skip

    def _decided(
        self, candidate: Candidate, comparison: Comparison, standing: Standing, heard: Sequence[Message] = ()
    ) -> Result:
        """The verdict, and the order to go back if it ends the branch."""
        assert comparison.decision != "wait"
        now, number = self._clock(), len(self._about(candidate)) + 1
        verdict = Verdict(
            id=derived_id("verdict", candidate.version, candidate.manifest, number, now),
            version=candidate.version,
            path=candidate.path,
            manifest=candidate.manifest,
            incumbent=standing.serves,
            decision=comparison.decision,
            reason=comparison.reason,
            measurements=comparison.measurements,
            created=now,
        )
        verdict = sign(verdict, self._key)
        _log.info(
            "verdict", version=candidate.version, incumbent=standing.serves, decision=verdict.decision,
            reason=verdict.reason,
        )  # fmt: skip
        self._verdicts = [verdict, *self._verdicts[: _VERDICTS - 1]]
        self.waiting = None
        self.counts[verdict.decision] += 1
        ended = verdict.decision != "promote" and self._final(candidate)
        back = self._back(candidate, standing, f"v{candidate.version}: {verdict.reason}") if ended else Result()
        return Result([*heard, verdict, *back.records], [Output(POLICY_VERDICT, verdict), *back.outputs])

    def _settle(self, head: Candidate, standing: Standing) -> Result:
        """Nothing newer comes: go back to what serves if `head` was refused, or not judged within its time."""
        if standing.awaited is not None:
            self._stopped = self._clock()
            return Result()
        if head.answer == "went_back":
            if standing.serves in self._lineage.line(head.version):
                return Result()
            reason = f"v{standing.serves} serves, which v{head.version} does not come of"
            return self._back(head, standing, reason, follow="yes")  # nothing is wrong with where it stands
        said, until = self._about(head), self.until
        refused = self._final(head) and said[0].decision != "promote"
        if not refused and (until is None or self._clock() < until):
            return Result()
        reason = said[0].reason if said else self.waiting.reason if self.waiting is not None else "not judged"
        return self._back(head, standing, f"v{head.version} gives way: {reason}")

    def _back(self, bad: Candidate, standing: Standing, reason: str, **details: str) -> Result:
        """The order to the learner to go on from what serves, once; none if it stands there."""
        to = standing.serves
        # The learner may stand at one version several times, and then be told each time.
        key = derived_id("rebase", bad.id, bad.manifest, to)
        if to == bad.version or standing.said(key):
            return Result()
        self.counts["rebased"] += 1
        _log.warning("learner_sent_back", version=bad.version, to=to, reason=reason)
        order = Directive(
            id=key,
            kind="rebase",
            reason=reason,
            origin=self.name,
            created=self._clock(),
            details={"version": str(bad.version), "to": str(to), **details},
        )
        return Result([order], [Output(POLICY_DIRECTIVE, order)])

    def _about(self, candidate: Candidate) -> list[Verdict]:
        """The verdicts on `candidate`, the newest first."""
        return [verdict for verdict in self._verdicts if verdict.manifest == candidate.manifest]

    def _final(self, candidate: Candidate) -> bool:
        """Whether `candidate` has its last verdict."""
        said = self._about(candidate)
        return bool(said) and (said[0].decision != "hold" or len(said) >= _HOLDS)

    async def _standing(self) -> Standing:
        store = self._store
        servings = [one for one in await store.newest(Serving, _SERVINGS) if one.engine != self._shadow_name]
        promoted = await store.newest(Verdict, 1, kinds=("promote",))
        return Standing(
            served=[one for one in servings if one.result in ("started", "swapped")],
            orders=await store.newest(Directive, REMEMBERED, kinds=ENDS),
            promoted=promoted[0] if promoted else None,
            swapped=servings[0].since if servings else 0.0,
        )

    async def _refresh(self) -> None:
        """Bring a shadow engine that has other weights than it should (it was restarted) up to date.

        Before the first candidate it should have version 0, unless its label is a number (a vLLM comes up with
        "default"): what it plays would be of unknown version, nothing could be trained on it, and no candidate come.
        """
        newest, version = self._newest, await self._version()
        if newest is not None:
            wanted, path, manifest = newest.version, Path(newest.path), newest.manifest
        else:
            wanted, path, manifest = max(version, 0), self._directory(0), ""
        if version == wanted or (newest is None and not (path / MANIFEST).exists()):
            return
        _log.info("shadow_behind", version=version, wanted=wanted)
        if await self._put(wanted, path, manifest):
            self._newest = None  # its directory is gone or broken; the next candidate brings the shadow up to date
        else:
            self._loaded(wanted)

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
        problem = await self._put(version, self._directory(version))
        if problem:
            raise DependencyUnavailable(f"version {version} cannot be loaded again: {problem}")

    def _directory(self, version: int) -> Path:
        return self._versions / f"v{version:06d}"
