"""How far a candidate has moved from what serves: KL and surprise on replayed production tokens.

Both versions score the sampled tokens of held-out runs. KL is Schulman's k3 estimate (2020): exp(r) - 1 - r with r the
log-ratio; surprise is how much less likely, in nats a token, the candidate finds what production did. A policy can move
far and do well on all tasks that are asked of it here: the limits are for the others.
"""

from collections.abc import Sequence
from math import exp, fsum

from actors.gate.asking import score
from actors.gate.evidence import recent_runs
from actors.gate.panel import Finding, Report
from actors.messages import TokenRow
from actors.ports.engines import Engine
from actors.statistics.parties import newest
from actors.store import Store

_LEAST = 512
"""With fewer sampled tokens nothing is concluded."""
_MAX_LENGTH = 8192
"""Rows with more tokens are left out: one of them takes as long as all others."""


class DriftCheck:
    """`Check` on production tokens."""

    name = "drift"

    def __init__(
        self, *, engine: Engine, store: Store, most: int = 64, kl_limit: float = 0.5, surprise_limit: float = 1.0
    ) -> None:
        """
        Args:
            most: rows of tokens that are scored at most; 0 measures nothing.
            kl_limit: nats a token from the incumbent.
            surprise_limit: nats a token by which what production did may become less likely.
        """
        self._engine, self._store, self._most = engine, store, most
        self._kl_limit, self._surprise_limit = kl_limit, surprise_limit
        self._rows: list[TokenRow] = []

    async def gather(self) -> int:
        self._rows = []
        if self._most <= 0:
            return 0
        rows = [
            (row, one.party)
            for one in await recent_runs(self._store)
            for row in one.run.rows
            if len(row.ids) // 4 <= _MAX_LENGTH
        ]
        taken = newest((party for _, party in rows), self._most, len(rows))
        self._rows = [rows[place][0] for place in taken]
        return len(self._rows)

    async def measure(self) -> list[list[float] | None]:
        """Log-probs of the sampled tokens of each row; None where the engine refused a row."""
        return await score(self._engine, self._rows)

    def judge(self, candidate: Sequence[list[float] | None], incumbent: Sequence[list[float] | None]) -> Report:
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
        if len(pairs) >= _LEAST:
            limits = ((kl, self._kl_limit, "from the incumbent"), (surprise, self._surprise_limit, "of surprise"))
            findings = [
                Finding("drift", f"{value:.3f} nats a token {what} on production tokens, {limit:g} are allowed")
                for value, limit, what in limits
                if value > limit
            ]
        return Report(tuple(findings), figures)
