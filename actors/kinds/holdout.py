"""Which production trajectories are kept for judging weights, never for making them; and other choices by hash.

Trajectories that trained a candidate would flatter it. So a fixed share is set aside by a hash of the trajectory's id:
curator (which skips them) and gatekeeper (which scores them) decide alike for ever, with nothing to store or agree on.
"""

import hashlib

SHARE = 0.25
"""Of production trajectories, by hash. Where few runs are reported the gate needs a fourth of them to keep up with what
the rest trains: eight outcomes speak of a step that was made of two dozen. It is not data that learning lacks."""


def chance(key: str, purpose: str) -> float:
    """A number from 0 to 1 that `key` always gets for `purpose`, and that says nothing of those for other purposes."""
    digest = hashlib.blake2b(key.encode(), digest_size=8, key=purpose.encode()).digest()
    return int.from_bytes(digest, "big") / 2**64


def held_out(trajectory_id: str, *, share: float = SHARE) -> bool:
    """Whether the production trajectory `trajectory_id` is set aside for the gate."""
    return chance(trajectory_id, "evolved/holdout/1") < share
