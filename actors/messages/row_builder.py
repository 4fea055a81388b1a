"""A token row that grows turn by turn.

Nothing is ever re-tokenized: prompt ids are the engine's own rendering, the others are those that it sampled. A turn
continues a row if its prompt begins with exactly the ids of the row. Where a client or a template rewrote the past it
does not, and begins another: so every token stands behind exactly the ids that it was sampled behind.
"""

import msgspec
import numpy as np

from actors.messages.base import pack_array, steps_array
from actors.messages.sampling import Processing
from actors.messages.trajectory import TokenRow

_NOTHING = Processing()


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a call, bytes as in `Exchange`; `response_ids`, `logprobs` and `versions` are of one length."""

    prompt_ids: bytes = b""
    response_ids: bytes = b""
    logprobs: bytes = b""
    versions: bytes = b""
    """int32, -1 where nobody says."""
    redacted: bool = False
    """They are those of a context that something was taken out of."""
    stand_in: bytes = b""
    """uint8, 1 on ids of placeholders, which nobody sampled; empty without."""
    masked: int = 0
    """Sampled tokens that are gone."""


class RowBuilder:
    """One `TokenRow`."""

    def __init__(
        self, temperature: float, hint: tuple[int, int] = (0, 0), *, redacted: bool = False,
        processing: Processing = _NOTHING,
    ) -> None:  # fmt: skip
        self.temperature, self.processing, self.redacted = temperature, processing, redacted
        self._hint = hint
        self._masked = 0
        self._ids = b""
        self._steps: list[bytes] = []
        self._logprobs: list[bytes] = []
        self._versions: list[bytes] = []

    def __len__(self) -> int:
        """Tokens so far."""
        return len(self._ids) // 4

    def continued_by(self, prompt: bytes) -> bool:
        """Whether a turn with this prompt may extend the row."""
        # All are whole int32 tokens, so a prefix in bytes is a prefix in tokens.
        return prompt.startswith(self._ids)

    def extend(self, step: int, turn: Sampled) -> None:
        """Take in the turn of step `step`, whose prompt continues the row."""
        context = len(turn.prompt_ids) // 4 - len(self)
        self._ids = turn.prompt_ids + turn.response_ids
        self._masked += turn.masked
        # Repeated as bytes: a list of numbers would take longer than all else here.
        own = pack_array(step, "<i2") * (len(turn.response_ids) // 4)
        if turn.stand_in:
            own = pack_array(np.where(np.frombuffer(turn.stand_in, np.uint8) > 0, -1, step), "<i2")
        self._steps += (b"\xff\xff" * context, own)
        self._logprobs += (bytes(4 * context), turn.logprobs)
        self._versions += (b"\xff" * 4 * context, turn.versions)

    def assume(self, version: int) -> None:
        """All that was sampled so far is of `version`."""
        sampled = steps_array(b"".join(self._steps)) >= 0
        self._versions = [pack_array(np.where(sampled, version, -1), "<i4")]

    def pack(self) -> TokenRow:
        """The row so far."""
        return TokenRow(
            ids=self._ids, step=b"".join(self._steps), logprobs=b"".join(self._logprobs),
            versions=b"".join(self._versions), hint=self._hint, temperature=self.temperature,
            processing=self.processing, redacted=self.redacted, masked=self._masked,
        )  # fmt: skip
