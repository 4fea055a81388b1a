"""The panel: everything that is measured of a candidate, and what outranks what.

One `Trial` says how tasks end: the *effect*. *Checks* (`prompts`, `safety`, `distance`) measure candidate and incumbent
on the same evidence. The first that applies decides: a safety finding rejects; the effect rejects; a conduct or drift
finding rejects; the effect promotes or holds. Everything is measured, as far as the deadline allows, and what that
leaves open cannot promote. Where the trial waits for evidence there is no verdict, and nothing else is measured.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeVar

import anyio
import msgspec
import structlog

from actors.statistics.intervals import Decision

_log = structlog.get_logger(__name__)
T = TypeVar("T")

Load = Callable[[int], Awaitable[None]]
"""Puts a version into the shadow engine; raises what the gatekeeper's own load raises."""
Kind = Literal["safety", "conduct", "drift"]
_KINDS: tuple[Kind, ...] = ("safety", "conduct", "drift")


class Comparison(msgspec.Struct, frozen=True):
    """What a trial came to."""

    decision: Decision | Literal["wait"]
    """`wait`: there is not enough to judge by; no verdict, and asked again."""
    reason: str
    measurements: dict[str, float]
    """Of `wait` also `evidence` and `evidence_needed`, pieces of it."""
    gives_way: bool = False
    """Of `wait`: it was looked at, and a candidate that moved less may be judged sooner."""


class Trial(Protocol):
    """A way to compare weights without letting them near a user."""

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        """Measure `candidate`, which is in the shadow engine and is there again in the end, against `incumbent`, and
        against the best of all that were `served`. What `deadline` (on anyio's clock) leaves open is held.

        Raises:
            DependencyUnavailable: engine or environment are away; nothing was concluded.
        """
        ...


class Finding(msgspec.Struct, frozen=True):
    """A limit that a candidate broke."""

    kind: Kind
    reason: str
    """With the number and the limit."""


class Report(msgspec.Struct, frozen=True):
    """What a check came to."""

    findings: tuple[Finding, ...] = ()
    figures: dict[str, float] = {}
    """By the measurement's name in the verdict."""


class Check(Protocol):
    """Something that is measured of both versions on the same evidence."""

    name: str

    async def gather(self) -> int:
        """Fetch the evidence for this verdict; how many pieces there are. 0: nothing to measure on."""
        ...

    async def measure(self) -> Any:
        """Measure the weights that the shadow engine has on that evidence."""
        ...

    def judge(self, candidate: Any, incumbent: Any) -> Report:
        """What follows from the two measurements; the same object twice if the candidate is what serves."""
        ...


class Panel:
    """`Trial` of a trial and the checks beside it."""

    def __init__(self, *, trial: Trial, checks: Sequence[Check], seconds: float = 600.0) -> None:
        """
        Args:
            seconds: for one verdict; what is measured by then counts, and what it leaves open is held.
        """
        self._trial, self._checks, self._seconds = trial, checks, seconds

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        deadline = min(deadline, anyio.current_time() + self._seconds)
        effect = await self._trial.compare(candidate, incumbent, served, load, deadline=deadline)
        if effect.decision == "wait":
            return effect  # asked again soon; the checks are for a verdict
        figures: dict[str, float] = {}
        findings: list[Finding] = []
        with anyio.CancelScope(deadline=deadline) as scope:
            findings = await self._check(candidate, incumbent, load, figures)
        figures["unchecked"] = float(scope.cancelled_caught)
        return conclude(effect, findings, figures, unchecked=scope.cancelled_caught)

    async def _check(self, candidate: int, incumbent: int, load: Load, figures: dict[str, float]) -> list[Finding]:
        """What all checks find, with one load of the incumbent."""
        counts = [await check.gather() for check in self._checks]
        figures |= {f"{check.name}_evidence": float(n) for check, n in zip(self._checks, counts, strict=True)}
        used = [check for check, count in zip(self._checks, counts, strict=True) if count]
        if not used:
            return []

        async def measure(version: int) -> list[Any]:
            return [await check.measure() for check in used]

        measured = await under_each((candidate, incumbent), candidate, load, measure)
        found: list[Finding] = []
        for check, one, other in zip(used, measured[candidate], measured[incumbent], strict=True):
            report = check.judge(one, other)
            found += report.findings
            figures |= report.figures
            _log.info("gate_checked", check=check.name, breaches=[finding.reason for finding in report.findings])
        return found


async def under_each(
    versions: Iterable[int], candidate: int, load: Load, work: Callable[[int], Awaitable[T]]
) -> dict[int, T]:
    """What `work` comes to under each of `versions`. The candidate is loaded, and is loaded again in the end: the
    rollouts go on with what is left in the engine."""
    found: dict[int, T] = {}
    loaded = candidate
    try:
        for version in dict.fromkeys(versions):
            if version != loaded:
                loaded = version
                with anyio.CancelScope(shield=True):  # a load has a deadline of its own, and must not stop half way
                    await load(version)
            found[version] = await work(version)
        return found
    finally:
        if loaded != candidate:
            with anyio.CancelScope(shield=True):
                await load(candidate)


def conclude(
    effect: Comparison, findings: Sequence[Finding], figures: dict[str, float], *, unchecked: bool = False
) -> Comparison:
    """The verdict from the effect and the findings, in the order that the module's text gives."""
    reasons = {kind: [finding.reason for finding in findings if finding.kind == kind] for kind in _KINDS}
    figures = figures | effect.measurements | {f"breaches_{kind}": float(len(told)) for kind, told in reasons.items()}
    limits = reasons["conduct"] + reasons["drift"]
    if reasons["safety"]:
        return Comparison("reject", "; ".join([*reasons["safety"], effect.reason]), figures)
    if effect.decision == "reject":
        return Comparison("reject", "; ".join([effect.reason, *limits]), figures)
    if limits:
        return Comparison("reject", "; ".join([*limits, effect.reason]), figures)
    if unchecked:
        return Comparison("hold", f"{effect.reason}; out of time before all checks were done", figures)
    return Comparison(effect.decision, effect.reason, figures)
