"""How far a candidate has moved from what serves: KL and surprise on replayed production tokens.

Both versions score the sampled tokens of held-out production trajectories (`Engine.log_probs`); all parties and their
agents take turns (`evidence`). The KL estimate is k3 of Schulman (2020, "Approximating KL divergence"): exp(r) - 1 - r
with r the log-ratio, never negative, unbiased for KL(incumbent || candidate) where the incumbent sampled the tokens,
and close to it where its recent ancestors did. The surprise is how much likelier or less likely, in nats a token, the
candidate finds what production did.

A policy can move far and do well on all tasks that are asked of it here. The limit is for the others.
"""

from collections.abc import Sequence
from math import exp, fsum

import anyio
import msgspec
import numpy as np
import structlog

from actors.gate.evidence import recent_runs
from actors.gate.panel import Finding, Report
from actors.messages import TokenRow, ids_array, steps_array
from actors.ports.engines import Engine
from actors.ports.errors import EngineError, EngineUnavailable
from actors.statistics.parties import newest
from actors.store import Store
from actors.system.errors import DependencyUnavailable

_log = structlog.get_logger(__name__)


class DriftSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far from the incumbent a candidate may be."""

    most: int = 64
    """Rows of tokens that are scored at most; 0 measures nothing."""
    least: int = 512
    """With fewer sampled tokens nothing is concluded."""
    max_length: int = 8192
    """Rows with more tokens are left out."""
    kl_limit: float = 0.5
    """Nats a token from the incumbent."""
    surprise_limit: float = 1.0
    """Nats a token by which what production did may become less likely."""
    concurrency: int = 8
    """Rows scored at once."""
    timeout: float = 60.0
    """Seconds for one row."""


class DriftCheck:
    """`Check` on production tokens."""

    name = "drift"

    def __init__(self, settings: DriftSettings, *, engine: Engine, store: Store) -> None:
        """
        Args:
            engine: the shadow engine.
        """
        self._settings, self._engine, self._store = settings, engine, store
        self._rows: list[TokenRow] = []

    async def gather(self) -> int:
        settings = self._settings
        self._rows = []
        if settings.most <= 0:
            return 0
        rows = [
            (row, one.party)
            for one in await recent_runs(self._store)
            for row in one.run.rows
            if len(row.ids) // 4 <= settings.max_length
        ]
        taken = newest((party for _, party in rows), settings.most, len(rows))
        self._rows = [rows[place][0] for place in taken]
        return len(self._rows)

    async def measure(self) -> list[list[float] | None]:
        """Log-probs of the sampled tokens of each row; None where the engine refused a row."""
        scores: list[list[float] | None] = [None] * len(self._rows)
        slots = anyio.CapacityLimiter(self._settings.concurrency)
        outages: list[DependencyUnavailable] = []

        async def one(at: int) -> None:
            async with slots:
                try:
                    scores[at] = await self._score(self._rows[at])
                except DependencyUnavailable as error:
                    outages.append(error)
                    group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for at in range(len(self._rows)):
                group.start_soon(one, at)
        if outages:
            raise outages[0]
        return scores

    async def judge(self, candidate: Sequence[list[float] | None], incumbent: Sequence[list[float] | None]) -> Report:
        settings = self._settings
        pairs = [
            (mine, theirs)
            for new, old in zip(candidate, incumbent, strict=True)
            if new is not None and old is not None
            for mine, theirs in zip(new, old, strict=True)
        ]
        figures = {"drift_tokens": float(len(pairs))}
        if not pairs:
            return Report((), figures)
        gaps = [max(-20.0, min(mine - theirs, 20.0)) for mine, theirs in pairs]
        kl = fsum(exp(gap) - 1.0 - gap for gap in gaps) / len(gaps)
        surprise = fsum(theirs - mine for mine, theirs in pairs) / len(pairs)
        figures |= {"drift_kl": kl, "drift_surprise": surprise}
        findings: list[Finding] = []
        if len(pairs) >= settings.least:
            limits = ((kl, settings.kl_limit, "from the incumbent"), (surprise, settings.surprise_limit, "of surprise"))
            findings = [
                Finding("drift", f"{value:.3f} nats a token {what} on production tokens, {limit:g} are allowed")
                for value, limit, what in limits
                if value > limit
            ]
        return Report(tuple(findings), figures)

    async def _score(self, row: TokenRow) -> list[float] | None:
        try:
            with anyio.fail_after(self._settings.timeout):
                values = np.asarray(await self._engine.log_probs(ids_array(row.ids).tolist()), dtype=np.float64)
        except (EngineUnavailable, TimeoutError) as error:
            raise DependencyUnavailable(f"shadow engine: {type(error).__name__}: {error}") from error
        except EngineError as error:
            _log.info("drift_row_refused", reason=str(error))
            return None
        sampled = values[steps_array(row.step) >= 0]
        return sampled.tolist() if np.isfinite(sampled).all() else None
