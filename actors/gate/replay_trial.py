"""The gate without a sandbox: how would the candidate have fared on traffic that nobody trained on?

The shadow engine scores the sampled tokens of held-out trajectories under candidate and incumbent; what each token's
probability changed by, and how the runs ended, estimates the difference in success (`actors.statistics.off_policy`).

    newest runs with an outcome, fair to parties (`evidence`) -> scored under both -> pooled over agents: promote,
    reject, hold -> an agent that is surely worse off vetoes (`weighing`)

Far from what acted the estimate is biased: beyond a KL divergence, or with few effective runs, outcomes decide nothing.
A *small step*, no further from what serves than one update may go, passes if a handful of outcomes do not speak against
it: its trial decides. Where outcomes are too few, or nothing is new, the comparison is `wait`: there is no verdict yet.
Runs at another temperature count too: their recorded log-probs are of what was sampled from.
"""

import math
from collections.abc import Sequence
from math import sqrt

import anyio
import msgspec
import numpy as np
import numpy.typing as npt

from actors.gate.asking import score
from actors.gate.evidence import HeldOut, reported_runs
from actors.gate.sandbox_trial import Comparison, Load
from actors.gate.weighing import Weighed, pooled, veto
from actors.messages import Processing, Trajectory, floats_array, steps_array
from actors.ports.engines import Engine
from actors.statistics.intervals import Decision, Interval, decide
from actors.statistics.off_policy import token_terms
from actors.store import Store
from actors.system.errors import DependencyUnavailable

_FEW = 8
"""Held-out outcomes that a small step needs, none of them deciding."""
_SAME = 4.0
"""Standard errors that the mean weight of a token may be away from 1 where the recorded log-probs are the incumbent's.
It is further where the engine cut the distribution (top_p, top_k) and recorded what was left."""
_CONFIDENCE = 0.9
"""Two-sided, so one-sided 0.95 for either decision, as in the sandbox."""
_WEIGHT_LIMIT = 5.0
"""A token's importance weight is cut off here: docs/measured.md has the table that it was chosen by."""
_KL_LIMIT = 0.1
"""Nats a token that the candidate may be away from the incumbent, for outcomes to decide: further away the estimate is
biased by what changed tokens do together."""
_EFFECTIVE_SHARE = 0.25
"""Effective sample size, as a share of the trajectories, below which outcomes decide nothing: a few runs hold all."""

SCORED = 256
"""Held-out trajectories with an outcome that are scored at most, newest first: each costs both versions a prompt."""


class _Scored(msgspec.Struct):
    """Log-probs of one run's sampled tokens."""

    found: HeldOut
    candidate: list[float]
    incumbent: list[float]


class ReplayTrial:
    """`Trial` on held-out production trajectories."""

    def __init__(
        self, *, engine: Engine, store: Store, least: int = 32, margin: float = 0.05, small_step: float = 0.05
    ) -> None:
        """
        Args:
            least: with fewer held-out outcomes nothing is decided by outcomes.
            margin: how much worse than the incumbent a candidate may be at the lower confidence limit.
            small_step: nats a token up to which a candidate that eight outcomes do not speak against serves on trial:
                what the learner's guard lets one update move (`train.max_step_kl`). 0: `least` outcomes must always
                decide.
        """
        self._engine, self._store = engine, store
        self._least, self._margin, self._small_step = least, margin, small_step
        self._looked: tuple[int, int, frozenset[str]] | None = None
        """Candidate, incumbent, and the runs of the last look at them."""
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
        runs, unusable = await reported_runs(self._store, SCORED)
        self.unusable += unusable
        count, first = len(runs), min(_FEW, self._least) if self._small_step > 0 else self._least
        if count < first:
            return _wait(f"{count} of {first} held-out outcomes", count, first)
        ids = frozenset(one.run.id for one in runs)
        if self._looked is not None and not self._news(candidate, incumbent, ids):
            before = self._looked[2]
            need = self._least if count < self._least else len(before) + self._more
            reason = f"nothing new since the last look at {len(before)} held-out outcomes"
            return msgspec.structs.replace(_wait(reason, len(ids | before), need), gives_way=True)
        scored = await self._scored(runs, candidate, incumbent, load)
        if len(scored) < first:
            raise DependencyUnavailable(f"the shadow engine scored {len(scored)} of {count} trajectories")
        self._looked = (candidate, incumbent, ids)
        return self._judge(scored)

    @property
    def _more(self) -> int:
        """Outcomes that are worth another look."""
        return max(1, self._least // 4)

    def _news(self, candidate: int, incumbent: int, ids: frozenset[str]) -> bool:
        if self._looked is None or self._looked[:2] != (candidate, incumbent):
            return True
        # Not by their number: the window is bounded, and so is what a party may have of it.
        before, least = self._looked[2], self._least
        return len(ids - before) >= self._more or len(before) < least <= len(ids)

    def _judge(self, scored: Sequence[_Scored]) -> Comparison:
        runs = [_weighed(one) for one in scored]
        count, evidence = len(runs), pooled(runs)
        pull, kl, kept = evidence.pull, evidence.kl, evidence.pull.count
        far = ""
        if kl > _KL_LIMIT:
            far = f"{kl:.3f} nats a token from the incumbent, {_KL_LIMIT:g} are allowed"
        elif pull.effective < _EFFECTIVE_SHARE * kept:
            far = f"effective sample size {pull.effective:.1f} of {kept}"
        difference = pull.interval(_CONFIDENCE)
        decision, small = self._decision(difference, count, kl, too_far=bool(far))
        vetoes = veto(runs, self._margin, least=_FEW)
        figures = evidence.figures | vetoes.figures | {
            "success": min(1.0, max(0.0, pull.success + difference.estimate)),
            "incumbent_success": pull.success,
            "incumbent_difference": difference.estimate,
            "incumbent_low": difference.low,
            "incumbent_high": difference.high,
            "trajectories": float(count),
            "effective": pull.effective,
            "kl": kl,
            "small_step": float(small),
        }  # fmt: skip
        reason = f"replay of {count} trajectories: {figures['success']:.2f} against {pull.success:.2f}"
        reason = "; ".join([reason, *vetoes.told])
        if decision == "promote" and vetoes.harmed:
            return Comparison("reject", "; ".join([*vetoes.harmed, reason]), figures | {"small_step": 0.0})
        if small:
            step = f"a small step of {kl:.4f} nats a token ({self._small_step:g} are allowed)"
            return Comparison("promote", f"{step}; {reason}; its trial decides", figures)
        if decision is not None:
            return Comparison(decision, f"{far}; {reason}" if far else reason, figures)
        why = "they speak against it" if kl <= self._small_step else f"{kl:.3f} nats a token is no small step"
        waits = _wait(f"{count} of {self._least} held-out outcomes; {why}", count, self._least)
        return msgspec.structs.replace(waits, measurements=figures | waits.measurements, gives_way=True)

    def _decision(self, difference: Interval, count: int, kl: float, *, too_far: bool) -> tuple[Decision | None, bool]:
        """What all evidence together says, None if it must be waited for, and whether it passes as a small step."""
        if count >= self._least and not too_far:
            decision = decide(difference, self._margin)
            if decision != "hold":
                return decision, False
        if kl <= self._small_step and (too_far or difference.high >= 0):
            return "promote", True
        return ("hold" if count >= self._least else None), False

    async def _scored(self, found: Sequence[HeldOut], candidate: int, incumbent: int, load: Load) -> list[_Scored]:
        runs = [one.run for one in found]
        new = await self._score(runs)
        if candidate == incumbent:
            old = new
        elif recorded := _recorded_by(incumbent, runs, new):
            old = recorded
        else:
            try:
                with anyio.CancelScope(shield=True):  # a load has a deadline of its own, and must not stop half way
                    await load(incumbent)
                old = await self._score(runs)
            finally:
                with anyio.CancelScope(shield=True):
                    await load(candidate)
        scored = [
            _Scored(one, mine, theirs)
            for one, mine, theirs in zip(found, new, old, strict=True)
            if mine is not None and theirs is not None
        ]
        self.unusable += len(runs) - len(scored)
        return scored

    async def _score(self, trajectories: Sequence[Trajectory]) -> list[list[float] | None]:
        """Log-probs of the sampled tokens of each under the loaded weights; None where the engine refused a row."""
        rows = [row for one in trajectories for row in one.rows]
        values = iter(await score(self._engine, rows))
        found: list[list[float] | None] = []
        for one in trajectories:
            parts = [next(values) for _ in one.rows]
            whole = [value for part in parts if part is not None for value in part]
            found.append(None if None in parts else whole)
        return found


def _wait(reason: str, have: int, need: int) -> Comparison:
    return Comparison("wait", reason, {"evidence": float(have), "evidence_needed": float(need)})


def _weighed(one: _Scored) -> Weighed:
    """The divergence is k3: unbiased for KL(incumbent || candidate) on the incumbent's tokens, and never negative."""
    candidate, incumbent = np.asarray(one.candidate), np.asarray(one.incumbent)
    terms, gaps = token_terms(candidate, incumbent, _recorded(one.found.run), _WEIGHT_LIMIT), candidate - incumbent
    gaps = np.minimum(gaps, 20.0)
    return Weighed(
        one.found.group, one.found.party, one.found.run.outcome or 0.0, float(terms.sum()),
        float((np.expm1(gaps) - gaps).sum()), len(gaps),
    )  # fmt: skip


def _recorded_by(version: int, runs: Sequence[Trajectory], new: Sequence[list[float] | None]) -> list[list[float]]:
    """The recorded log-probs, if `version` sampled every run and they are what it would be scored with; else nothing.

    Args:
        new: of the candidate. Its weights at the tokens are 1 on average where the recorded log-probs are those of what
            was sampled from.
    """
    if not all(row.temperature == 1.0 and row.processing == Processing() for run in runs for row in run.rows):
        return []
    if not all(run.min_version == run.max_version == version for run in runs):
        return []
    recorded = [_recorded(run) for run in runs]
    gaps = [np.asarray(mine) - told for mine, told in zip(new, recorded, strict=True) if mine is not None]
    weights = np.exp(np.minimum(np.concatenate(gaps), 20.0)) if gaps else np.ones(0)
    if len(weights) > 1 and abs(weights.mean() - 1) > _SAME * float(weights.std(ddof=1)) / sqrt(len(weights)) + 1e-9:
        return []
    return [told.tolist() for told in recorded]


def _recorded(run: Trajectory) -> npt.NDArray[np.float64]:
    """Behaviour log-probs of the sampled tokens, row after row."""
    rows = [floats_array(row.logprobs)[steps_array(row.step) >= 0] for row in run.rows]
    return np.concatenate(rows).astype(np.float64)
