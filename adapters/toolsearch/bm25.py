"""`FieldIndex`: BM25 over texts of several fields that come and go one at a time.

BM25F in its simple form (Robertson, Zaragoza and Taylor, CIKM 2004): a term's frequency is the sum over the fields,
each with its weight, and so is a text's length. A word of a tool's name says more than one of its description.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Frozen = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


class FieldIndex:
    """Texts by slot: small numbers that the caller gives out and takes back.

    Args:
        k1: how soon more of the same word counts no more.
        b: how far long texts count less, 0 to 1: little, as what a tool says at length it seldom says twice.
    """

    def __init__(self, k1: float = 1.2, b: float = 0.2) -> None:
        self._k1, self._b = k1, b
        self._texts: dict[int, dict[str, float]] = {}
        """By slot, the weighted frequency of each term."""
        self._postings: dict[str, dict[int, float]] = {}
        self._frozen: dict[str, Frozen] = {}
        """Postings as arrays, until one of them changes."""
        self._lengths = np.zeros(0, dtype=np.float32)
        self._whole = 0.0

    def __contains__(self, term: str) -> bool:
        return term in self._postings

    def put(self, slot: int, fields: Sequence[tuple[float, Sequence[str]]]) -> None:
        """Add a text at `slot`, which must be empty.

        Args:
            fields: (weight, terms) of each.
        """
        counts: dict[str, float] = {}
        for weight, terms in fields:
            for term in terms:
                counts[term] = counts.get(term, 0.0) + weight
        if slot >= len(self._lengths):
            grown = np.zeros(max(64, 2 * len(self._lengths), slot + 1), dtype=np.float32)
            grown[: len(self._lengths)] = self._lengths
            self._lengths = grown
        self._texts[slot] = counts
        self._lengths[slot] = sum(counts.values())
        self._whole += float(self._lengths[slot])
        for term, count in counts.items():
            self._postings.setdefault(term, {})[slot] = count
            self._frozen.pop(term, None)

    def remove(self, slot: int) -> None:
        """Take away the text at `slot`."""
        for term in self._texts.pop(slot):
            postings = self._postings[term]
            del postings[slot]
            self._frozen.pop(term, None)
            if not postings:
                del self._postings[term]
        self._whole -= float(self._lengths[slot])
        self._lengths[slot] = 0.0

    def scores(self, query: Mapping[str, float], slots: int) -> npt.NDArray[np.float32]:
        """BM25 of each text, `(slots,)`, 0 where none of the query's terms is.

        Args:
            query: weight of each term.
        """
        found = np.zeros(slots, dtype=np.float32)
        if not self._texts:
            return found
        average = max(self._whole / len(self._texts), 1e-6)
        norms = self._k1 * (1 - self._b + self._b * self._lengths[:slots] / average)
        for term, weight in query.items():
            frozen = self._freeze(term)
            if frozen is None:
                continue
            at, counts = frozen
            # A slot is in a term's postings once: no add is lost.
            found[at] += np.float32(weight * self.idf(term)) * counts * (self._k1 + 1) / (counts + norms[at])
        return found

    def idf(self, term: str) -> float:
        """How telling `term` is, above 0."""
        texts = len(self._postings.get(term, ()))
        return math.log(1 + (len(self._texts) - texts + 0.5) / (texts + 0.5))

    def _freeze(self, term: str) -> Frozen | None:
        frozen = self._frozen.get(term)
        if frozen is None and (postings := self._postings.get(term)) is not None:
            slots = np.fromiter(postings, dtype=np.int64, count=len(postings))
            counts = np.fromiter(postings.values(), dtype=np.float32, count=len(postings))
            frozen = self._frozen[term] = (slots, counts)
        return frozen
