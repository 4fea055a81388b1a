"""The gatekeeper: owns the weights of the shadow engine, and decides which candidate may serve.

    policy.candidate  ->  shadow engine  ->  policy.verdict

Every candidate goes into the shadow engine at once (the newest, if several wait), because the rollouts run there and
must be fresh. Every few versions, or when some time has passed, the newest one is tried against what serves (`gate/`,
`trials.py`, `replay_trial.py`) and gets a signed verdict: promote, reject, or hold. What comes of a version that was
rolled back is rejected whatever it can do: the measurements let its ancestor pass too. Nothing here touches an engine
that serves users.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec
import structlog

from actors.messages import MANIFEST, Candidate, Message, Serving, Verdict, derived_id
from actors.ports import GateStore, SwapRunner
from actors.serving_plan import number
from actors.serving_times import ServingTimes
from actors.signing import SigningKey, sign
from actors.system.actor import Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import POLICY_CANDIDATE, POLICY_VERDICT
from actors.trials import Comparison, Trial
from adapters.engines import Engine
from adapters.errors import CheckpointRefused, EngineError

_log = structlog.get_logger(__name__)
_REFUSED = "refused"
"""Measurement of a candidate that the shadow engine did not take."""
_LINE = "rolled_back_ancestor"
"""Measurement of a candidate that was not tried: the version of its line that was rolled back."""
_REMEMBERED = 1000
"""Candidates and directives that a candidate's line is looked for in, newest first."""


class GatekeeperSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the gate looks at a candidate."""

    gate_every: int = 4
    """Versions from one verdict to the next."""
    gate_seconds: float = 60.0
    """Seconds after the last verdict when the newest candidate is judged even if fewer versions came, and when one that
    was held is judged again."""
    max_holds: int = 4
    """Verdicts of one candidate at most; then it stays held."""
    tick_seconds: float = 5.0
    """Between two looks at the shadow engine and the clock."""
    load_timeout: float = 120.0
    """Seconds to put a version into the shadow engine."""
    engine_timeout: float = 10.0
    """Seconds the shadow engine has to say which version it has."""


class Gatekeeper:
    """Actor: candidates in, verdicts out."""

    name = "gatekeeper"
    inputs = (POLICY_CANDIDATE,)
    batch = 64

    def __init__(
        self,
        settings: GatekeeperSettings,
        *,
        store: GateStore,
        shadow: Engine,
        shadow_name: str,
        runner: SwapRunner,
        trial: Trial,
        versions: Path,
        key: SigningKey,
        clock: Callable[[], float],
        times: ServingTimes | None = None,
        loaded: Callable[[int], None] = lambda version: None,
    ) -> None:
        """
        Args:
            shadow_name: the name that `runner` knows the shadow engine by.
            versions: directory that holds the version directories `v<NNNNNN>`.
            key: signs verdicts.
            times: told what the shadow engine has.
            loaded: told each version that the shadow engine took; the rollout waits for it.
        """
        self._settings, self._store, self._shadow, self._shadow_name = settings, store, shadow, shadow_name
        self._runner, self._trial, self._versions, self._key = runner, trial, versions, key
        self._clock, self._loaded = clock, loaded
        self._times = times or ServingTimes(clock)
        self._newest: Candidate | None = None
        self._last: Verdict | None = None
        self._attempts = 0
        """Verdicts about the newest candidate that was judged."""
        self._since = 0.0
        self._parents: dict[int, int] = {}
        self.skipped = 0
        """Candidates that were never loaded because a newer one had come."""

    def reconfigure(self, settings: GatekeeperSettings) -> None:
        """Take over new settings."""
        self._settings = settings

    @property
    def tick_seconds(self) -> float | None:
        return self._settings.tick_seconds

    async def start(self) -> None:
        verdicts = await self._store.verdicts(limit=100)
        refused = {verdict.manifest for verdict in verdicts if _REFUSED in verdict.measurements}
        candidates = await self._store.candidates(limit=_REMEMBERED)
        self._parents = {item.version: item.parent for item in reversed(candidates)}
        self._newest = next((item for item in candidates if item.manifest not in refused), None)
        self._last = verdicts[0] if verdicts else None
        self._attempts = sum(1 for verdict in verdicts if self._last and verdict.manifest == self._last.manifest)
        self._since = self._clock()

    async def handle(self, batch: Sequence[Received]) -> Result:
        candidates = [received.message for received in batch if isinstance(received.message, Candidate)]
        newest = max(candidates, key=lambda candidate: candidate.version, default=None)
        if newest is None:
            return Result()
        records: list[Message] = list(candidates)
        self._parents |= {candidate.version: candidate.parent for candidate in candidates}
        for old in list(self._parents)[:-_REMEMBERED]:
            del self._parents[old]
        if self._newest is not None and newest.version < self._newest.version and newest.created < self._newest.created:
            self.skipped += len(candidates)
            return Result(records)
        self.skipped += len(candidates) - 1
        problem = await self._put(newest.version, Path(newest.path), newest.manifest)
        if problem:
            verdict = self._verdict(newest, await self._incumbent(), Comparison("reject", problem, {_REFUSED: 1.0}))
            return Result([*records, verdict], [Output(POLICY_VERDICT, verdict)])
        self._newest = newest
        self._loaded(newest.version)
        judged = self._last.version if self._last is not None else 0
        if abs(newest.version - judged) < self._settings.gate_every and not self._overdue():
            return Result(records)
        verdict = await self._judge(newest)
        return Result([*records, verdict], [Output(POLICY_VERDICT, verdict)])

    async def tick(self) -> Result:
        newest = self._newest
        if newest is None:
            await self._begin()
            return Result()
        await self._refresh(newest)
        if self._newest is None or not self._overdue() or not self._open(newest):
            return Result()
        verdict = await self._judge(newest)
        return Result([verdict], [Output(POLICY_VERDICT, verdict)])

    def _overdue(self) -> bool:
        last = self._last.created if self._last is not None else self._since
        return self._clock() - last >= self._settings.gate_seconds

    def _open(self, candidate: Candidate) -> bool:
        """Whether `candidate` has no final verdict yet."""
        if self._last is None or self._last.manifest != candidate.manifest:
            return True
        return self._last.decision == "hold" and self._attempts < self._settings.max_holds

    async def _begin(self) -> None:
        """Before the first candidate, load version 0 into an engine whose label says nothing (a vLLM comes up with
        "default"): what it plays would be of unknown version, nothing could be trained on it, and no candidate come."""
        path = self._versions / "v000000"
        if await self._version() >= 0 or not (path / MANIFEST).exists():
            return
        if not await self._put(0, path):
            self._loaded(0)

    async def _version(self) -> int:
        asked = self._clock()
        try:
            with anyio.fail_after(self._settings.engine_timeout):
                version = await self._shadow.version()
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
        """Load a version into the shadow engine; why it was refused, empty if it was not.

        Args:
            manifest: sha256 that its manifest must have, empty for any that the learner signed.
        """
        self._times.swapping(self._shadow_name)
        try:
            with anyio.fail_after(self._settings.load_timeout):
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

    async def _judge(self, candidate: Candidate) -> Verdict:
        incumbent = await self._incumbent()
        comparison = await self._condemned(candidate)
        if comparison is None:
            served = await self._served()
            measured = await self._trial.compare(candidate.version, incumbent, served, self._load)
            # Trials take minutes: the rollback may have come meanwhile.
            comparison = await self._condemned(candidate) or measured
        return self._verdict(candidate, incumbent, comparison)

    async def _condemned(self, candidate: Candidate) -> Comparison | None:
        """A rejection if `candidate`, or a version that it comes of, was rolled back."""
        orders = [order for order in await self._store.directives(limit=_REMEMBERED) if order.kind == "rollback"]
        bad = {number(order, "version") for order in orders}
        version: int | None = candidate.version
        while version is not None and version not in bad:
            parent = self._parents.get(version, -1)
            version = parent if 0 <= parent < version else None
        if version is None:
            return None
        return Comparison("reject", f"comes of v{version}, which was rolled back", {_LINE: float(version)})

    def _verdict(self, candidate: Candidate, incumbent: int, comparison: Comparison) -> Verdict:
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
        servings = await self._store.servings(limit=1000)
        return [item for item in servings if item.result in ("started", "swapped") and item.engine != self._shadow_name]

    async def _incumbent(self) -> int:
        """What serves, or is about to: a promotion that the swapper has not answered yet counts as carried out."""
        servings = await self._store.servings(limit=1)
        last = self._last
        if last is not None and last.decision == "promote" and (not servings or servings[0].since < last.created):
            return last.version
        good = await self._servings()
        return good[0].version if good else 0

    async def _served(self) -> list[int]:
        return sorted({item.version for item in await self._servings()})
