"""The panel: everything that is measured of a candidate, and what outranks what.

One `Trial` says how tasks end: the *effect*. *Checks* (`prompts`, `safety`, `drift`) measure candidate and incumbent on
the same evidence. The first that applies decides: a safety finding rejects; the effect rejects; a conduct or drift
finding rejects; the effect promotes or holds. Everything is measured, as far as the deadline allows, and what that
leaves open cannot promote. Where the trial waits for evidence there is no verdict, and nothing else is measured.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import anyio
import msgspec
import structlog

from actors.gate.sandbox_trial import Comparison, Load, Trial

_log = structlog.get_logger(__name__)

Kind = Literal["safety", "conduct", "drift"]
_DECISIVE: tuple[Kind, ...] = ("conduct", "drift")


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


VERDICT_SECONDS = 600.0
"""For one verdict; what is measured by then counts, and what it leaves open is held."""


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

    def __init__(self, *, trial: Trial, checks: Sequence[Check], seconds: float = VERDICT_SECONDS) -> None:
        self._trial, self._checks, self._seconds = trial, checks, seconds

    async def compare(
        self, candidate: int, incumbent: int, served: Sequence[int], load: Load, *, deadline: float = math.inf
    ) -> Comparison:
        deadline = min(deadline, anyio.current_time() + self._seconds)
        findings: list[Finding] = []
        figures: dict[str, float] = {}
        effect = await self._trial.compare(candidate, incumbent, served, load, deadline=deadline)
        if effect.decision == "wait":
            return effect  # asked again soon; the checks are for a verdict
        with anyio.CancelScope(deadline=deadline) as scope:
            await self._check(candidate, incumbent, load, findings, figures)
        unchecked = scope.cancelled_caught
        figures["unchecked"] = float(unchecked)
        return conclude(effect, findings, figures, unchecked=unchecked)

    async def _check(
        self, candidate: int, incumbent: int, load: Load, findings: list[Finding], figures: dict[str, float]
    ) -> None:
        """All checks, with one load of the incumbent; the candidate is loaded again in the end."""
        used: list[Check] = []
        for check in self._checks:
            count = await check.gather()
            figures[f"{check.name}_evidence"] = float(count)
            if count:
                used.append(check)
        mine = [await check.measure() for check in used]
        theirs = mine
        if used and incumbent != candidate:
            try:
                with anyio.CancelScope(shield=True):  # a load has a deadline of its own, and must not stop half way
                    await load(incumbent)
                theirs = [await check.measure() for check in used]
            finally:
                with anyio.CancelScope(shield=True):
                    await load(candidate)
        for check, one, other in zip(used, mine, theirs, strict=True):
            report = check.judge(one, other)
            findings += report.findings
            figures |= report.figures
            _log.info("gate_checked", check=check.name, breaches=[finding.reason for finding in report.findings])


def conclude(
    effect: Comparison, findings: Sequence[Finding], figures: dict[str, float], *, unchecked: bool = False
) -> Comparison:
    """The verdict from the effect and the findings, in the order that the module's text gives."""
    figures = figures | effect.measurements | {f"breaches_{kind}": 0.0 for kind in ("safety", *_DECISIVE)}
    for finding in findings:
        figures[f"breaches_{finding.kind}"] += 1.0
    decision = effect.decision
    reason = effect.reason
    safety = [finding.reason for finding in findings if finding.kind == "safety"]
    decisive = [finding.reason for finding in findings if finding.kind in _DECISIVE]
    if safety:
        decision, reason = "reject", "; ".join([*safety, effect.reason])
    elif effect.decision == "reject":
        reason = "; ".join([effect.reason, *decisive])
    elif decisive:
        decision, reason = "reject", "; ".join([*decisive, effect.reason])
    elif unchecked:
        decision, reason = "hold", f"{effect.reason}; out of time before all checks were done"
    return Comparison(decision, reason, figures)
