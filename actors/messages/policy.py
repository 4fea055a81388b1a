"""How weights come about: orders to train, candidates, verdicts, what serves, and directives."""

from typing import Literal

import msgspec

from actors.messages.base import Message
from actors.messages.trajectory import Attributed

ServingResult = Literal["started", "swapped", "refused", "rolled_back"]
Answer = Literal["trained", "skipped", "failed", "went_back"]


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """One attributed trajectory in a batch."""

    attributed: Attributed
    estimate: float | None = None
    """Success that was to be expected of a run without a group, before it ran: its own outcome has no part in it. None:
    nothing is known of its like, or it has a group."""
    kind: tuple[str, str] = ("", "")
    """Agent and neighbourhood of goals of such a run: whose steps its labels are compared with."""


class BatchOrder(Message, frozen=True, kw_only=True, tag="batch_order"):
    """The next update: a file of `BatchItem`s (msgpack), by path and digest. The learner alone computes advantages."""

    path: str
    sha256: str
    size: int
    """Bytes."""
    trajectories: tuple[str, ...]
    production: int = 0
    """Trajectories from production among them."""
    created: float = 0.0


class FileDigest(msgspec.Struct, frozen=True):
    """One file of a version directory."""

    name: str
    sha256: str
    size: int


class Candidate(Message, frozen=True, kw_only=True, tag="candidate"):
    """What the learner says: a new weight version on disk, or another answer that makes none.

    `skipped` and `failed` answer an order that trained nothing, `went_back` a directive: then `version` is the one that
    the learner goes on from, which is on disk already and was, or is, a candidate under a record of its own.
    """

    version: int
    parent: int
    path: str
    files: tuple[FileDigest, ...]
    manifest: str
    """sha256 of manifest.json."""
    batch_ids: tuple[str, ...] = ()
    metrics: dict[str, float] = {}
    created: float = 0.0
    answer: Answer = "trained"
    no_gradient: dict[str, str] = {}
    """Trajectories of the order that the update learned nothing from, by id, with the reason of each."""


class Verdict(Message, frozen=True, kw_only=True, tag="verdict"):
    """What the gate made of a candidate, with every measurement behind it."""

    version: int
    path: str
    manifest: str
    incumbent: int
    decision: Literal["promote", "reject", "hold"]
    reason: str
    measurements: dict[str, float] = {}
    created: float = 0.0
    signature: str = ""


class Serving(Message, frozen=True, kw_only=True, tag="serving"):
    """Which engine serves which version since when, and how the swap went."""

    engine: str
    version: int
    """What it serves; what it was to serve, if that was refused or rolled back: then `previous` is there."""
    previous: int
    path: str
    result: ServingResult
    since: float
    paused_seconds: float = 0.0
    total_seconds: float = 0.0
    reason: str = ""


class Directive(Message, frozen=True, kw_only=True, tag="directive"):
    """What the sentinel or an operator orders: stop learning, go on, promote, go back, or look at the tools again; or
    what the swapper found: a version on trial that passed (`roll_on`) or failed (`rollback`).

    `rebase` is the gatekeeper's to the learner alone: leave the branch of `details["version"]` and go on from
    `details["to"]`, which serves. A `notice` orders nothing: it puts on record what somebody should know.
    """

    kind: Literal["freeze", "thaw", "promote", "roll_on", "rollback", "rebase", "drift", "notice"]
    reason: str
    origin: str
    created: float = 0.0
    details: dict[str, str] = {}
    signature: str = ""
    """Of whoever ordered; without it nothing new is brought in."""
