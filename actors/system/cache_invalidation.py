"""When the store has changed under the actors: somebody forgot a tenant, or revised a lesson by hand.

Actors keep in memory what they read from the store, and can rebuild it at any time (`Actor.start`). A
`CacheInvalidation` asks them to: each does so before its next batch or tick, within about
`RunnerSettings.fetch_seconds` when idle.
"""


class CacheInvalidation:
    """Shared by the actors of one daemon."""

    def __init__(self) -> None:
        self.asked = 0
        """How often it was asked for."""

    def ask(self) -> None:
        """What the actors know is out of date."""
        self.asked += 1
