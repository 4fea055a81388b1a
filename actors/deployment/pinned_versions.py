"""What the swapper asks of the version directories: that some stay, and that one is what was judged."""

from hashlib import sha256
from pathlib import Path

from actors.messages.files import write_whole


def write_pins(versions: Path, pins: frozenset[int], serving: frozenset[int]) -> None:
    """Replace `<versions>/pinned`: the numbers that must not be deleted, one a line.

    Args:
        serving: those of `pins` that serve, or that one would go back to from a trial: they get the word "serving"
            behind the number, and the learner keeps what it needs to learn on from there.
    """
    versions.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{pin}{' serving' if pin in serving else ''}\n" for pin in sorted(pins))
    write_whole(versions / "pinned", text.encode())


def manifest_problem(path: Path, digest: str) -> str:
    """Why `path` is not the directory that was judged; empty if it is."""
    try:
        found = sha256((path / "manifest.json").read_bytes()).hexdigest()
    except OSError as error:
        return f"no manifest: {type(error).__name__}"
    return "" if not digest or found == digest else "the manifest is not the one that was judged"
