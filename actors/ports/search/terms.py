"""`TermIndex`: BM25 over texts that come, change and go one at a time.

The score is Robertson and Zaragoza's (The Probabilistic Relevance Framework, 2009, section 3.4); a text of several
fields counts a term by the weights of those it stands in (BM25F in its simple form: Robertson, Zaragoza and Taylor,
CIKM 2004, section 3).
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Fields = Sequence[tuple[float, Sequence[str]]]
"""(weight, terms) of each field of a text."""
_K1, _B = 1.2, 0.75
"""How soon more of the same term counts no more, and how far long texts count less: the textbook's. Of 0.2, 0.5, 0.75
and 0.9 the best but one of half of the paraphrases of docs/measured.md, for lessons and for tools."""
_POSTINGS = 1 << 16
"""Texts looked at for one query, the rarest terms first."""
_KNOWN = 2048
"""Terms of questions whose scores are kept at hand."""
_Known = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


class _Postings(NamedTuple):
    """Where a term is."""

    slots: "array[int]"
    counts: "array[float]"


class TermIndex:
    """Texts by slot: small numbers that the caller gives out and takes back."""

    def __init__(self) -> None:
        self._postings: dict[str, _Postings] = {}
        self._lengths = array("f")
        """Weighted terms by slot; 0 where there is no text."""
        self._known: dict[str, _Known] = {}
        self._texts = 0
        self._whole = 0.0

    def __contains__(self, term: str) -> bool:
        return term in self._postings

    def put(self, slot: int, fields: Fields) -> None:
        """Add a text at `slot`, which must be empty."""
        self._known.clear()
        counts = _counted(fields)
        self._lengths.extend([0.0] * (slot + 1 - len(self._lengths)))
        self._lengths[slot] = length = sum(counts.values())
        self._texts += 1
        self._whole += length
        for term, count in counts.items():
            if (postings := self._postings.get(term)) is None:
                postings = self._postings[term] = _Postings(array("i"), array("f"))
            postings.slots.append(slot)
            postings.counts.append(count)

    def remove(self, slot: int, fields: Fields) -> None:
        """Take away the text that was put at `slot` with `fields`."""
        self._known.clear()
        counts = _counted(fields)
        self._lengths[slot] = 0.0
        self._texts -= 1
        self._whole -= sum(counts.values())
        for term in counts:
            postings = self._postings[term]
            at = postings.slots.index(slot)
            # The last one takes its place: the order among postings means nothing.
            last, count = postings.slots.pop(), postings.counts.pop()
            if at < len(postings.slots):
                postings.slots[at], postings.counts[at] = last, count
            elif not postings.slots:
                del self._postings[term]

    def scores(self, worth: Mapping[str, float], slots: int) -> npt.NDArray[np.float32]:
        """BM25 of each text, `(slots,)`: `worth` is what each term counts, the dearest first."""
        found = np.zeros(slots, dtype=np.float32)
        looked = 0
        for term, weight in worth.items():
            known = self._known.get(term) or self._look(term)
            if known is None:
                continue
            looked += len(known[0])
            if looked > _POSTINGS and looked > len(known[0]):
                break
            # A slot is in a term's postings once: no add is lost.
            found[known[0]] += np.float32(weight) * known[1]
        return found

    def _look(self, term: str) -> _Known | None:
        """Where `term` is, and what it brings there; kept until a text comes or goes."""
        postings = self._postings.get(term)
        if postings is None:
            return None
        # Copies: an array of the standard library cannot grow while numpy looks into it.
        at = np.array(postings.slots, dtype=np.int64)
        counts, lengths = (np.array(given, dtype=np.float32) for given in (postings.counts, self._lengths))
        average = max(self._whole / self._texts, 1e-6)
        brought = counts * (_K1 + 1) / (counts + _K1 * (1 - _B + _B * lengths[at] / average))
        if len(self._known) >= _KNOWN:
            self._known.clear()
        known = self._known[term] = (at, brought.astype(np.float32))
        return known

    def idf(self, term: str) -> float:
        """How telling `term` is, above 0."""
        postings = self._postings.get(term)
        texts = len(postings.slots) if postings is not None else 0
        return math.log(1 + (self._texts - texts + 0.5) / (texts + 0.5))


def _counted(fields: Fields) -> dict[str, float]:
    counts: dict[str, float] = {}
    for weight, terms in fields:
        for term in terms:
            counts[term] = counts.get(term, 0.0) + weight
    return counts
