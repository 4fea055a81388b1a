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


class RankSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts how much where several lessons fit."""

    words: float = 0.5
    """Where there are vectors: share of the words in how alike a lesson and a query are; the rest is the vectors'."""
    utility: float = 1.0
    """Weight of what guidance by the lesson adds to the success rate."""
    likeness: float = 1.0
    """Weight of how alike they are."""
    recency: float = 0.01
    """Weight of a lesson's youth, 1 for the youngest that was found: enough to decide between equals."""
    half_life: float = 604_800.0
    """Seconds of age that halve it."""

    def __post_init__(self) -> None:
        if not 0 <= self.words <= 1 or min(self.utility, self.likeness, self.recency) < 0 or self.half_life <= 0:
            raise ValueError("navigator.rank: words is 0 to 1, no weight is negative, half_life is above 0")

    def alike(self, found: Found) -> float:
        """How alike lesson and query are, 0 to 1; what the goal names is as like as can be, and without a vector words
        decide alone."""
        if found.named:
            return 1.0
        if not found.likeness:
            return found.coverage
        return max(0.0, (1 - self.words) * found.likeness + self.words * found.coverage)

    def order(self, found: list[Found]) -> list[Found]:
        """Active lessons first, the best first; the same for the same input."""
        newest = max((one.lesson.updated for one in found), default=0.0)

        def key(one: Found) -> tuple[bool, float, float, str]:
            age = newest - one.lesson.updated
            worth = (
                self.utility * utility(one.lesson)
                + self.likeness * self.alike(one)
                + self.recency * 0.5 ** min(age / self.half_life, 1000.0)
            )
            return one.lesson.state != "active", -worth, -one.lesson.updated, one.lesson.id

        return sorted(found, key=key)


def utility(lesson: Experience) -> float:
    """How much guidance by the lesson adds to the success rate, -1 to 1, shrunk towards 0 while trials are few."""
    (guided, guided_won), (unguided, unguided_won) = lesson.guided, lesson.unguided
    return (guided_won + 1) / (guided + 2) - (unguided_won + 1) / (unguided + 2)
