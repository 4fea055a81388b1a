"""Publishing again what is published already: the spool keeps it for a while, and a broker may lose what it confirmed.

A request is a file in the spool, so that it can be made while the daemon is down; the shipper takes it. What the bus
still has is recognised by its ids, there and in the store.
"""

from pathlib import Path

import msgspec

from actors.messages.files import write_whole

_NAME = "replay"


def ask_replay(directory: Path, since: float) -> None:
    """Have the shipper, or the next one, publish again what was published since then.

    Args:
        directory: a spool.
        since: unix seconds.

    Raises:
        OSError: the disk failed, or there is no spool.
    """
    write_whole(directory / _NAME, msgspec.json.encode(since), sync="none")


def asked_replay(directory: Path) -> float | None:
    """Since when a replay is asked for; None if nobody asks."""
    try:
        return msgspec.json.decode((directory / _NAME).read_bytes(), type=float)
    except (OSError, msgspec.DecodeError):
        return None


def replay_begun(directory: Path) -> None:
    """The request is taken: the cursor stands where it begins.

    Raises:
        OSError: the disk failed.
    """
    (directory / _NAME).unlink(missing_ok=True)
