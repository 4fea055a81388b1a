"""How far a judge's labels can be trusted, by what became known without it.

A share of the trajectories whose outcome is verified is shown to the judge blind; its labels, summed with sign and
confidence, are its score. The weight follows from the AUC (Hanley and McNeil 1982): how often, of a good and a bad one,
the judge scores the good one higher. A precision depends on how many trajectories succeed and on how generous the judge
is; the AUC on neither, and nor does credit, which compares labels with each other (docs/measured.md). Parties are held
to `actors.statistics.parties`.
"""

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from actors.messages import StepLabel
from actors.statistics.change_tests import mid_ranks
from actors.statistics.intervals import wilson
from actors.statistics.parties import set_aside, thinned

WINDOW = 400
"""Newest pieces of evidence that count."""
EVIDENCE = 30
"""Good and bad ones, of each so many, before a weight follows; until then it is 1."""
THRESHOLD = 0.75
"""Lower bound of the AUC from which on labels count in full; at 0.5, a coin's, they count nothing."""


class Observation(msgspec.Struct, frozen=True, array_like=True):
    """One piece of evidence."""

    score: float
    """What the judge thought, its labels summed: above 0 good, below 0 bad."""
    steps: int
    """How many steps it gave a label."""
    good: bool
    """What became known."""
    party: str = ""
    """Who says so; of our own trials each is one."""


def weight_of(window: Sequence[Observation]) -> float | None:
    """A judge's weight: (2 L - 1) / (2 T - 1) within 0 and 1, of the AUC's lower bound L and the threshold T; None
    without enough evidence. 2 L - 1 is 0 for a coin and 1 for a judge that is never wrong.
    """
    scored = _agreed([one for one in window if one.steps])
    good = sum(one.good for one in scored)
    area = auc(scored) if min(good, len(scored) - good) >= EVIDENCE else None
    return min(1.0, max(0.0, (2.0 * area[1] - 1.0) / (2.0 * THRESHOLD - 1.0))) if area else None


def observed(labels: Sequence[StepLabel], *, good: bool, party: str = "") -> Observation:
    """Labels summed with sign and confidence, beside what became known of the same steps."""
    signs = {"GOOD": 1.0, "BAD": -1.0, "ABSTAIN": 0.0}
    summed = sum(signs[label.label] * label.confidence for label in labels)
    return Observation(summed, sum(label.label != "ABSTAIN" for label in labels), good, party)


def figures(window: Sequence[Observation]) -> dict[str, float | None]:
    """What `window` says. `silent`: those that the judge gave no label, or labels that cancel out."""
    area, low = auc(window) or (None, None)
    return {"n": len(window), "silent": sum(not one.score for one in window), "auc": area, "auc_low": low}


def auc(window: Sequence[Observation]) -> tuple[float, float] | None:
    """The AUC and its lower bound; None without both a good and a bad one that got labels.

    Scores are less what the judge's average label adds up to over as many steps, as credit centres labels: or a judge
    that finds everything good would seem to know something wherever successes are longer than failures.
    """
    labelled = [one for one in window if one.steps]
    mean = sum(one.score for one in labelled) / max(1, sum(one.steps for one in labelled))
    scored = [(round(one.score - mean * one.steps, 9), one.good) for one in labelled]
    good = sum(was for _, was in scored)
    bad = len(scored) - good
    if not good or not bad:
        return None
    # Of the ranks of good ones, those that good ones have among themselves tell nothing.
    ranks = mid_ranks(np.array([score for score, _ in scored]))
    among = good * (good + 1) / 2
    area = float(ranks[[was for _, was in scored]].sum() - among) / (good * bad)
    # Its deviation is at most that of a share of so many trials, for all areas that matter here.
    trials = max(1, round(2 * good * bad / (good + bad)))
    return area, wilson(area * trials, trials)[0]


def _agreed(window: Sequence[Observation]) -> list[Observation]:
    """What a weight follows from: no party's word."""
    newest = window[::-1]
    kept = [newest[place] for place in thinned([one.party for one in newest])]

    def area(left_out: Collection[str]) -> float:
        found = auc([one for one in kept if one.party not in left_out])
        return found[0] if found else float("nan")

    aside = set_aside([one.party for one in kept], area)
    return [one for one in kept if one.party not in aside]
