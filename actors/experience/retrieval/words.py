"""`WordIndex`: BM25 over texts that come, change and go one at a time.

The score is Robertson and Zaragoza's (The Probabilistic Relevance Framework, 2009, section 3.4), divided by what a text
of average length would get that says each of the query's words once: 1 means "speaks of all of it", whatever the
query's length, so that one threshold fits all. Words that no text has count too, or a query of unknown words would
be covered by a text that shares its one "the". Tools' names count whole and in parts: `search_flights` is also
"search" and "flights".
"""

import math
import re
from array import array
from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_K1, _B = 1.2, 0.75
_TEXT_TERMS = 512
"""Of one text: what comes later in it is not found by words."""
_QUERY_TERMS = 64
"""Of one query, the rarest."""
_QUERY_POSTINGS = 1 << 16
"""Texts looked at for one query, the rarest terms first."""


class _Postings(NamedTuple):
    """Where a term is."""

    slots: "array[int]"
    counts: "array[int]"


class WordIndex:
    """Texts by slot: small numbers that the caller gives out and takes back."""

    def __init__(self) -> None:
        self._postings: dict[str, _Postings] = {}
        self._lengths = np.zeros(0, dtype=np.float32)
        """Terms by slot; 0 where there is no text."""
        self._texts = 0
        self._terms = 0

    def put(self, slot: int, text: str) -> None:
        """Add `text` at `slot`, which must be empty."""
        counts = Counter(terms(text)[:_TEXT_TERMS])
        if slot >= len(self._lengths):
            grown = np.zeros(max(64, 2 * len(self._lengths), slot + 1), dtype=np.float32)
            grown[: len(self._lengths)] = self._lengths
            self._lengths = grown
        length = counts.total()
        self._lengths[slot] = length
        self._texts += 1
        self._terms += length
        for term, count in counts.items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = _Postings(array("i"), array("H"))
            postings.slots.append(slot)
            postings.counts.append(count)

    def remove(self, slot: int, text: str) -> None:
        """Take away `text`, which was put at `slot`."""
        counts = Counter(terms(text)[:_TEXT_TERMS])
        self._lengths[slot] = 0.0
        self._texts -= 1
        self._terms -= counts.total()
        for term in counts:
            postings = self._postings[term]
            at = int(np.flatnonzero(np.frombuffer(postings.slots, dtype=np.int32) == slot)[0])
            # The last one takes its place: the order among postings means nothing.
            last, count = postings.slots.pop(), postings.counts.pop()
            if at < len(postings.slots):
                postings.slots[at], postings.counts[at] = last, count
            elif not postings.slots:
                del self._postings[term]

    def coverage(self, query: str, slots: int) -> npt.NDArray[np.float32]:
        """How much of `query` each text covers, `(slots,)`, 0 to 1."""
        found = np.zeros(slots, dtype=np.float32)
        wanted = {term: self._idf(term) for term in dict.fromkeys(terms(query))}
        rarest = sorted(wanted, key=wanted.__getitem__, reverse=True)[:_QUERY_TERMS]
        whole = sum(wanted[term] for term in rarest)
        if not self._texts or not whole:
            return found
        average = self._terms / self._texts
        looked = 0
        for term in rarest:
            postings = self._postings.get(term)
            if postings is None:
                continue
            looked += len(postings.slots)
            if looked > _QUERY_POSTINGS and looked > len(postings.slots):
                break
            at = np.frombuffer(postings.slots, dtype=np.int32)
            counts = np.frombuffer(postings.counts, dtype=np.uint16).astype(np.float32)
            norms = _K1 * (1 - _B + _B * self._lengths[at] / average)
            # A slot is in a term's postings once: no add is lost.
            found[at] += np.float32(wanted[term] / whole) * counts * (_K1 + 1) / (counts + norms)
        return np.minimum(found, 1.0, out=found)

    def _idf(self, term: str) -> float:
        postings = self._postings.get(term)
        texts = len(postings.slots) if postings is not None else 0
        return math.log(1 + (self._texts - texts + 0.5) / (texts + 0.5))


def terms(text: str) -> list[str]:
    """The words of `text` in lower case, in order; a compound name is followed by its parts."""
    if "_" not in text and text.islower():
        return _WORD.findall(text)
    found: list[str] = []
    for word in _WORD.findall(text):
        found.append(word.lower())
        if "_" in word or not (word.islower() or word.isdigit()):
            parts = [part.lower() for part in _PART.findall(word)]
            if len(parts) > 1:
                found.extend(parts)
    return found
