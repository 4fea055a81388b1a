"""The gate without a sandbox: how would the candidate have fared on traffic that nobody trained on?

The shadow engine scores the sampled tokens of held-out trajectories under candidate and incumbent; what each token's
probability changed by, and how the runs ended, estimates the difference in success (`actors.statistics.off_policy`).

    newest runs with an outcome, fair to parties (`evidence`) -> scored under both -> pooled over agents: promote,
    reject, hold -> an agent that is surely worse off vetoes (`weighing`)

Far from what acted the estimate is biased: beyond a KL divergence, or with few effective runs, outcomes decide nothing;
beyond another the candidate is rejected, whatever they say. A *small step*, no further from what serves
than one update may go, passes if a handful of outcomes do not speak against it: its trial decides. Where outcomes are
too few, or nothing is new, the comparison is `wait`: there is no verdict yet. Runs at another temperature count too:
their recorded log-probs are of what was sampled from.
"""

import math
from collections.abc import Sequence

import anyio

from actors.gate.asking import score
from actors.gate.distance import LIMIT
from actors.gate.evidence import reported_runs, short_runs
from actors.gate.panel import Comparison, Load, Report, under_each
from actors.gate.weighing import Scored, distance, pooled, scored, veto
from actors.ports.engines import Engine
from actors.statistics.intervals import decide
from actors.store import Store
from actors.system.errors import DependencyUnavailable

_FEW = 8
"""Held-out outcomes that a small step needs, none of them deciding."""
_CONFIDENCE = 0.9
"""Two-sided, so one-sided 0.95 for either decision, as in the sandbox."""
_KL_LIMIT = 0.1
"""Nats a token that the candidate may be away from the incumbent, for outcomes to decide: further away the estimate is
biased by what changed tokens do together."""
_EFFECTIVE_SHARE = 0.25
"""Effective sample size, as a share of the trajectories, below which outcomes decide nothing: a few runs hold all."""

SCORED = 256
"""Held-out trajectories with an outcome that are scored at most, newest first: each costs both versions a prompt."""


class ReplayTrial:
    """`Trial` on held-out production trajectories."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        least: int = 32,
        margin: float = 0.05,
        small_step: float = 0.05,
        recent: int = 64,
        limit: float = LIMIT,
    ) -> None:
        """
        Args:
            least: with fewer held-out outcomes nothing is decided by outcomes.
            margin: how much worse than the incumbent a candidate may be at the lower confidence limit.
            small_step: nats a token up to which a candidate that eight outcomes do not speak against serves on trial:
                what the learner's guard lets one update move (`train.max_step_kl`). 0: `least` outcomes must always
                decide.
            recent: runs with an outcome or without that the distance is measured on beside them.
            limit: nats a token that the candidate may be away from the incumbent at all.
        """
        self._engine, self._store, self._recent, self._limit = engine, store, recent, limit
        self._least, self._margin, self._small_step = least, margin, small_step
        self._looked: dict[tuple[int, int], frozenset[str]] = {}
        """By candidate and incumbent, of the last look: its runs."""

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        with anyio.CancelScope(deadline=deadline):
            return await self._compare(candidate, incumbent, load)
        return Comparison("hold", "out of time before the held-out trajectories were scored", {"out_of_time": 1.0})

    async def _compare(self, candidate: int, incumbent: int, load: Load) -> Comparison:
        reported = await reported_runs(self._store, SCORED)
        count, first = len(reported), min(_FEW, self._least) if self._small_step > 0 else self._least
        if count < first:
            return _wait(f"{count} of {first} held-out outcomes", count, first)
        ids = frozenset(one.run.id for one in reported)
        before, more = self._looked.get((candidate, incumbent)), max(1, self._least // 4)
        # Not by their number: the window is bounded, and so is what a party may have of it.
        if before is not None and len(ids - before) < more and not len(before) < self._least <= count:
            need = self._least if count < self._least else len(before) + more
            reason = f"nothing new since the last look at {len(before)} held-out outcomes"
            return _wait(reason, len(ids | before), need, gives_way=True)
        runs = reported + [one for one in await short_runs(self._store, self._recent) if one.run.id not in ids]

        async def measure(version: int) -> list[list[float] | None]:
            return await score(self._engine, [one.run for one in runs])

        found = await under_each((candidate, incumbent), candidate, load, measure)
        every = zip(runs, found[candidate], found[incumbent], strict=True)
        both = [scored(one, new, old) for one, new, old in every if new is not None and old is not None]
        told = [one for one in both if one.found.run.id in ids]
        if len(told) < first:
            raise DependencyUnavailable(f"the shadow engine scored {len(told)} of {count} trajectories")
        self._looked = {(candidate, incumbent): ids}
        return self._judge(told, *distance(both, self._limit))

    def _judge(self, runs: Sequence[Scored], kl: float, drift: Report) -> Comparison:
        (pull, parties), vetoes, count = pooled(runs), veto(runs, self._margin), len(runs)
        far = ""
        if kl > _KL_LIMIT:
            far = f"{kl:.3f} nats a token from the incumbent, {_KL_LIMIT:g} are allowed"
        elif pull.effective < _EFFECTIVE_SHARE * pull.count:
            far = f"effective sample size {pull.effective:.1f} of {pull.count}"
        difference, enough = pull.interval(_CONFIDENCE), count >= self._least
        decision = decide(difference, self._margin) if enough and not far else "hold"
        small = decision == "hold" and kl <= self._small_step and (bool(far) or difference.high >= 0)
        harmed = vetoes.harmed if decision == "promote" or small else []
        figures = parties | vetoes.figures | drift.figures | {
            "success": min(1.0, max(0.0, pull.success + difference.estimate)),
            "incumbent_success": pull.success,
            "incumbent_difference": difference.estimate,
            "incumbent_low": difference.low,
            "incumbent_high": difference.high,
            "trajectories": float(count),
            "effective": pull.effective,
            "small_step": float(small and not harmed),
        }  # fmt: skip
        reason = f"replay of {count} trajectories: {figures['success']:.2f} against {pull.success:.2f}"
        reason = "; ".join([reason, *vetoes.told])
        against = [*harmed, *(finding.reason for finding in drift.findings)]
        if against:
            return Comparison("reject", "; ".join([*against, reason]), figures)
        if small:
            step = f"a small step of {kl:.4f} nats a token ({self._small_step:g} are allowed)"
            return Comparison("promote", f"{step}; {reason}; its trial decides", figures)
        if enough:
            return Comparison(decision, f"{far}; {reason}" if far else reason, figures)
        why = "they speak against it" if kl <= self._small_step else f"{kl:.3f} nats a token is no small step"
        return _wait(
            f"{count} of {self._least} held-out outcomes; {why}", count, self._least, gives_way=True, **figures
        )


def _wait(reason: str, have: int, need: int, *, gives_way: bool = False, **figures: float) -> Comparison:
    return Comparison("wait", reason, {**figures, "evidence": have, "evidence_needed": need}, gives_way)
