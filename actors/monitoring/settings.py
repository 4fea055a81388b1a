"""What the sentinel does when its monitors speak up, and how much it remembers. docs/promotion.md explains each."""

import msgspec

from actors.monitoring.monitor import Action

ERROR_RATE = 0.01
"""Chance that any monitor of versions speaks up about a swap between versions that behave alike, over all looks; and as
much again that anything is said of one agent since, or of all over several versions."""
SAMPLE = 384
"""Runs kept for each version, and apart from them as many with an outcome; also how long a new version is watched in
this way, in runs, or in runs with an outcome."""
VERSIONS = 6
"""Versions that are kept, the serving one included."""
WINDOW = 512
"""Newest runs that are remembered whatever their version."""


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from what is found. All else is the monitors' own: manners freeze, traffic and slowness are told."""

    success: Action = "rollback"
    """For a fall of success by ten points, or invalid tool calls in ten runs of a hundred more."""
    judge_alone: Action = "rollback"
    """For a judge who is pleased while success does not follow."""
    judge_drift: Action = "freeze"
    """For labels that mean something else than before: nothing should be learned from them."""


USUAL = Actions()
"""As config.toml has them."""
