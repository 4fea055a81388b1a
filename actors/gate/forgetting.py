"""The forgetting suite: what the best version could do, the candidate must still be able to do, family by family. Pure.

Families are clusters of the held-out tasks' goals; one is *healthy* if the best version solves six in ten of its tasks.
Reject: for some family "not worse" is refuted (Holm's procedure keeps the error over all of them). Hold: some family is
not shown yet to be within `margin`; all must be, so no correction is due (Berger 1982).
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from actors.gate.panel import Comparison
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


class Family(msgspec.Struct, frozen=True):
    """One family under both versions, on the tasks that both attempted."""

    name: str
    """For people: the goal with its names masked."""
    pairs: Sequence[tuple[float, float]]
    """Of each task: share of attempts that solved it, the candidate's and the best version's."""

    @property
    def differences(self) -> list[float]:
        """Candidate minus best version, of each task."""
        return [mine - theirs for mine, theirs in self.pairs]

    @property
    def success(self) -> tuple[float, float]:
        """The candidate's and the best version's."""
        return fmean(mine for mine, _ in self.pairs), fmean(theirs for _, theirs in self.pairs)

    def __str__(self) -> str:
        return '"{}" {:.2f} against {:.2f} on {} tasks'.format(self.name, *self.success, len(self.pairs))


def forgetting(families: Mapping[str, Family], margin: float) -> Comparison:
    """Judge `families`, by their key in the measurements; a healthy one may be worse than under the best version ever
    served by `margin`. The reason names the families that stand in the way; promote, and none: nothing stands against
    it."""
    ordered = sorted(families.items(), key=lambda entry: (-len(entry[1].pairs), entry[0]))
    large = [entry for entry in ordered if len(entry[1].pairs) >= _LEAST]
    watched = large[:_MOST]
    figures: dict[str, float] = {}
    for key, family in watched:
        difference = confidence_sequence(family.differences, _ALPHA, _FAMILYWISE)
        figures |= {
            f"family_{key}_tasks": float(len(family.pairs)),
            f"family_{key}_success": family.success[0],
            f"family_{key}_best_success": family.success[1],
            f"family_{key}_difference": difference.estimate,
            f"family_{key}_low": difference.low,
            f"family_{key}_high": difference.high,
        }
    healthy = [family for _, family in watched if family.success[1] >= _HEALTHY]
    lost = _holm(healthy)
    unsure = [family for family in healthy if p_value(family.differences, -margin) > _ALPHA]
    figures |= {
        "families": float(len(families)),
        "families_small": float(len(ordered) - len(large)),
        "families_unwatched": float(len(large) - len(watched)),
        "families_healthy": float(len(healthy)),
        "families_lost": float(len(lost)),
    }
    if lost:
        return Comparison("reject", f"forgotten: {_told(lost)}", figures)
    if unsure:
        return Comparison("hold", f"not yet shown within {margin:g}: {_told(unsure)}", figures)
    return Comparison("promote", "", figures)


def _holm(families: Sequence[Family]) -> list[Family]:
    """Those whose null hypothesis, "not worse", falls."""
    found = [(p_value([-worse for worse in family.differences], 0.0), family) for family in families]
    found.sort(key=lambda entry: entry[0])
    stands = (at for at, (p, _) in enumerate(found) if p > _FAMILYWISE / (len(found) - at))
    return [family for _, family in found[: next(stands, len(found))]]


def _told(families: Sequence[Family]) -> str:
    more = f" and {len(families) - 3} more" if len(families) > 3 else ""
    return "; ".join(str(family) for family in families[:3]) + more
