"""`VectorIndex`: exact inner-product search over float32 rows that come, change and go one at a time.

    put, remove  ->  float32 rows (the truth)  +  int8 codes (a quarter of the memory traffic)
    search       ->  scan the codes  ->  exact products of what may be among the best  ->  the best `k`

Up to a few thousand rows faiss's flat index is scanned as it is. Beyond that the scan is bound by memory, so it reads
int8 codes first, whose error is known, and computes exact products for all rows that the error leaves in the race: the
answer is the flat index's, with a quarter of the bytes read (a vector approximation file: Weber, Schek, Blott, VLDB
1998).
"""

import faiss
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SCAN_FROM = 4096
"""Rows from which on the codes are worth their upkeep."""
_ROUNDING = 1e-5
"""Of float32 sums over a few thousand terms of unit vectors; added to every bound."""


class VectorIndex:
    """Rows by slot: small numbers that the caller gives out and takes back."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._flat = faiss.IndexFlatIP(dimension)
        self._present = np.zeros(0, dtype=np.bool_)
        self._scanner: Int8Scanner | None = None

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
        if self._scanner is not None:
            self._scanner.put(slots, rows, self._rows)
        elif len(self) >= SCAN_FROM:
            self._scanner = Int8Scanner(self.dimension)
            self._scanner.put(np.arange(len(self)), self._rows, self._rows)

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
        if self._scanner is not None:
            found = self._pruned(self._scanner, query, k, mask)
            if found is not None:
                return found
        return _search(self._flat, query[None], k, mask)

    def _pruned(self, scanner: "Int8Scanner", query: Rows, k: int, mask: Mask) -> tuple[Rows, Slots] | None:
        """The `k` best by codes and exact products; None if the codes leave too many in the race."""
        apart = np.fromiter(scanner.apart, dtype=np.int64, count=len(scanner.apart))
        apart = apart[mask[apart]]
        wanted = max(8 * k, 256)
        while wanted <= min(max(len(self) // 8, 256), scanner.most):
            scores, slots, error = scanner.scan(query[None], min(wanted, len(self)), mask)
            likely = np.union1d(slots[mask[slots]], apart)
            products = self.products(query, likely)
            order = np.argsort(-products, kind="stable")[:k]
            complete = len(slots) < wanted
            if complete or (len(order) == k and products[order[-1]] >= scores[-1] + error + _ROUNDING):
                return products[order], likely[order]
            wanted *= 4
        return None

    @property
    def _rows(self) -> Rows:
        """A view of the flat index's memory, `(slots, d)`; good until rows are added."""
        count = len(self)
        if not count:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return faiss.rev_swig_ptr(self._flat.get_xb(), count * self.dimension).reshape(count, self.dimension)


class Int8Scanner:
    """Rows as int8 codes of one scale: says quickly which may be the best."""

    most = 1 << 16
    """Largest `k` of a scan."""

    def __init__(self, dimension: int) -> None:
        quantizer = faiss.ScalarQuantizer.QT_8bit_direct_signed
        self._index = faiss.IndexScalarQuantizer(dimension, quantizer, faiss.METRIC_INNER_PRODUCT)
        self._dimension = dimension
        self._scale = 0.0
        self._error = 0.0
        """Of the worst row: how long the difference between it and its code is."""
        self.apart: set[int] = set()
        """Rows that the scale would clip: `scan` knows nothing of them."""

    def put(self, slots: Slots, rows: Rows, all_rows: Rows) -> None:
        """`rows`, `(n, d)`, are now at `slots`, `(n,)`; `all_rows` is everything there is, with them. All are encoded
        again, with another scale, once too many do not fit the scale."""
        missing = len(all_rows) - self._index.ntotal
        if missing > 0:
            self._index.add(np.zeros((missing, self._dimension), dtype=np.float32))  # pyright: ignore[reportCallIssue]
        if self._scale:
            self._encode(slots, rows)
        if not self._scale or len(self.apart) > max(256, len(all_rows) // 50):
            peaks = np.abs(all_rows).max(axis=1)
            peaks = peaks[peaks > 0]  # a slot may be empty
            # Most rows set the scale, not the one that sticks out: the error grows with the scale.
            self._scale = 127.0 / max(float(np.quantile(peaks, 0.999)), 1e-6)
            self._error = 0.0
            self.apart.clear()
            for start in range(0, len(all_rows), 8192):
                part = all_rows[start : start + 8192]
                self._encode(np.arange(start, start + len(part)), part)

    def _encode(self, slots: Slots, rows: Rows) -> None:
        codes = np.rint(rows * np.float32(self._scale))
        clipped = np.abs(codes).max(axis=1) > 127
        codes[clipped] = 0.0
        errors = np.linalg.norm(rows - codes / np.float32(self._scale), axis=1)
        self._error = max(self._error, float(errors[~clipped].max(initial=0.0)))
        self.apart.difference_update(slots[~clipped].tolist())
        self.apart.update(slots[clipped].tolist())
        count = self._index.ntotal * self._dimension
        held = faiss.rev_swig_ptr(self._index.codes.data(), count).reshape(-1, self._dimension)
        held[slots] = (codes + 128.0).astype(np.uint8)

    def scan(self, query: Rows, k: int, allowed: Mask) -> tuple[Rows, Slots, float]:
        """Scores, best first, and slots of the `k` best `allowed` rows for `query`, `(1, d)`. And how far a score, of
        these or of rows that did not come, may be from the exact product."""
        # The query in whole numbers too: where the dimension is a multiple of 32, faiss (seen in 1.15) multiplies
        # integers with these codes and drops what the query has after the point, unasked.
        scale = 127.0 / max(float(np.abs(query).max()), 1e-6)
        whole = np.rint(query * np.float32(scale))
        lost = float(np.linalg.norm(query - whole / np.float32(scale)))
        scores, slots = _search(self._index, whole, k, allowed)
        # |qx - q'x'| <= |q| |x - x'| + |q - q'| |x'|, for q and x of length 1.
        return scores / np.float32(scale * self._scale), slots, self._error + lost * (1 + self._error)


def _search(index: faiss.Index, query: Rows, k: int, mask: Mask) -> tuple[Rows, Slots]:
    """`index.search` for one query, `(1, d)`, over the slots in `mask`, on one thread."""
    # For one query faiss has no work for a second thread, and OpenMP's threads spin: with two on two busy cores the
    # same scan took ten times as long (docs/measured.md).
    faiss.omp_set_num_threads(1)
    if mask.all():
        scores, slots = index.search(query, k)  # pyright: ignore[reportCallIssue]
    else:
        bits = np.packbits(mask, bitorder="little")
        chosen = faiss.IDSelectorBitmap(len(mask), faiss.swig_ptr(bits))
        scores, slots = index.search(query, k, params=faiss.SearchParameters(sel=chosen))  # pyright: ignore[reportCallIssue]
    found = slots[0] >= 0
    return scores[0][found], slots[0][found]
