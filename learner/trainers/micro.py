"""Which rows are computed together: rows dealt to mini-batches, mini-batches cut into micro-batches by token budget.

Rows of like length go together, so little of the budget is padding. A row is cut after its last trained token: what
follows has no gradient and nothing looks back at it.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from learner.batch import TrajectoryBatch

Ints = npt.NDArray[np.int64]


class Micro(msgspec.Struct, frozen=True, eq=False):
    """One forward's input: b rows, right-padded to T tokens, r trained tokens."""

    ids: Ints
    """`(b, T)`, 0 where padded; under a causal mask padding on the right changes nothing."""
    context: Ints
    """`(r,)` index into the flattened `(b * T)` of the position that predicts each trained token."""
    target: Ints
    """`(r,)` id of each trained token."""
    temperature: npt.NDArray[np.float32]
    """`(r,)`."""
    columns: Ints
    """`(r,)` index of each trained token among all of the batch's."""


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

    def deal(self, parts: int, seed: int) -> list[Ints]:
        """Rows dealt by chance to at most `parts` mini-batches, none empty; the same seed deals the same way."""
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(self.inputs > 0)).astype(np.int64)
        parts = max(1, min(parts, len(rows)))
        return [rows[i::parts] for i in range(parts)] if len(rows) else []

    def probe(self, tokens: int, among: Ints) -> Ints:
        """Rows, spread evenly over those of `among` that train anything, with about `tokens` trained tokens in all."""
        rows = among[self.inputs[among] > 0]
        if not len(rows):
            return rows
        wanted = max(1, min(len(rows), int(np.ceil(tokens * len(rows) / self.tokens(rows)))))
        return rows[np.linspace(0, len(rows) - 1, wanted).astype(np.int64)]

    def micro_batches(self, rows: Ints, budget: int) -> list[Micro]:
        """`rows` in micro-batches of at most `budget` tokens, padding included; a longer row goes alone."""
        ordered = rows[np.argsort(self.inputs[rows], kind="stable")]
        cuts: list[list[int]] = [[]]
        for row in ordered.tolist():
            if cuts[-1] and int(self.inputs[row]) * (len(cuts[-1]) + 1) > budget:
                cuts.append([])
            cuts[-1].append(row)
        return [self._micro(cut) for cut in cuts if cut]

    def _micro(self, rows: Sequence[int]) -> Micro:
        width = int(max(self.inputs[row] for row in rows))
        ids = np.zeros((len(rows), width), np.int64)
        for i, row in enumerate(rows):
            start, n = self.offsets[row], self.inputs[row]
            ids[i, :n] = self.batch.ids[start : start + n]
        columns = self.columns(rows)
        place = np.repeat(np.arange(len(rows)), [self.first[row + 1] - self.first[row] for row in rows])
        within, row_of = self.within[columns], self.row[columns]
        return Micro(
            ids=ids,
            context=place * width + within - 1,
            target=self.batch.ids[self.offsets[row_of] + within].astype(np.int64),
            temperature=self.batch.temperature[row_of],
            columns=columns,
        )
