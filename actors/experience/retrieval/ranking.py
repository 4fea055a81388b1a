"""What a lesson that was found is worth: how it is chosen among others that fit."""

import msgspec

from actors.messages import Experience


class Found(msgspec.Struct, frozen=True):
    """A lesson that may fit."""

    lesson: Experience
    named: bool
    """The goal says its intent, or the agent has the tool whose new name it tells."""
    likeness: float
    """Inner product of its vector with the nearer of the query's; 0 where there is no vector."""
    coverage: float
    """How much of the query its words cover, 0 to 1 (see `actors.ports.search.texts`)."""


WORDS = 0.5
"""Where there are vectors: share of the words in how alike a lesson and a query are; chosen in docs/measured.md."""
_RECENCY = 0.01
"""Weight of a lesson's youth, 1 for the youngest: enough to decide between equals."""
_HALF_LIFE = 604_800.0
"""Seconds of age that halve it."""


def alike(found: Found) -> float:
    """How alike lesson and query are, 0 to 1; what the goal names is as like as can be, and without a vector words
    decide alone."""
    if found.named:
        return 1.0
    if not found.likeness:
        return found.coverage
    return max(0.0, (1 - WORDS) * found.likeness + WORDS * found.coverage)


def ordered(found: list[Found]) -> list[Found]:
    """Active lessons first, the best first; the same for the same input."""
    newest = max((one.lesson.updated for one in found), default=0.0)

    def key(one: Found) -> tuple[bool, float, float, str]:
        youth = 0.5 ** min((newest - one.lesson.updated) / _HALF_LIFE, 1000.0)
        worth = utility(one.lesson) + alike(one) + _RECENCY * youth
        return one.lesson.state != "active", -worth, -one.lesson.updated, one.lesson.id

    return sorted(found, key=key)


def utility(lesson: Experience) -> float:
    """How much guidance by the lesson adds to the success rate, -1 to 1, shrunk towards 0 while trials are few."""
    (guided, guided_won), (unguided, unguided_won) = lesson.guided, lesson.unguided
    return (guided_won + 1) / (guided + 2) - (unguided_won + 1) / (unguided + 2)
