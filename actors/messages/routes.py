"""What the swapper tells the tap: which engine is the canary, with what share, and which take nothing new for now.

    swapper  ->  <state>/routes.json  ->  tap

A file, because either side may be away and must find it again when it is back. It appears by rename, so a reader sees
all of it or none. `until` bounds how stale it may get: what nobody has renewed by then is no longer believed.
"""

from pathlib import Path

import msgspec

from actors.messages.files import write_whole


class Routes(msgspec.Struct, frozen=True, kw_only=True):
    """How new trajectories are spread over the engines."""

    until: float
    """Unix seconds. Afterwards nothing is closed any more, and a canary that nobody watches gets nothing new."""
    canary: str = ""
    """Engine on trial; empty if there is none."""
    share: float = 0.0
    """Of new trajectories, for the canary, 0 to 1."""
    closed: tuple[str, ...] = ()
    """Engines that get no new trajectory while another is open: paused, or about to be."""
    versions: dict[str, int] = {}
    """What each engine serves, as far as is known; for people."""


def write_routes(path: Path, routes: Routes) -> None:
    """Replace the file at `path`; after an OSError the old one is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(routes))


def read_routes(path: Path) -> Routes:
    """What stands in the file at `path`; OSError or msgspec.DecodeError if it cannot be read."""
    return msgspec.json.decode(path.read_bytes(), type=Routes)
