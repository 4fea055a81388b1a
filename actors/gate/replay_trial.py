"""The gate without a sandbox: how would the candidate have fared on traffic that nobody trained on?

A share of the production trajectories is held out by hash (`holdout.py`). The shadow engine scores their sampled tokens
under the candidate and under the incumbent; self-normalised, truncated importance sampling turns recorded outcomes into
an estimate of either policy's success, and the paired interval of the difference decides as in the sandbox.

Such an estimate reaches only as far as the data: a candidate far from the policy that acted finds few trajectories that
it would have produced. So two guards stand before the decision: the KL divergence from the incumbent (k3 estimate, nats
a token, on the same tokens) and the effective sample size. What fails them is not decided by outcomes.

**Small steps.** Production has few outcomes, and they come late. A candidate that is no further from what serves than
one update may go, and that a handful of outcomes do not speak against, passes: it serves on trial, and the evidence
comes from serving (`canary.py`). A handful says more than it seems: both policies are weighed on the same runs.

**Missing evidence is no verdict.** Where a step is not small and outcomes are too few, or nothing has been reported
since the last verdict, the comparison is `wait`: asked again when there is more to look at, it uses up nothing.
"""

import math
from collections.abc import Sequence
from math import exp, fsum

import anyio
import msgspec
import numpy as np
import structlog

from actors.gate.sandbox_trial import Comparison, Load
from actors.messages import TokenRow, Trajectory, floats_array, ids_array, steps_array
from actors.ports.engines import Engine
from actors.ports.errors import EngineError, EngineUnavailable
from actors.ports.store import GateStore
from actors.statistics.intervals import Replay, decide, replay
from actors.system.errors import DependencyUnavailable
from actors.tool_results.runs import tool_names

_log = structlog.get_logger(__name__)
_FEW = 8
"""Held-out outcomes that a small step needs, none of them deciding."""
_TODAY = 64
"""Newest held-out runs whose tool lists are those of today: several agents share an engine, each with its own."""


class ReplayTrialSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the replay gate asks for."""

    most: int = 256
    """Held-out trajectories with an outcome that are scored at most, newest first."""
    least: int = 32
    """With fewer held-out outcomes nothing is decided by outcomes."""
    margin: float = 0.05
    """How much worse than the incumbent a candidate may be at the lower confidence limit."""
    confidence: float = 0.9
    """Two-sided, so one-sided 0.95 for either decision."""
    weight_limit: float = 5.0
    """Importance weights are cut off here."""
    kl_limit: float = 0.1
    """Nats a token that the candidate may be away from the incumbent, for outcomes to decide."""
    small_step: float = 0.05
    """Nats a token up to which a candidate that eight outcomes do not speak against serves on trial: what the learner's
    guard lets one update move (`learner.kl_limit`). 0: `least` outcomes must always decide."""
    effective_share: float = 0.25
    """Effective sample size, as a share of the trajectories, below which outcomes decide nothing."""
    concurrency: int = 8
    """Rows scored at once."""
    score_timeout: float = 60.0
    """Seconds for one row."""


class _Scored(msgspec.Struct):
    """Log-probs of one run's sampled tokens."""

    run: Trajectory
    candidate: list[float]
    incumbent: list[float]


class ReplayTrial:
    """`Trial` on held-out production trajectories."""

    def __init__(self, settings: ReplayTrialSettings, *, engine: Engine, store: GateStore) -> None:
        """
        Args:
            engine: the shadow engine.
        """
        self._settings, self._engine, self._store = settings, engine, store
        self._looked: tuple[int, int, int] | None = None
        """Candidate, incumbent, and the outcomes of the last look at them."""
        self.unusable = 0
        """Held-out trajectories left out: no tokens, guided, or not scored."""

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        comparison = Comparison(
            "hold", "out of time before the held-out trajectories were scored", {"out_of_time": 1.0}
        )
        with anyio.CancelScope(deadline=deadline):
            comparison = await self._compare(candidate, incumbent, load)
        return comparison

    async def _compare(self, candidate: int, incumbent: int, load: Load) -> Comparison:
        settings = self._settings
        runs = await self._evidence()
        count, first = len(runs), min(_FEW, settings.least) if settings.small_step > 0 else settings.least
        if count < first:
            return _wait(f"{count} of {first} held-out outcomes", count, first)
        if not self._news(candidate, incumbent, count):
            need = settings.least if count < settings.least else count + self._more
            reason = f"nothing new since the last look at {count} held-out outcomes"
            return msgspec.structs.replace(_wait(reason, count, need), gives_way=True)
        scored = await self._scored(runs, candidate, incumbent, load)
        if len(scored) < first:
            raise DependencyUnavailable(f"the shadow engine scored {len(scored)} of {count} trajectories")
        self._looked = (candidate, incumbent, count)
        return self._judge(scored)

    @property
    def _more(self) -> int:
        """Outcomes that are worth another look."""
        return max(1, self._settings.least // 4)

    def _news(self, candidate: int, incumbent: int, count: int) -> bool:
        if self._looked is None or self._looked[:2] != (candidate, incumbent):
            return True
        before, settings = self._looked[2], self._settings
        # The window is bounded: once it is full it only changes, and every look sees other runs.
        full, reached = count >= settings.most, before < settings.least <= count
        return full or reached or count >= before + self._more

    def _judge(self, scored: Sequence[_Scored]) -> Comparison:
        settings, count = self._settings, len(scored)
        kl, result = _divergence(scored), self._replay(scored)
        figures = {
            "success": result.candidate,
            "incumbent_success": result.incumbent,
            "incumbent_difference": result.difference.estimate,
            "incumbent_low": result.difference.low,
            "incumbent_high": result.difference.high,
            "trajectories": float(count),
            "effective": result.effective,
            "kl": kl,
            "small_step": 0.0,
        }
        reason = f"replay of {count} trajectories: {result.candidate:.2f} against {result.incumbent:.2f}"
        too_far = ""
        if kl > settings.kl_limit:
            too_far = f"{kl:.3f} nats a token from the incumbent, {settings.kl_limit:g} are allowed"
        elif result.effective < settings.effective_share * count:
            too_far = f"effective sample size {result.effective:.1f} of {count}"
        if count >= settings.least and not too_far:
            decision = decide(result.difference, settings.margin)
            if decision != "hold":
                return Comparison(decision, reason, figures)
        if kl <= settings.small_step and (too_far or result.difference.high >= 0):
            step = f"a small step of {kl:.4f} nats a token ({settings.small_step:g} are allowed)"
            return Comparison("promote", f"{step}; {reason}; its trial decides", figures | {"small_step": 1.0})
        if count >= settings.least:
            return Comparison("hold", too_far or reason, figures)
        why = "they speak against it" if kl <= settings.small_step else f"{kl:.3f} nats a token is no small step"
        waits = _wait(f"{count} of {settings.least} held-out outcomes; {why}", count, settings.least)
        return msgspec.structs.replace(waits, measurements=figures | waits.measurements, gives_way=True)

    def _replay(self, reported: Sequence[_Scored]) -> Replay:
        outcomes: list[float] = []
        new: list[float] = []
        old: list[float] = []
        for one in reported:
            # Recorded at another temperature they are of another distribution: then the run counts as the incumbent's.
            behaviour = fsum(_recorded(one.run) if _honest(one.run) else one.incumbent)
            outcomes.append(one.run.outcome or 0.0)
            new.append(fsum(one.candidate) - behaviour)
            old.append(fsum(one.incumbent) - behaviour)
        return replay(
            outcomes, new, old, limit=self._settings.weight_limit, confidence=self._settings.confidence
        )  # fmt: skip

    async def _evidence(self) -> list[Trajectory]:
        """The newest held-out trajectories with an outcome and usable tokens, all with tools of today."""
        recent = await self._store.exam(reported=False, limit=_TODAY)
        today = {tool_names(item.trajectory.tools) for item in recent}
        chosen: list[Trajectory] = []
        for run in (item.trajectory for item in await self._store.exam(reported=True, limit=self._settings.most)):
            if tool_names(run.tools) not in today:
                continue
            if _usable(run):
                chosen.append(run)
            else:
                self.unusable += 1
        return chosen

    async def _scored(self, runs: Sequence[Trajectory], candidate: int, incumbent: int, load: Load) -> list[_Scored]:
        new = await self._score(runs)
        if candidate == incumbent:
            old = new
        elif all(_honest(run) and _only(run, incumbent) for run in runs):
            old = [_recorded(run) for run in runs]
        else:
            try:
                with anyio.CancelScope(shield=True):  # a load has a deadline of its own, and must not stop half way
                    await load(incumbent)
                old = await self._score(runs)
            finally:
                with anyio.CancelScope(shield=True):
                    await load(candidate)
        scored = [
            _Scored(run, mine, theirs)
            for run, mine, theirs in zip(runs, new, old, strict=True)
            if mine is not None and theirs is not None
        ]
        self.unusable += len(runs) - len(scored)
        return scored

    async def _score(self, trajectories: Sequence[Trajectory]) -> list[list[float] | None]:
        """Log-probs of the sampled tokens of each under the loaded weights; None where the engine refused a row."""
        scores: list[list[float] | None] = [None] * len(trajectories)
        slots = anyio.CapacityLimiter(self._settings.concurrency)
        outages: list[DependencyUnavailable] = []

        async def one(at: int) -> None:
            async with slots:
                values: list[float] = []
                for row in trajectories[at].rows:
                    try:
                        found = await self._score_row(row)
                    except DependencyUnavailable as error:
                        # Raised below: the runner waits out an outage, but not a group of them.
                        outages.append(error)
                        group.cancel_scope.cancel()
                        return
                    if found is None:
                        return
                    values += found
                scores[at] = values

        async with anyio.create_task_group() as group:
            for at in range(len(trajectories)):
                group.start_soon(one, at)
        if outages:
            raise outages[0]
        return scores

    async def _score_row(self, row: TokenRow) -> list[float] | None:
        try:
            with anyio.fail_after(self._settings.score_timeout):
                values = np.asarray(await self._engine.log_probs(ids_array(row.ids).tolist()), dtype=np.float64)
        except (EngineUnavailable, TimeoutError) as error:
            raise DependencyUnavailable(f"shadow engine: {type(error).__name__}: {error}") from error
        except EngineError as error:
            _log.info("replay_row_refused", reason=str(error))
            return None
        sampled = values[steps_array(row.step) >= 0]
        return sampled.tolist() if np.isfinite(sampled).all() else None


def _wait(reason: str, have: int, need: int) -> Comparison:
    return Comparison("wait", reason, {"evidence": float(have), "evidence_needed": float(need)})


def _divergence(scored: Sequence[_Scored]) -> float:
    """k3: unbiased for KL(incumbent || candidate) on the incumbent's tokens, and never negative; nats a token."""
    gaps = [min(n - o, 20.0) for one in scored for n, o in zip(one.candidate, one.incumbent, strict=True)]
    return fsum(exp(gap) - 1.0 - gap for gap in gaps) / len(gaps) if gaps else 0.0


def _recorded(trajectory: Trajectory) -> list[float]:
    """Behaviour log-probs of the sampled tokens, row after row."""
    values: list[float] = []
    for row in trajectory.rows:
        values += floats_array(row.logprobs)[steps_array(row.step) >= 0].tolist()
    return values


def _only(trajectory: Trajectory, version: int) -> bool:
    return trajectory.min_version == trajectory.max_version == version


def _usable(run: Trajectory) -> bool:
    """Whether the tokens stand in prompts that the candidate would see."""
    if not run.rows or run.experience_ids or not run.trainable:
        return False
    return all(row.hint[0] == row.hint[1] for row in run.rows)


def _honest(run: Trajectory) -> bool:
    """Whether the recorded log-probs are those that the engine would give: not of another temperature."""
    return all(row.temperature == 1.0 for row in run.rows)
