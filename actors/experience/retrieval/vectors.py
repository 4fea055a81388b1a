"""`VectorIndex`: exact inner-product search over float32 rows that come, change and go one at a time.

faiss's flat index: some thousand lessons of a tenant are scanned in a few milliseconds.
"""

import faiss
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class VectorIndex:
    """Rows by slot: small numbers that the caller gives out and takes back."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._flat = faiss.IndexFlatIP(dimension)
        self._present = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        """Slots, the empty ones included."""
        return self._flat.ntotal

    def has(self, slot: int) -> bool:
        """Whether there is a row at `slot`."""
        return slot < len(self) and bool(self._present[slot])

    def put(self, slots: Slots, rows: Rows) -> None:
        """Lay `rows`, `(n, d)` of length 1, at `slots`, `(n,)`, in place of what is there."""
        if not len(slots):
            return
        missing = int(slots.max()) + 1 - len(self)
        if missing > 0:
            self._flat.add(np.zeros((missing, self.dimension), dtype=np.float32))  # pyright: ignore[reportCallIssue]
            self._present = np.concatenate([self._present, np.zeros(missing, dtype=np.bool_)])
        self._rows[slots] = rows
        self._present[slots] = True

    def remove(self, slots: Slots) -> None:
        """Take the rows at `slots` away."""
        here = slots[slots < len(self)]
        self._rows[here] = 0.0
        self._present[here] = False

    def products(self, query: Rows, slots: Slots) -> Rows:
        """Exact inner products of `query`, `(d,)`, with the rows at `slots`, `(n,)`; 0 where there is no row."""
        found = np.zeros(len(slots), dtype=np.float32)
        here = slots < len(self)
        # Not BLAS: for so few rows its threads cost more than they bring.
        found[here] = np.einsum("ij,j->i", self._rows[slots[here]], query)
        return found

    def search(self, query: Rows, k: int, allowed: Mask | None = None) -> tuple[Rows, Slots]:
        """Inner products, best first, and slots of the `k` nearest rows to `query`, `(d,)`, that are `allowed`,
        `(slots,)` or longer; fewer if there are fewer."""
        mask = self._present if allowed is None else self._present & allowed[: len(self)]
        if not mask.any() or k < 1:
            return np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.int64)
        # For one query faiss has no work for a second thread, and OpenMP's threads spin: with two on two busy cores the
        # same scan took ten times as long.
        faiss.omp_set_num_threads(1)
        bits = np.packbits(mask, bitorder="little")
        chosen = faiss.IDSelectorBitmap(len(mask), faiss.swig_ptr(bits))
        scores, found = self._flat.search(query[None], k, params=faiss.SearchParameters(sel=chosen))  # pyright: ignore[reportCallIssue]
        here = found[0] >= 0
        return scores[0][here], found[0][here]

    @property
    def _rows(self) -> Rows:
        """A view of the flat index's memory, `(slots, d)`; good until rows are added."""
        count = len(self)
        if not count:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return faiss.rev_swig_ptr(self._flat.get_xb(), count * self.dimension).reshape(count, self.dimension)
