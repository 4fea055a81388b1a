"""Which production trajectories are kept for judging weights, never for making them.

Trajectories that trained a candidate would flatter it. So a fixed share is set aside by a hash of the trajectory's id:
curator (which skips them) and gatekeeper (which scores them) decide alike for ever, with nothing to store or agree on.
"""

import hashlib

SHARE = 0.25
"""Of production trajectories, by hash. Where few runs are reported the gate needs a fourth of them to keep up with what
the rest trains: eight outcomes speak of a step that was made of two dozen. It is not data that learning lacks."""

_SALT = b"evolved/holdout/1"


def held_out(trajectory_id: str, *, share: float = SHARE) -> bool:
    """Whether the production trajectory `trajectory_id` is set aside for the gate.

    The hash is salted and of its own, so it is independent of any other split by the same id.
    """
    digest = hashlib.blake2b(trajectory_id.encode(), digest_size=8, key=_SALT).digest()
    return int.from_bytes(digest, "big") < share * 2**64
