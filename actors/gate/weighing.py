"""What scored runs say together: how far the candidate is from the incumbent, how much better it would have done, and
which agent is surely worse off. Pure.

The decision is pooled over all groups (`evidence`). One group vetoes it only on conclusive harm: its own
interval, at `_HARM` over all groups with enough evidence together (Bonferroni), says that the candidate is worse and
may be so by more than the margin. Where the party rule binds the harm must stand without any one of the group's
parties; what one party alone reports is told, not acted on.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import fsum, hypot, inf, nan

import msgspec
import numpy as np

from actors.gate.evidence import Group, HeldOut
from actors.gate.panel import Finding, Report
from actors.messages import floats_array, steps_array
from actors.statistics.intervals import decide
from actors.statistics.off_policy import Pull, pull, token_terms
from actors.statistics.parties import binds, set_aside, with_evidence

_HARM = 0.05
"""Chance that of all groups that are not worse off any vetoes, one verdict."""
_LEAST = 8
"""Runs that a group needs to be asked."""
_SHOWN = 2
"""Tools of a group that are named."""
_WEIGHT_LIMIT = 5.0
"""A token's importance weight is cut off here: docs/measured.md has the table that it was chosen by."""
_TOKENS = 512
"""With fewer sampled tokens no distance is too far."""


class Scored(msgspec.Struct, frozen=True):
    """A run and what its sampled tokens say."""

    found: HeldOut
    score: float
    """Of its outcome's weight (`off_policy`)."""
    nats: float
    """Divergence of the candidate from the incumbent."""
    tokens: int


def scored(found: HeldOut, candidate: Sequence[float], incumbent: Sequence[float]) -> Scored:
    """From the log-probs of a run's sampled tokens, row after row, under both versions.

    The divergence is k3 (Schulman 2020): unbiased for KL(incumbent || candidate) on the incumbent's tokens, and never
    negative.
    """
    new, old = np.asarray(candidate, np.float64), np.asarray(incumbent, np.float64)
    rows = [floats_array(row.logprobs)[steps_array(row.step) >= 0] for row in found.run.rows]
    terms = token_terms(new, old, np.concatenate(rows).astype(np.float64), _WEIGHT_LIMIT)
    gaps = np.minimum(new - old, 20.0)
    return Scored(found, float(terms.sum()), float((np.expm1(gaps) - gaps).sum()), len(gaps))


def distance(runs: Sequence[Scored], limit: float) -> tuple[float, Report]:
    """Nats a token that the candidate is away from the incumbent, and what follows if that is above `limit`.

    The two parties that pull it hardest are left out: anybody can write what no version has seen.
    """

    def kl(left_out: Collection[str]) -> float:
        kept = [one for one in runs if one.found.party not in left_out]
        tokens = sum(one.tokens for one in kept)
        return fsum(one.nats for one in kept) / tokens if tokens else nan

    tokens = sum(one.tokens for one in runs)
    found = kl(set_aside([one.found.party for one in runs], kl)) if tokens else 0.0
    reason = f"{found:.3f} nats a token from the incumbent on production tokens, {limit:g} are allowed"
    far = tokens >= _TOKENS and found > limit
    figures = {"drift_tokens": float(tokens), "drift_kl": found}
    return found, Report((Finding("drift", reason),) if far else (), figures)


class Vetoes(msgspec.Struct, frozen=True):
    """Groups that are worse off, in words."""

    harmed: list[str]
    told: list[str]
    """Those whose harm one party alone reports."""
    figures: dict[str, float]


def pooled(runs: Sequence[Scored]) -> tuple[Pull, dict[str, float]]:
    """The pull of all runs but those of parties that are set aside, and what the verdict says of parties.

    Where a liar was one of the two that were set aside, the other was honest, and what is left leans away from it,
    about as far as the most telling of those left moves it. That is added to the error, in quadrature.
    """
    names = [one.found.party for one in runs]

    def without(left_out: Collection[str]) -> Pull:
        return _pull([one for one in runs if one.found.party not in left_out])

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


def veto(runs: Sequence[Scored], margin: float) -> Vetoes:
    """Which groups are surely worse off."""
    by_group: defaultdict[Group, list[Scored]] = defaultdict(list)
    for one in runs:
        by_group[one.found.group].append(one)
    asked = {name: some for name, some in by_group.items() if len(some) >= _LEAST} if len(by_group) > 1 else {}
    harmed: list[str] = []
    told: list[str] = []
    binding = binds([one.found.party for one in runs])
    for name in sorted(asked):
        confidence = 1 - 2 * _HARM / len(asked)
        found = _pull(asked[name]).interval(confidence)
        if decide(found, margin) != "reject":
            continue
        text = f"agent {_words(name)} is worse off: {found.estimate:+.2f}, at most {found.high:+.2f}"
        parties = {one.found.party for one in asked[name]}
        rests = [[one for one in asked[name] if one.found.party != left] for left in sorted(parties)]
        if binding and any(decide(_pull(rest).interval(confidence), margin) != "reject" for rest in rests):
            told.append(f"{text}, but one party alone says so")
        else:
            harmed.append(text)
    figures = {
        "groups": float(len(by_group)), "groups_asked": float(len(asked)), "groups_harmed": float(len(harmed)),
        "groups_told": float(len(told)),
    }  # fmt: skip
    return Vetoes(harmed, told, figures)


def _pull(runs: Sequence[Scored]) -> Pull:
    return pull([one.found.run.outcome or 0.0 for one in runs], [one.score for one in runs])


def _words(group: Group) -> str:
    tenant, tools = group
    more = f" and {len(tools) - _SHOWN} more" if len(tools) > _SHOWN else ""
    return f"{tenant} ({', '.join(tools[:_SHOWN]) or 'no tools'}{more})"
