"""Processes that are not ours to wait for."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether there is such a process that is more than an exit status which nobody has read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
