"""The files that carry a swap from the program that does it to whoever wants to know.

RESULT        the outcome; appears whole
RESULT.job    what is being done; removed with the result
RESULT.lock   held from before the job is written until the program has ended
RESULT.log    what the programs said
"""

import os
from pathlib import Path
from typing import Literal

import msgspec

from actors.messages.files import lock


class SwapJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done."""

    engine: str
    """URL."""
    path: str
    """Version directory to load; the engine must be able to read it too."""
    version: int
    result: str
    """File for the outcome."""
    manifest: str = ""
    """sha256 that manifest.json must have: what was verified before is what is loaded. Empty for any."""
    last_good: str = ""
    """Version directory to go back to; also what the new one must look like. Empty if there is none."""
    last_version: int = -1
    deadline: float = 120.0
    """Seconds for everything up to resume; going back may take as long again."""
    epoch: int = 0
    """Of the lease under which this is done; an engine refuses one that is smaller than the greatest it has seen."""
    until: float = 0.0
    """This machine's monotonic clock: from then on the engine is not touched any more; 0 for no such end."""


class SwapOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    result: Literal["swapped", "refused", "rolled_back", "unreachable", "failed"]
    """refused: what served was never touched or is untouched; rolled_back: the new weights were loaded, the last good
    ones are back; unreachable: the engine did not answer, or not as it must, and nothing was done; failed: neither
    could be confirmed."""
    version: int
    """What the engine serves now, -1 if unknown."""
    asked: int = -1
    """What it was asked to serve."""
    paused_seconds: float = 0.0
    """From pause to resume."""
    total_seconds: float = 0.0
    reason: str = ""
    finished: float = 0.0
    """Unix seconds."""
    epoch: int = 0
    """Of the job."""


class SwapFiles:
    """Those of one engine."""

    def __init__(self, result: Path) -> None:
        self.result = result
        self.job, self.lock, self.log = (result.with_name(f"{result.name}.{end}") for end in ("job", "lock", "log"))

    def try_lock(self) -> int | None:
        """A descriptor that holds the engine's lock until it is closed, None if somebody else has it."""
        try:
            return lock(self.lock)
        except BlockingIOError:
            return None

    def take(self) -> SwapOutcome | None:
        """Read the outcome and remove it."""
        if self.result.exists():
            # In this order: a job without a result looks like a program that was killed.
            self.job.unlink(missing_ok=True)
        outcome = self._outcome()
        self.result.unlink(missing_ok=True)
        return outcome

    def read_job(self) -> SwapJob | None:
        """What is being done, or was left half done."""
        try:
            return msgspec.json.decode(self.job.read_bytes(), type=SwapJob)
        except FileNotFoundError:
            return None

    def epoch(self) -> int | None:
        """Of the swap whose files lie there: a job that is under way or was killed, or an outcome that nobody has read;
        None if there is nothing."""
        found = self.read_job() or self._outcome()
        return None if found is None else found.epoch

    def busy(self) -> bool:
        """Whether a program is at it."""
        descriptor = self.try_lock() if self.result.parent.is_dir() else -1
        if descriptor is not None and descriptor >= 0:
            os.close(descriptor)
        return descriptor is None

    def discard(self) -> None:
        """Remove what was left of a swap that another one came after, unless its program still runs."""
        if not self.busy():
            self.job.unlink(missing_ok=True)
            self.result.unlink(missing_ok=True)

    def _outcome(self) -> SwapOutcome | None:
        try:
            return msgspec.json.decode(self.result.read_bytes(), type=SwapOutcome)
        except FileNotFoundError:
            return None
