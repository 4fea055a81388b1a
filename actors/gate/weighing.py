"""What the scored runs say together, and which agent is surely worse off: the replay trial's arithmetic.

The decision is pooled over all groups (`evidence`). One group vetoes it only on conclusive harm: its own
interval, at `_HARM` over all groups with enough evidence together (Bonferroni), says that the candidate is worse and
may be so by more than the margin. Where the party rule binds the harm must stand without any one of the group's
parties; what one party alone reports is told, not acted on.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import hypot, inf, nan

import msgspec

from actors.gate.evidence import Group
from actors.statistics.intervals import decide
from actors.statistics.off_policy import Pull, pull
from actors.statistics.parties import binds, set_aside, with_evidence

_HARM = 0.05
"""Chance that of all groups that are not worse off any vetoes, one verdict."""
_LEAST = 8
"""Runs that a group needs to be asked."""
_SHOWN = 2
"""Tools of a group that are named."""


class Weighed(msgspec.Struct):
    """A run and its score."""

    group: Group
    party: str
    outcome: float
    score: float
    """Of its tokens (`off_policy`)."""


class Vetoes(msgspec.Struct, frozen=True):
    """Groups that are worse off, in words."""

    harmed: list[str]
    told: list[str]
    """Those whose harm one party alone reports."""
    figures: dict[str, float]


def pooled(runs: Sequence[Weighed]) -> tuple[Pull, dict[str, float]]:
    """The pull of all runs but those of parties that are set aside, and what the verdict says of parties.

    Where a liar was one of the two that were set aside, the other was honest, and what is left leans away from it,
    about as far as the most telling of those left moves it. That is added to the error, in quadrature.
    """
    names = [one.party for one in runs]

    def without(left_out: Collection[str]) -> Pull:
        return _pull([one for one in runs if one.party not in left_out])

    def difference(left_out: Collection[str]) -> float:
        found = without(left_out)
        return found.interval(0.5).estimate if found.count else nan

    aside = set_aside(names, difference)
    found = without(aside)
    kept = sorted(set(names) - aside) if aside and found.error < inf else []
    lean = max((abs(without({*aside, name}).estimate - found.estimate) for name in kept), default=0.0)
    figures = {
        "parties": float(with_evidence(names)),
        "parties_bind": float(binds(names)),
        "parties_aside": float(len(aside)),
    }
    return msgspec.structs.replace(found, error=hypot(found.error, lean)), figures


def veto(runs: Sequence[Weighed], margin: float) -> Vetoes:
    """Which groups are surely worse off."""
    by_group: defaultdict[Group, list[Weighed]] = defaultdict(list)
    for one in runs:
        by_group[one.group].append(one)
    asked = {name: some for name, some in by_group.items() if len(some) >= _LEAST} if len(by_group) > 1 else {}
    harmed: list[str] = []
    told: list[str] = []
    binding = binds([one.party for one in runs])
    for name in sorted(asked):
        confidence = 1 - 2 * _HARM / len(asked)
        found = _pull(asked[name]).interval(confidence)
        if decide(found, margin) != "reject":
            continue
        text = f"agent {_words(name)} is worse off: {found.estimate:+.2f}, at most {found.high:+.2f}"
        parties = {one.party for one in asked[name]}
        rests = [[one for one in asked[name] if one.party != left] for left in sorted(parties)]
        if binding and any(decide(_pull(rest).interval(confidence), margin) != "reject" for rest in rests):
            told.append(f"{text}, but one party alone says so")
        else:
            harmed.append(text)
    figures = {
        "groups": float(len(by_group)), "groups_asked": float(len(asked)), "groups_harmed": float(len(harmed)),
        "groups_told": float(len(told)),
    }  # fmt: skip
    return Vetoes(harmed, told, figures)


def _pull(runs: Sequence[Weighed]) -> Pull:
    return pull([one.outcome for one in runs], [one.score for one in runs])


def _words(group: Group) -> str:
    tenant, tools = group
    more = f" and {len(tools) - _SHOWN} more" if len(tools) > _SHOWN else ""
    return f"{tenant} ({', '.join(tools[:_SHOWN]) or 'no tools'}{more})"
