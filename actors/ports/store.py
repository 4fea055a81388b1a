"""What the actors of the policy loop (rollout, gatekeeper, swapper, sentinel) need from elsewhere, as Protocols.

The store implements the first six; the composition root brings a `SwapRunner` (a child process of its own session) and
the navigator as `Retriever`.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from actors.messages import (
    Attributed,
    Candidate,
    Directive,
    Exchange,
    Experience,
    Feedback,
    Serving,
    Trajectory,
    Verdict,
)


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one trajectory went, without its body."""

    id: str
    ended: float
    outcome: float | None
    min_version: int
    max_version: int
    cluster: str
    goal: str
    revision: int = 0
    """Of the outcome (`Trajectory.outcome_revision`)."""
    group: str = ""
    """Of the sandbox's attempts at one task."""


class FailedCall(msgspec.Struct, frozen=True):
    """A call that an engine answered with an error of its own, or not at all."""

    id: str
    engine: str
    run: str
    """The trajectory that it named, else its own id: a client that tries again fails once."""
    started: float
    """Unix seconds."""


class StateStore(Protocol):
    """Small values that outlive the process."""

    async def state_get(self, key: str) -> bytes | None:
        """The value under `key`, None if there is none."""
        ...

    async def state_put(self, key: str, value: bytes) -> None:
        """Replace the value under `key`."""
        ...


class SentinelStore(StateStore, Protocol):
    """For the sentinel."""

    async def first_served(self) -> int | None:
        """The version that an engine served here before any other; None before one did."""
        ...

    async def find_trajectory(self, feedback: Feedback) -> str:
        """Id of the closed trajectory of the feedback's tenant that it means; empty if there is none."""
        ...

    async def trajectory(self, trajectory_id: str) -> Attributed | Trajectory | None:
        """The trajectory, with its credit once it has some; None if it is not kept any more."""
        ...


class RolloutStore(StateStore, Protocol):
    """For the rollout."""

    async def frozen(self) -> bool:
        """Whether learning is stopped: the last freeze or thaw was a freeze."""
        ...

    async def candidates(self, limit: int = ...) -> list[Candidate]:
        """Newest first."""
        ...


class GateStore(StateStore, Protocol):
    """For the gatekeeper."""

    async def head(self) -> Candidate | None:
        """What the learner said last of where it stands: the version that it made, or went back to."""
        ...

    async def candidates(self, limit: int = ...) -> list[Candidate]:
        """Newest first."""
        ...

    async def verdicts(self, limit: int = ...) -> list[Verdict]:
        """Newest first."""
        ...

    async def servings(self, engine: str | None = ..., limit: int = ...) -> list[Serving]:
        """Newest first."""
        ...

    async def directives(self, limit: int = ...) -> list[Directive]:
        """Newest first."""
        ...

    async def exam(self, *, reported: bool, limit: int) -> list[Attributed]:
        """The newest held-out production trajectories, newest first; only those with an outcome if `reported`.

        Every party has as many of them as any other, or all that it has (`actors.statistics.parties.newest`).
        """
        ...

    async def exchanges(self, ids: Sequence[str]) -> list[Exchange]:
        """Calls by id, those that are still kept, in any order."""
        ...


class CanaryStore(StateStore, Protocol):
    """For the comparison of what is on trial with what was before, or serves elsewhere."""

    async def recent_outcomes(
        self, *, source: str | None = ..., since: float = ..., limit: int = ..., until: float | None = ...
    ) -> list[OutcomeRow]:
        """Trajectories that ended from `since` on, and before `until`, newest first."""
        ...

    async def judged_outcomes(
        self, version: int, *, since: float = ..., limit: int = ..., until: float | None = ...
    ) -> list[OutcomeRow]:
        """The same of production trajectories that `version` alone sampled and that have an outcome."""
        ...

    async def closed_runs(self, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
        """Trajectories by id, each with the engine that answered its first call; empty where the versions tell."""
        ...

    async def failed_calls(self, since: float, limit: int = ..., *, until: float | None = ...) -> list[FailedCall]:
        """Calls that began from `since` on, and before `until`, and that an engine answered with 500 or more."""
        ...


class PolicyStore(CanaryStore, Protocol):
    """For the swapper."""

    async def verdicts(self, limit: int = ...) -> list[Verdict]:
        """Newest first."""
        ...

    async def servings(self, engine: str | None = ..., limit: int = ...) -> list[Serving]:
        """Newest first."""
        ...

    async def directives(self, limit: int = ...) -> list[Directive]:
        """Newest first."""
        ...

    async def frozen(self) -> bool:
        """Whether learning is stopped: the last freeze or thaw was a freeze."""
        ...


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
        self,
        engine: str,
        path: Path,
        version: int,
        *,
        manifest: str = "",
        last_good: Path | None = None,
        last_version: int = -1,
    ) -> SwapReport:
        """Load the version directory `path` into `engine` under the label `version`; on failure `last_good` again.

        Brings it to where the engine can read it and validates it, the learner's signature first, before the engine is
        touched. One swap an engine at a time.

        Args:
            path: where the learner wrote it.
            manifest: sha256 that manifest.json must have, as judged; empty: any that the learner signed.

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


class TaskPlanner(Protocol):
    """Says what kinds of task are worth playing; the curriculum is one."""

    def plan(self, count: int, offered: Mapping[str, int]) -> Mapping[str, int]:
        """Tasks by kind of goal for a round of `count`; what is missing from it is the environment's choice.

        Args:
            offered: how many there are to be had of each kind.
        """
        ...

    def kind(self, goal: str) -> str:
        """The kind that a task with this goal is of now."""
        ...


class Retriever(Protocol):
    """Finds lessons for a goal; the navigator is one."""

    async def lessons(
        self, goal: str, tenant: str = ..., step: str = ..., tools: Collection[str] = ...
    ) -> Sequence[Experience]:
        """The lessons of `tenant` that fit `goal` or what was seen last, `step`, or that say what one of `tools`, names
        that the agent can call, is for; empty if none do."""
        ...
