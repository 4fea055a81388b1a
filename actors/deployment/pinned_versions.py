"""What the swapper asks of the version directories: that some stay, and that one is what was judged."""

import math
from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path

from actors.messages.files import write_whole

_YOUNGEST, _FACTOR, _AGES = 900.0, 4.0, 6
"""One version stays of each age: up to a quarter of an hour, to an hour, to four, and so on to six weeks. The sentinel
may find a fall hours after it began, when a dozen versions have come of the one that brought it."""


def write_pins(versions: Path, pins: frozenset[int], serving: frozenset[int]) -> None:
    """Replace `<versions>/pinned`: the numbers that must not be deleted, one a line.

    Args:
        serving: those of `pins` that serve, or that one would go back to from a trial: they get the word "serving"
            behind the number, and the learner keeps what it needs to learn on from there.
    """
    versions.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{pin}{' serving' if pin in serving else ''}\n" for pin in sorted(pins))
    write_whole(versions / "pinned", text.encode())


def read_pins(versions: Path) -> frozenset[int] | None:
    """The versions that `write_pins` wrote last; None if it never did, or what it wrote cannot be read."""
    try:
        return frozenset(int(line.split()[0]) for line in (versions / "pinned").read_text().splitlines() if line)
    except (OSError, ValueError, IndexError):
        return None


def aged(served: Sequence[tuple[int, float]], kept: Collection[int], now: float) -> set[int]:
    """The versions of `kept` that stay to go back to, though others served since: of each age the oldest.

    Args:
        served: (version, since when it served last), unix seconds.
        kept: those that are still there.
    """
    oldest: dict[int, tuple[float, int]] = {}
    for version, since in served:
        age = max(-1, math.floor(math.log(max(now - since, 1.0) / _YOUNGEST, _FACTOR)))
        if version in kept and age < _AGES:
            oldest[age] = min(oldest.get(age, (since, version)), (since, version))
    return {version for _, version in oldest.values()}


def manifest_problem(path: Path, digest: str) -> str:
    """Why `path` is not the directory that was judged; empty if it is."""
    try:
        found = sha256((path / "manifest.json").read_bytes()).hexdigest()
    except OSError as error:
        return f"no manifest: {type(error).__name__}"
    return "" if not digest or found == digest else "the manifest is not the one that was judged"
