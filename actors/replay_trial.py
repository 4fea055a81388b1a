"""The gate without a sandbox: how would the candidate have fared on traffic that nobody trained on?

A share of the production trajectories is held out by hash (`holdout.py`). The shadow engine scores their sampled tokens
under the candidate and under the incumbent; self-normalised, truncated importance sampling turns recorded outcomes into
an estimate of either policy's success, and the paired interval of the difference decides as in the sandbox.

Such an estimate reaches only as far as the data: a candidate far from the policy that acted finds few trajectories that
it would have produced. So two guards stand before the decision: the KL divergence from the incumbent (k3 estimate, nats
a token, on the same tokens) and the effective sample size. What fails them is held, not guessed.
"""

import math
from collections.abc import Sequence
from math import exp, fsum

import anyio
import msgspec
import numpy as np
import structlog

from actors.gate_statistics import decide, replay
from actors.holdout import held_out
from actors.messages import TokenRow, Trajectory, floats_array, ids_array, steps_array
from actors.monitors import tool_names
from actors.ports import GateStore
from actors.system.errors import DependencyUnavailable
from actors.trials import Comparison, Load
from adapters.engines import Engine
from adapters.errors import EngineError, EngineUnavailable

_log = structlog.get_logger(__name__)


class ReplayTrialSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the replay gate asks for."""

    window: int = 2048
    """Newest production trajectories among which held-out ones are looked for."""
    most: int = 256
    """Held-out trajectories that are scored at most, newest first."""
    least: int = 32
    """With fewer held-out outcomes nothing is decided."""
    margin: float = 0.05
    """How much worse than the incumbent a candidate may be at the lower confidence limit."""
    confidence: float = 0.9
    """Two-sided, so one-sided 0.95 for either decision."""
    weight_limit: float = 5.0
    """Importance weights are cut off here."""
    kl_limit: float = 0.1
    """Nats a token that the candidate may be away from the incumbent."""
    effective_share: float = 0.25
    """Effective sample size, as a share of the trajectories, below which nothing is decided."""
    concurrency: int = 8
    """Rows scored at once."""
    score_timeout: float = 60.0
    """Seconds for one row."""


class ReplayTrial:
    """`Trial` on held-out production trajectories."""

    def __init__(self, settings: ReplayTrialSettings, *, engine: Engine, store: GateStore) -> None:
        """
        Args:
            engine: the shadow engine.
        """
        self._settings, self._engine, self._store = settings, engine, store
        self.unusable = 0
        """Held-out trajectories left out: no tokens, guided, sampled at another temperature, or not scored."""

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
        chosen = await self._evidence()
        if len(chosen) < settings.least:
            reason = f"{len(chosen)} held-out trajectories with outcomes, {settings.least} are needed"
            return Comparison("hold", reason, {"trajectories": float(len(chosen))})
        new = await self._score(chosen)
        if candidate == incumbent:
            old = new
        elif all(_only(trajectory, incumbent) for trajectory in chosen):
            old = [_recorded(trajectory) for trajectory in chosen]
        else:
            try:
                with anyio.CancelScope(shield=True):  # a load has a deadline of its own, and must not stop half way
                    await load(incumbent)
                old = await self._score(chosen)
            finally:
                with anyio.CancelScope(shield=True):
                    await load(candidate)
        scored = [at for at in range(len(chosen)) if new[at] is not None and old[at] is not None]
        self.unusable += len(chosen) - len(scored)
        if len(scored) < settings.least:
            raise DependencyUnavailable(f"the shadow engine scored {len(scored)} of {len(chosen)} trajectories")
        return self._judge([(chosen[at], new[at], old[at]) for at in scored])

    def _judge(self, scored: Sequence[tuple[Trajectory, list[float] | None, list[float] | None]]) -> Comparison:
        settings = self._settings
        outcomes: list[float] = []
        ratios_new: list[float] = []
        ratios_old: list[float] = []
        divergence: list[float] = []
        for trajectory, new, old in scored:
            new, old, behaviour = new or [], old or [], _recorded(trajectory)
            outcomes.append(trajectory.outcome or 0.0)
            ratios_new.append(fsum(new) - fsum(behaviour))
            ratios_old.append(fsum(old) - fsum(behaviour))
            # k3: unbiased for KL(incumbent || candidate) on the incumbent's tokens, and never negative.
            gaps = [min(n - o, 20.0) for n, o in zip(new, old, strict=True)]
            divergence += [exp(gap) - 1.0 - gap for gap in gaps]
        result = replay(
            outcomes, ratios_new, ratios_old, limit=settings.weight_limit, confidence=settings.confidence
        )  # fmt: skip
        kl = fsum(divergence) / len(divergence) if divergence else 0.0
        figures = {
            "success": result.candidate,
            "incumbent_success": result.incumbent,
            "incumbent_difference": result.difference.estimate,
            "incumbent_low": result.difference.low,
            "incumbent_high": result.difference.high,
            "trajectories": float(len(outcomes)),
            "effective": result.effective,
            "kl": kl,
        }
        decision = decide(result.difference, settings.margin)
        reason = f"replay of {len(outcomes)} trajectories: {result.candidate:.2f} against {result.incumbent:.2f}"
        if kl > settings.kl_limit:
            decision, reason = "hold", f"{kl:.3f} nats a token from the incumbent, {settings.kl_limit:g} are allowed"
        elif result.effective < settings.effective_share * len(outcomes):
            decision, reason = "hold", f"effective sample size {result.effective:.1f} of {len(outcomes)}"
        return Comparison(decision, reason, figures)

    async def _evidence(self) -> list[Trajectory]:
        """The newest held-out trajectories with an outcome and usable tokens, all with the tools of today."""
        recent = await self._store.recent_attributed(source="production", limit=self._settings.window)
        chosen: list[Trajectory] = []
        today: tuple[str, ...] | None = None
        for trajectory in (attributed.trajectory for attributed in recent):
            names = tool_names(trajectory.tools)
            today = names if today is None else today
            if trajectory.outcome is None or not held_out(trajectory.id) or names != today:
                continue
            if not _usable(trajectory):
                self.unusable += 1
                continue
            chosen.append(trajectory)
            if len(chosen) == self._settings.most:
                break
        return chosen

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


def _recorded(trajectory: Trajectory) -> list[float]:
    """Behaviour log-probs of the sampled tokens, row after row."""
    values: list[float] = []
    for row in trajectory.rows:
        values += floats_array(row.logprobs)[steps_array(row.step) >= 0].tolist()
    return values


def _only(trajectory: Trajectory, version: int) -> bool:
    return trajectory.min_version == trajectory.max_version == version


def _usable(trajectory: Trajectory) -> bool:
    """Whether the recorded log-probs are those of the policy on prompts that the candidate would see."""
    if not trajectory.rows or trajectory.experience_ids or not trajectory.trainable:
        return False
    return all(row.temperature == 1.0 and row.hint[0] == row.hint[1] for row in trajectory.rows)
