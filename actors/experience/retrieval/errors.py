"""What can go wrong with the memory's snapshots.

RetrievalError
├── SnapshotMissing    there is none for that weight version, or it was pruned
└── SnapshotRefused    its file is gone, or not what it says
"""


class RetrievalError(Exception):
    """Root of this package's errors."""


class SnapshotMissing(RetrievalError):
    """No snapshot of the pool was kept for this weight version."""


class SnapshotRefused(RetrievalError):
    """A snapshot must not be used: its file is missing, cannot be read, or has another digest."""
