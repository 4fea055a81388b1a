"""Rows that actors get from the store, and two ports: `SwapRunner`, a child process, and `Retriever`, the navigator."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from actors.messages import Experience


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one trajectory went, without its body."""

    id: str
    ended: float
    outcome: float | None
    min_version: int
    max_version: int
    goal: str
    revision: int = 0
    """Of the outcome (`Trajectory.outcome_revision`)."""
    told: float | None = None
    """When it was reported, unix seconds, if that was after the end."""
    tenant: str = "default"
    caller: str = ""
    """Id of its agent key, empty without one."""


class SwapReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a load of other weights into an engine went."""

    result: Literal["swapped", "refused", "rolled_back"]
    """refused: the checkpoint was not touched by the engine; rolled_back: it was, and the old weights are back."""
    version: int
    """The version that was asked for."""
    paused_seconds: float = 0.0
    """From pause to resume: how long users waited."""
    total_seconds: float = 0.0
    reason: str = ""
    finished: float = 0.0
    """Unix seconds."""


class SwapRunner(Protocol):
    """Runs the pause-to-resume section where a dead daemon cannot leave it half done."""

    async def swap(
        self, engine: str, path: Path, version: int, *, manifest: str = "", last_good: Path | None = None,
        last_version: int = -1,
    ) -> SwapReport:  # fmt: skip
        """Load the version directory `path` into `engine` under the label `version`; on failure `last_good` again.
        It is validated, the learner's signature first, before the engine is touched. One swap an engine at a time;
        `manifest` is the sha256 that manifest.json must have, as judged; empty: any that the learner signed.

        Raises:
            CheckpointRefused: not the version that was judged, or not signed by the learner; nothing was done.
            WeightsUnavailable: the version is not where the engine can read it yet; ask again.
            EngineUnavailable: the engine does not answer, nothing was done.
            SwapFailed: neither the new nor the old weights could be confirmed; the engine was resumed.
        """
        ...

    async def collect(self, engine: str) -> SwapReport | None:
        """What a child of an earlier life came to, once; waits for one that still runs. None if there was none."""
        ...


class Retriever(Protocol):
    """Finds lessons for a goal; the navigator is one."""

    async def lessons(
        self, goal: str, tenant: str = ..., step: str = ..., tools: Collection[str] = ...
    ) -> Sequence[Experience]:
        """The lessons of `tenant` that fit `goal` or what was seen last, `step`, or that say what one of `tools`, names
        that the agent can call, is for; empty if none do."""
        ...
