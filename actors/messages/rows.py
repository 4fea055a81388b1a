"""A token row that grows turn by turn.

Nothing is ever re-tokenized: prompt ids are the engine's own rendering, the others are those that it sampled. A turn
continues a row if its prompt begins with exactly the ids of the row. Where a client or a template rewrote the past it
does not, and begins another: so every token stands behind exactly the ids that it was sampled behind.
"""

import msgspec
import numpy as np

from actors.messages.base import pack_array, steps_array
from actors.messages.trajectory import TokenRow


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


def continues(row: TokenRow, prompt: bytes) -> bool:
    """Whether a turn with this prompt may extend `row`."""
    # All are whole int32 tokens, so a prefix in bytes is a prefix in tokens.
    return prompt.startswith(row.ids)


def extended(row: TokenRow, step: int, turn: Sampled) -> TokenRow:
    """`row` with the turn of step `step`, which continues it."""
    context = (len(turn.prompt_ids) - len(row.ids)) // 4
    # Repeated as bytes: a list of numbers would take longer than all else here.
    own = pack_array(step, "<i2") * (len(turn.response_ids) // 4)
    if turn.stand_in:
        own = pack_array(np.where(np.frombuffer(turn.stand_in, np.uint8) > 0, -1, step), "<i2")
    return msgspec.structs.replace(
        row,
        ids=turn.prompt_ids + turn.response_ids,
        step=row.step + b"\xff\xff" * context + own,
        logprobs=row.logprobs + bytes(4 * context) + turn.logprobs,
        versions=row.versions + b"\xff" * 4 * context + turn.versions,
        masked=row.masked + turn.masked,
    )


def of_version(row: TokenRow, version: int) -> TokenRow:
    """`row`, of which all that was sampled is of `version`."""
    sampled = steps_array(row.step) >= 0
    return msgspec.structs.replace(row, versions=pack_array(np.where(sampled, version, -1), "<i4"))
