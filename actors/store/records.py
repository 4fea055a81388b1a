"""Records that never travel: what an actor lets the store know in the transaction of its result.

They are `Message`s so that they fit into `Result.records`; nothing decodes them, they become updates of rows.
"""

from actors.messages import Message


class Joined(Message, frozen=True, kw_only=True, tag="joined"):
    """Feedback `id` belongs to a trajectory, and may say how that went (`actors.store.outcomes`)."""

    trajectory_id: str
    outcome: float | None = None


class Beside(Message, frozen=True, kw_only=True, tag="beside"):
    """Call `id` is beside the main line of a trajectory: kept with it, and no step of anything."""

    trajectory_id: str


class Dropped(Message, frozen=True, kw_only=True, tag="dropped"):
    """Trajectory `id` will not be trained on, and why: a short reason that is counted by."""

    reason: str


class Used(Message, frozen=True, kw_only=True, tag="used"):
    """`actor` has taken in this revision of the outcome of trajectory `id` (`actors.store.outcomes`)."""

    actor: str
    revision: int


class Guessed(Message, frozen=True, kw_only=True, tag="guessed"):
    """Trajectory `id`, of which nobody has reported anything, is ordered with a provisional outcome."""

    outcome: float
