"""When the store has changed under the actors: somebody forgot a tenant, or revised a lesson by hand.

Actors rebuild what they keep in memory (`Actor.start`) before their next batch or tick.
"""


class CacheInvalidation:
    """Shared by the actors of one daemon."""

    def __init__(self) -> None:
        self.asked = 0
        """How often it was asked for."""

    def ask(self) -> None:
        """What the actors know is out of date."""
        self.asked += 1
