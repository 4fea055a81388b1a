"""Two sides of runs compared: like with like, at a level that looks spend, and on no one party's word. Pure.

    runs after, runs before  ->  no party above its cap, without those that pull hardest  ->  strata  ->  a test

The watch over versions and agents asks so, and the trial of a version (`actors.deployment.arms`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

import msgspec

from actors.monitoring.settings import SAMPLE
from actors.statistics import change_tests as seq
from actors.statistics.change_tests import Looks, Strata
from actors.statistics.parties import binds, set_aside, thinned
from actors.statistics.strata import Place, sorted_out, stratum_of
from actors.tool_results.runs import RunSummary

LEAST = 24
"""Runs that the side before the swap must have; with an outcome, where outcomes are compared."""
FIRST_LOOK, GROWTH = 12, 1.4
"""Runs after the swap at which a monitor looks for the first time, and again when there are so many times as many."""

Runs = Sequence[RunSummary]
Value = Callable[[RunSummary], float | None]
Where = Callable[[RunSummary], Place]
"""What a run is like, the coarsest first."""
Spend = Callable[[float], float]
"""From an error over all looks to the level of this one."""


class Comparison(msgspec.Struct, frozen=True):
    """What one look came to."""

    found: bool
    text: str
    """The numbers, for people."""
    values: dict[str, float]
    parties: tuple[str, ...] = ()
    """Without whom it is not found, who pulls hardest first; empty: it is found without any one party."""

    @property
    def note(self) -> str:
        """Why it is only told; empty if nobody's word alone says so."""
        return f"; not acted on, for it is not shown without {' and '.join(self.parties)}" if self.parties else ""

    @property
    def details(self) -> dict[str, str]:
        """For those who act on it."""
        party = {"party": self.parties[0]} if self.parties else {}
        return party | {name: f"{value:.4g}" for name, value in self.values.items()}


Compare = Callable[[Runs, Runs, Spend], Comparison]


def alike(run: RunSummary) -> Place:
    """By agent, tool list, unit of length, neighbourhood and kind of goal.

    Users may begin to ask for something else on the day of a swap; what only one side was asked for says nothing of the
    weights. Kinds that are rare are one (`actors.statistics.strata`).
    """
    return (run.tenant, run.agent, run.tools, run.tokens), run.near, run.kind


def reported_alike(run: RunSummary) -> Place:
    """By how late it was reported, too.

    Where failures are reported at once and successes after hours, little but failures is known of a version that began
    to serve an hour ago, however good it is. Among reports that took equally long it is compared with its like.
    """
    return (run.tenant, run.agent, run.tools, run.tokens, run.late), run.near, run.kind


def strata(after: Runs, before: Runs, value: Value, where: Where = alike) -> Strata:
    """The values of both sides, apart by what runs are like; runs without a value are left out."""
    return sorted_out((where(run), mine, one) for run, mine, one in _valued(after, before, value))


def _valued(after: Runs, before: Runs, value: Value) -> list[tuple[RunSummary, bool, float]]:
    sides = ((True, after), (False, before))
    return [(run, mine, one) for mine, runs in sides for run in runs if (one := value(run)) is not None]


def looked(
    looks: Looks, after: Runs, before: Runs, compare: Compare, pulled: Value, where: Where
) -> Comparison | None:  # fmt: skip
    """What the next of these looks came to; None if it is too early for it."""
    # A party that reports everything must not use up the looks before the others have spoken.
    runs = len(thinned_runs(after, bound=bound(after, before)))
    if len(before) < LEAST or not looks.due(runs, FIRST_LOOK):
        return None
    looks.take(runs, GROWTH)
    planned = seq.planned_looks(FIRST_LOOK, GROWTH, SAMPLE)
    return weighed(after, before, lambda total: looks.spend(total, planned), compare, pulled, where)


def weighed(after: Runs, before: Runs, spend: Spend, compare: Compare, pulled: Value, where: Where) -> Comparison:
    """`compare` the two sides; where the party rule binds also without those who pull hardest."""
    if not bound(after, before):
        return compare(after, before, spend)

    def half(total: float) -> float:
        """Two comparisons share the error of the look."""
        return spend(total / 2)

    after, before, aside = fair(after, before, pulled, where)
    trimmed = compare(without(after, aside), without(before, aside), half)
    if trimmed.found:
        return trimmed

    def less(party: str) -> float:
        """How sure the comparison is without `party`: minus its p-value, lowest where most of it was that party's."""
        left = compare(without(after, (party,)), without(before, (party,)), lambda total: total)
        return -left.values["p"]

    whole = compare(after, before, half)
    return msgspec.structs.replace(whole, parties=tuple(sorted(aside, key=less)) if whole.found else ())


def fair(after: Runs, before: Runs, value: Value, where: Where) -> tuple[Runs, Runs, frozenset[str]]:
    """Both sides, oldest first, with no party above its cap; and the two parties that pull their difference hardest,
    whose word counts on neither. All as it is where the party rule does not bind."""
    if not bound(after, before):
        return after, before, frozenset()
    after, before = (thinned_runs(side, bound=True) for side in (after, before))
    parties = [run.party for run in (*after, *before)]
    return after, before, set_aside(parties, _difference(_valued(after, before, value), where))


def _difference(runs: Sequence[tuple[RunSummary, bool, float]], where: Where) -> Callable[[Collection[str]], float]:
    """How much higher the values after are, without some parties; NaN if no stratum has both sides.

    Weighted as `actors.statistics.change_tests.means` does, of values summed up once: it is asked once a party.
    """
    placed = [(run.party, where(run), mine, one) for run, mine, one in runs]
    stratum = stratum_of(Counter((place, mine) for _, place, mine, _ in placed))
    # By stratum (runs before, their sum, runs after, their sum): of all, and of each party.
    total: dict[Place, list[float]] = {}
    of_party: defaultdict[str, dict[Place, list[float]]] = defaultdict(dict)
    for party, place, mine, one in placed:
        at = stratum[place]
        for sums in (total, of_party[party]):
            held = sums.setdefault(at, [0, 0.0, 0, 0.0])
            held[2 * mine] += 1
            held[2 * mine + 1] += one

    def difference(left_out: Collection[str]) -> float:
        kept = dict(total)
        for party in left_out:
            for at, gone in of_party[party].items():
                kept[at] = [held - less for held, less in zip(kept[at], gone, strict=True)]
        found = weights = 0.0
        for rest, rest_sum, mine, my_sum in kept.values():
            if mine and rest:
                weight = mine * rest / (mine + rest)
                weights += weight
                found += weight * (my_sum / mine - rest_sum / rest)
        return found / weights if weights else math.nan

    return difference


def bound(after: Runs, before: Runs) -> bool:
    """Whether the party rule holds for these runs."""
    return binds(run.party for run in (*after, *before))


def without(runs: Runs, parties: Collection[str]) -> list[RunSummary]:
    """`runs` that are of none of the `parties`."""
    return [run for run in runs if run.party not in parties]


def thinned_runs(runs: Runs, *, bound: bool) -> list[RunSummary]:
    """`runs`, oldest first, no party above its cap."""
    newest_first = runs[::-1]
    return [newest_first[place] for place in thinned([run.party for run in newest_first], bound=bound)][::-1]


def success(run: RunSummary) -> float | None:
    """1 for a success, 0 for a failure."""
    return None if run.succeeded is None else float(run.succeeded)


def fall(after: Runs, before: Runs, level: float, least: float) -> Comparison:
    """Whether success fell by `least` at this level; all runs have an outcome."""
    sorted_runs = strata(after, before, success, reported_alike)
    now, was = seq.means(sorted_runs)
    p = seq.share_fall(sorted_runs)
    found = p <= level and was - now >= least
    return Comparison(found, f"success {was:.0%} -> {now:.0%}", {"before": was, "after": now, "p": p})
