"""Which rows are computed together: rows dealt to mini-batches, mini-batches cut into micro-batches by token budget.

A micro-batch is one sequence, row after row without padding. A row is cut after its last trained token: what follows
has no gradient and nothing looks back at it.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Processing
from learner.batch import TrajectoryBatch

Ints = npt.NDArray[np.int64]
LEAST = 2
"""Trajectories of a mini-batch, the fewest that were measured (docs/measured.md): AdamW moves the weights by about a
learning rate a step, whatever the step was made of, so what is left of a small batch must not move them as often as a
whole one."""
PROBE_TOKENS = 512
"""Trained tokens that the KL guard looks at: enough to tell 0.1 from 0.01."""
PROBE_PART, PROBE_LEAST = 8, 128
"""Of a small batch an eighth at most, but not fewer tokens than that: the guard's forward is its cost."""


class Processed(msgspec.Struct, frozen=True, eq=False):
    """Some of a micro-batch's r trained tokens, m of one row, all drawn from logits that something was done to."""

    processing: Processing
    at: Ints
    """`(m,)` which of the r."""
    ids: Ints
    """`(n,)`, the row, for penalties."""
    within: Ints
    """`(m,)` position in the row of each."""
    answer: Ints
    """`(m,)` position where the answer began that each is of: before it stands the prompt."""


class Micro(msgspec.Struct, frozen=True, eq=False):
    """One forward's input: b rows of n tokens in all, r of them trained."""

    ids: Ints
    """`(n,)`, row after row."""
    positions: Ints
    """`(n,)`, from 0 in every row."""
    lengths: tuple[int, ...]
    """Tokens of each of the b rows."""
    context: Ints
    """`(r,)` index among the n of the position that predicts each trained token."""
    target: Ints
    """`(r,)` id of each trained token."""
    temperature: npt.NDArray[np.float32]
    """`(r,)`."""
    columns: Ints
    """`(r,)` index of each trained token among all of the batch's."""
    processed: tuple[Processed, ...] = ()
    """Tokens that were not drawn from the softmax over temperature alone."""


class Layout:
    """Where a batch's trained tokens are."""

    def __init__(self, batch: TrajectoryBatch) -> None:
        self.batch = batch
        self.offsets = batch.offsets
        positions = np.flatnonzero(batch.mask).astype(np.int64)
        self.row = np.searchsorted(self.offsets, positions, side="right") - 1
        """`(R,)` row of each trained token."""
        self.within = positions - self.offsets[self.row]
        """`(R,)` its position in that row."""
        self.first = np.searchsorted(self.row, np.arange(batch.rows + 1))
        """`(B + 1,)`: row b's trained tokens are `first[b]` to `first[b + 1]`."""
        self.inputs = np.zeros(batch.rows, np.int64)
        """`(B,)` tokens of each row that are fed: up to the one before its last trained token."""
        np.maximum.at(self.inputs, self.row, self.within)

    def tokens(self, rows: Ints) -> int:
        """Trained tokens of `rows`."""
        return int((self.first[rows + 1] - self.first[rows]).sum())

    def columns(self, rows: Ints | Sequence[int]) -> Ints:
        """Indices among all trained tokens of those of `rows`, row by row."""
        parts = [np.arange(int(self.first[row]), int(self.first[row + 1])) for row in rows]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @property
    def trained(self) -> Ints:
        """Rows that train anything."""
        return np.flatnonzero(self.inputs > 0).astype(np.int64)

    def deal(self, parts: int, seed: int, among: Ints | None = None) -> list[Ints]:
        """Rows dealt by chance to at most `parts` mini-batches, one for each `LEAST` trajectories.

        The same seed deals the same way.

        Args:
            among: rows that may be dealt, ascending; None for all that train anything.
        """
        rows = np.random.default_rng(seed).permutation(self.trained if among is None else among).astype(np.int64)
        parts = max(1, min(parts, len(np.unique(self.batch.trajectory[rows])) // LEAST))
        return [rows[i::parts] for i in range(parts)] if len(rows) else []

    def probe(self, first: Ints) -> Ints:
        """Rows that the KL guard looks at, spread evenly over the first mini-batch's.

        Of the first mini-batch, because its log-probs before any step come with its training; and none with experience,
        as long as there are others: guided rows are there to be moved a long way, a policy that never said a new tool's
        name has to begin. What must not move far is what it does by itself.
        """
        plain = self.batch.guided == 0
        among = first[plain[first]]
        if not len(among):
            others = self.trained[plain[self.trained]]
            among = others if len(others) else first
        if not len(among):
            return among
        tokens = min(PROBE_TOKENS, max(PROBE_LEAST, len(self.row) // PROBE_PART))
        wanted = max(1, min(len(among), int(np.ceil(tokens * len(among) / self.tokens(among)))))
        return among[np.linspace(0, len(among) - 1, wanted).astype(np.int64)]

    def micro_batches(self, rows: Ints, budget: int) -> list[Micro]:
        """`rows` in micro-batches of at most `budget` tokens; a longer row goes alone, and with 0 every row does."""
        cuts: list[list[int]] = []
        room = 0
        for row in rows.tolist():
            size = int(self.inputs[row])
            if size > room:
                cuts.append([])
                room = budget
            cuts[-1].append(row)
            room -= size
        return [self._micro(cut) for cut in cuts]

    def _micro(self, rows: Sequence[int]) -> Micro:
        own = np.asarray(rows, np.int64)
        lengths = self.inputs[own]
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
        columns = self.columns(rows)
        within, row_of = self.within[columns], self.row[columns]
        trained = self.first[own + 1] - self.first[own]
        return Micro(
            ids=self.batch.ids[np.repeat(self.offsets[own], lengths) + positions].astype(np.int64),
            positions=positions,
            lengths=tuple(lengths.tolist()),
            context=np.repeat(starts, trained) + within - 1,
            target=self.batch.ids[self.offsets[row_of] + within].astype(np.int64),
            temperature=self.batch.temperature[row_of],
            columns=columns,
            processed=self._processed(rows, trained),
        )

    def _processed(self, rows: Sequence[int], trained: Ints) -> tuple[Processed, ...]:
        """
        Args:
            trained: tokens of each of `rows`.
        """
        batch, found, ends = self.batch, list[Processed](), np.cumsum(trained)
        for row, number, end in zip(rows, trained.tolist(), ends.tolist(), strict=True):
            if not batch.processing or batch.processing[row].only_grammar:
                continue
            part = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
            within = self.within[self.first[row] : self.first[row + 1]]
            steps = batch.steps[part]
            # A token's answer begins where its step does: what a grammar or age left untrained of it counts, too.
            begins = {int(step): int(np.argmax(steps == step)) for step in np.unique(steps[within])}
            answer = np.array([begins[int(step)] for step in steps[within]], np.int64)
            at = np.arange(end - number, end, dtype=np.int64)
            found.append(Processed(batch.processing[row], at, batch.ids[part].astype(np.int64), within, answer))
        return tuple(found)
