"""What the tap saw: one LLM call, and what somebody later said of it."""

from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages.base import Message
from actors.messages.sampling import Sampling


class VersionSpan(msgspec.Struct, frozen=True):
    """Response tokens `start <= t < end` were sampled by weight version `version` (-1: the engine did not say)."""

    version: int
    start: int
    end: int


def version_number(label: str) -> int:
    """The weight version that an engine's label stands for, -1 if none."""
    return int(label) if label.isascii() and label.isdigit() else -1


def token_versions(spans: Iterable[VersionSpan], length: int) -> npt.NDArray[np.int32]:
    """The version of each of `length` response tokens, -1 where no span says."""
    versions = np.full(length, -1, dtype=np.int32)
    for span in spans:
        versions[max(0, span.start) : max(0, span.end)] = span.version
    return versions


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What a call says about the trajectory that it belongs to."""

    trajectory_id: str = ""
    """Explicit: `x-evolved-trajectory` header, `/runs/ID` of the address, or the body's `metadata.trajectory_id`."""
    agent: str = ""
    """`/agents/NAME` of the address."""
    previous_response_id: str = ""
    conversation: str = ""
    """Conversation of the responses API that the call belongs to; an explicit trajectory id goes before it."""
    custom_id: str = ""
    """The caller's own id of this call (`x-evolved-id` header or `metadata.evolved_id`): feedback may name it."""


Source = Literal["tap", "mirror", "otlp", "import"]
"""How a call came to us. A mirror sees requests alone; spans and files carry what their writer put in."""
Part = Literal["prompt", "response"]


class Exchange(Message, frozen=True, kw_only=True, tag="exchange"):
    """One LLM call as the agent saw it.

    `prompt_ids`, `response_ids` are int32 bytes, `logprobs` float32 bytes of the same length as `response_ids`; all
    empty if the engine gave none.
    """

    tenant: str = "default"
    endpoint: str
    engine: str = ""
    model: str = ""
    started: float
    """Unix seconds when the request had arrived."""
    duration: float
    """Seconds from the request's arrival to the last byte of the response."""
    status: int
    streamed: bool = False
    complete: bool = True
    """False if the client left or the engine broke off: such a call is kept and never trained on."""
    request: bytes
    """JSON as the client sent it."""
    response: bytes
    """JSON of the response; a stream is merged into the object that the same call without `stream` would give."""
    response_id: str = ""
    prompt_ids: bytes = b""
    response_ids: bytes = b""
    logprobs: bytes = b""
    versions: tuple[VersionSpan, ...] = ()
    why_no_tokens: str = ""
    """Why the ids or the log-probs are missing, if they are; empty from ways in that cannot say."""
    sampling: Sampling = Sampling()
    hints: Hints = Hints()
    error: str = ""
    """Why the response could not be read, if so."""
    source: Source = "tap"
    caller: str = ""
    """Id of the agent key that the call came with, never the key."""
    redacted: tuple[Part, ...] = ()
    """Where something was taken out. A prompt's token ids are gone with it; of a response those that overlap a find are
    -1, or all are gone."""
    masked: tuple[str, ...] = ()
    """The text in place of each run of -1 in `response_ids`: the placeholders, and what shared a token with a find."""
    finds: dict[str, int] = {}
    """How many finds of each kind were taken out."""


class Feedback(Message, frozen=True, kw_only=True, tag="feedback"):
    """An outcome or a rating, joined by whichever id its sender knows, hours later if need be."""

    received: float
    """Unix seconds."""
    tenant: str = "default"
    caller: str = ""
    """Id of the agent key that it came with: of runs of one name under several keys, its own is meant."""
    trajectory_id: str = ""
    exchange_id: str = ""
    response_id: str = ""
    custom_id: str = ""
    """The caller's own id of the call, as in `Hints.custom_id`."""
    step: int | None = None
    """Step of the trajectory, from 0; None if it is about the whole, or about the call that an id names."""
    outcome: float | None = None
    """0 is failure, 1 is success, between them is partial."""
    kind: Literal["outcome", "rating", "comment", "step"] = "outcome"
    """`step`: good or bad of one step alone; says nothing of how the trajectory ended."""
    final: bool = True
    """The trajectory is over: it closes at once."""
    text: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is about the whole trajectory and not about one step."""
        return self.kind != "step" and self.step is None
