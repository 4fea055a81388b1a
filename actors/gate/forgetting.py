"""The forgetting suite: what the best version could do, the candidate must still be able to do, family by family. Pure.

Families are clusters of the held-out tasks' goals; one is *healthy* if the best version solves six in ten of its tasks.
Reject: for some family "not worse" is refuted (Holm's procedure keeps the error over all of them). Hold: some family is
not shown yet to be within `margin`; all must be, so no correction is due (Berger 1982).
"""

from collections.abc import Mapping, Sequence

import msgspec

from actors.statistics.intervals import Decision, Interval
from actors.statistics.paired_sequential import confidence_sequence, p_value

_ALPHA = 0.25
"""Probability at most that a family which fell by the margin or more is taken for one that did not: generous, for a
family has few tasks; what rejects is `_FAMILYWISE`."""
_FAMILYWISE = 0.05
"""Probability at most that a candidate which is worse on no family is rejected over one, over all families (Holm)."""
_HEALTHY = 0.6
"""Success under the best version from which a family is watched: of what was rarely solved little can be lost."""
_LEAST = 8
"""Tasks that a family needs to be watched."""
_MOST = 24
"""Families watched at most, those with the most tasks: with more of them Holm's procedure finds nothing any more."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One family under both versions, on the tasks that both attempted."""

    name: str
    """For people: the goal with its names masked."""
    candidate: Sequence[float]
    """`(n,)` share of attempts that solved the task."""
    reference: Sequence[float]
    """`(n,)`, the same tasks in the same order."""

    @property
    def tasks(self) -> int:
        return len(self.candidate)

    @property
    def differences(self) -> list[float]:
        """`(n,)` candidate minus reference."""
        return [mine - theirs for mine, theirs in zip(self.candidate, self.reference, strict=True)]


class Suite(msgspec.Struct, frozen=True):
    """What the suite came to."""

    decision: Decision
    """promote: nothing stands against it."""
    reason: str
    """Names the families that stand in the way, empty if none do."""
    figures: dict[str, float]


def forgetting(families: Mapping[str, Family], margin: float) -> Suite:
    """Judge `families`, by their key in the measurements; a healthy one may be worse than under the best version ever
    served by `margin`."""
    ordered = sorted(families.items(), key=lambda entry: (-entry[1].tasks, entry[0]))
    large = [entry for entry in ordered if entry[1].tasks >= _LEAST]
    watched = large[:_MOST]
    figures = {
        "families": float(len(families)),
        "families_small": float(len(ordered) - len(large)),
        "families_unwatched": float(len(large) - len(watched)),
    }
    healthy: list[tuple[str, Family]] = []
    for key, family in watched:
        difference = confidence_sequence(family.differences, _ALPHA, _FAMILYWISE)
        figures |= _figures(key, family, difference)
        if _mean(family.reference) >= _HEALTHY:
            healthy.append((key, family))
    figures["families_healthy"] = float(len(healthy))
    lost = _holm({key: p_value([-worse for worse in family.differences], 0.0) for key, family in healthy})
    figures["families_lost"] = float(len(lost))
    if lost:
        return Suite("reject", "forgotten: " + _told(healthy, lost), figures)
    open_ = [key for key, family in healthy if p_value(family.differences, -margin) > _ALPHA]
    if open_:
        return Suite("hold", f"not yet shown within {margin:g}: " + _told(healthy, open_), figures)
    return Suite("promote", "", figures)


def _holm(p_values: Mapping[str, float]) -> list[str]:
    """Keys whose null hypothesis falls, smallest p first."""
    fallen: list[str] = []
    for rank, (key, p) in enumerate(sorted(p_values.items(), key=lambda entry: entry[1])):
        if p > _FAMILYWISE / (len(p_values) - rank):
            break
        fallen.append(key)
    return fallen


def _told(families: Sequence[tuple[str, Family]], keys: Sequence[str]) -> str:
    told = [
        f'"{family.name}" {_mean(family.candidate):.2f} against {_mean(family.reference):.2f} on {family.tasks} tasks'
        for key, family in families
        if key in keys
    ]
    return "; ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")


def _figures(key: str, family: Family, difference: Interval) -> dict[str, float]:
    return {
        f"family_{key}_tasks": float(family.tasks),
        f"family_{key}_success": _mean(family.candidate),
        f"family_{key}_best_success": _mean(family.reference),
        f"family_{key}_difference": difference.estimate,
        f"family_{key}_low": difference.low,
        f"family_{key}_high": difference.high,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
