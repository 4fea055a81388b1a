"""A trajectory from its turns: steps with what came back, and token rows for the trainer.

Pure: the same closing gives the same trajectory in every process, its id included; that makes closing idempotent.
"""

from collections.abc import Sequence
from typing import Literal, cast

import numpy as np

from actors.messages import Feedback, Step, TokenRow, Trajectory, derived_id, ids_array, pack_array
from actors.stitching import Closing
from actors.turns import Turn


def trajectory_id(turns: Sequence[Turn]) -> str:
    """The id that follows from the tenant, the explicit id if there is one, and the first exchange."""
    first = turns[0]
    return derived_id("trajectory", first.tenant, first.explicit, first.id)


def build(closing: Closing) -> Trajectory:
    """The trajectory of `closing`."""
    turns = closing.turns
    rows, where = _rows(turns)
    steps = tuple(
        Step(
            exchange_id=turn.id,
            response_id=turn.response_id,
            text=turn.text,
            tool_calls=turn.tool_calls,
            observation=_observation(turns, number),
            row=where[number],
        )
        for number, turn in enumerate(turns)
    )
    versions = np.concatenate([ids_array(turn.versions) for turn in turns])
    why_not = next((turn.why_not for turn in turns if turn.why_not), "")
    return Trajectory(
        id=trajectory_id(turns),
        source="production",
        tenant=turns[0].tenant,
        goal=turns[0].goal,
        tools=turns[-1].tools,
        steps=steps,
        rows=rows,
        outcome=outcome_of(closing.feedback),
        closed_by=cast(Literal["feedback", "idle", "limit"], closing.closed_by),
        started=turns[0].started,
        ended=max(turn.ended for turn in turns),
        trainable=not why_not,
        why_not=why_not,
        confidence=closing.confidence,
        min_version=int(versions.min()) if versions.size else -1,
        max_version=int(versions.max()) if versions.size else -1,
    )


def outcome_of(feedback: Sequence[Feedback]) -> float | None:
    """What feedback says of the whole: the last final outcome, else the last rating; None if nobody said."""
    told = [f for f in feedback if f.outcome is not None]
    for wanted in ([f for f in told if f.final and f.kind == "outcome"], [f for f in told if f.final], told):
        if wanted:
            return max(wanted, key=lambda f: (f.received, f.id)).outcome
    return None


def _observation(turns: Sequence[Turn], number: int) -> str:
    calls = {call.id for call in turns[number].tool_calls if call.id}
    for later in turns[number + 1 :]:
        if calls.intersection(later.answered):
            return later.observation
    return turns[number + 1].observation if number + 1 < len(turns) else ""


class _Row:
    """A row that grows."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.ids = b""
        self.step: list[bytes] = []
        self.logprobs: list[bytes] = []
        self.versions: list[bytes] = []

    def extend(self, turn: Turn, number: int) -> None:
        context = len(turn.prompt_ids) // 4 - len(self.ids) // 4
        self.ids = turn.prompt_ids + turn.response_ids
        sampled = len(turn.response_ids) // 4
        self.step.append(pack_array([-1] * context + [number] * sampled, "<i2"))
        self.logprobs += (bytes(4 * context), turn.logprobs)
        self.versions += (pack_array([-1] * context, "<i4"), turn.versions)

    def pack(self) -> TokenRow:
        return TokenRow(
            ids=self.ids,
            step=b"".join(self.step),
            logprobs=b"".join(self.logprobs),
            versions=b"".join(self.versions),
            temperature=self.temperature,
        )


def _rows(turns: Sequence[Turn]) -> tuple[tuple[TokenRow, ...], list[int]]:
    """The rows, and the row of each turn (-1 without tokens).

    A turn continues the row if its prompt begins with exactly the row's ids. Where the client or the template rewrote
    the past, it does not, and a row of its own keeps every log-prob with the context that it was sampled in.
    """
    rows: list[_Row] = []
    where: list[int] = []
    for number, turn in enumerate(turns):
        if not turn.response_ids:
            where.append(-1)
            continue
        # All arrays are whole int32 tokens, so a prefix in bytes is a prefix in tokens.
        continues = rows and rows[-1].temperature == turn.temperature and turn.prompt_ids.startswith(rows[-1].ids)
        if not continues:
            rows.append(_Row(turn.temperature))
        rows[-1].extend(turn, number)
        where.append(len(rows) - 1)
    return tuple(row.pack() for row in rows), where
