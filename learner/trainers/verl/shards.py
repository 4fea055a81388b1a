"""A mini-batch's rows dealt to ranks by token balance, each rank's packed without padding.

Every rank reads the same batch and deals it the same way, so nothing but gradients travels between them. Shards may be
uneven, and a rank may have none of the rows: it gets rows of two masked tokens, as many as the largest shard has rows,
because verl wants as many micro-batches on every rank and none empty.
"""

import heapq

import msgspec
import numpy as np
import numpy.typing as npt

from learner.trainers.micro import Ints, Layout

FILLER = 2
"""Tokens of a row that is there only to be counted: the shortest that has a position to predict."""


class Shard(msgspec.Struct, frozen=True, eq=False):
    """One rank's b rows with n tokens in all; each is cut after its last trained token."""

    ids: Ints
    """`(n,)`."""
    positions: Ints
    """`(n,)`, from 0 in every row."""
    columns: Ints
    """`(n,)`: which of the batch's R trained tokens this is, -1 for none."""
    offsets: Ints
    """`(b + 1,)`."""
    temperature: npt.NDArray[np.float32]
    """`(b,)`."""
    budget: int
    """Tokens of a micro-batch; at least the longest row of any rank."""


def deal(layout: Layout, rows: Ints, parts: int) -> list[Ints]:
    """`rows` in `parts` lists of like token counts, in the batch's order: the longest first to whom has the least.

    (LPT scheduling; Graham, "Bounds on multiprocessing timing anomalies", 1969: at most 4/3 of the best.)
    """
    lists: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0, part) for part in range(parts)]
    for row in rows[np.argsort(-layout.inputs[rows], kind="stable")].tolist():
        load, part = heapq.heappop(heap)
        lists[part].append(row)
        heapq.heappush(heap, (load + int(layout.inputs[row]) + 1, part))
    return [np.array(sorted(part), np.int64) for part in lists]


def shard(layout: Layout, rows: Ints, part: int, parts: int, budget: int) -> Shard:
    """What rank `part` of `parts` computes of `rows`, in micro-batches of `budget` tokens."""
    dealt = deal(layout, rows, parts)
    own, batch = dealt[part], layout.batch
    fillers = max(1, *map(len, dealt)) - len(own)
    lengths = np.concatenate([layout.inputs[own] + 1, np.full(fillers, FILLER, np.int64)])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    positions = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
    taken = int(lengths[: len(own)].sum())
    source = np.repeat(batch.offsets[own], lengths[: len(own)]) + positions[:taken]
    ids = np.zeros(len(positions), np.int64)
    ids[:taken] = batch.ids[source]
    columns = np.full(len(positions), -1, np.int64)
    columns[:taken] = np.where(batch.mask, np.cumsum(batch.mask, dtype=np.int64) - 1, -1)[source]
    temperature = np.concatenate([batch.temperature[own], np.ones(fillers, np.float32)])
    longest = int(layout.inputs[rows].max()) + 1 if len(rows) else FILLER
    return Shard(ids, positions, columns, offsets, temperature, max(budget, longest, FILLER))
