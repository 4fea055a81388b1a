"""`TextIndex`: how much of a request a text speaks of, by words and by letters; no model, any language.

Lessons and tools are found with it. A text has fields, each with a weight: a word of a tool's name says more than one
of its description.

Words carry most of it. Letters, four at a time, find what a typing error, another ending or a script without spaces
keeps from being the same word; they count half as much (docs/measured.md has the measurement).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from actors.ports.search.terms import Fields, TermIndex
from actors.ports.search.words import parts, words

_LETTERS = 0.5
"""Weight of what letters say, beside 1 of words."""
_GRAM = 4
_DENSE = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
"""Scripts that say in two characters what takes others a word: Thai, Japanese, Chinese, Korean."""
_TEXT_WORDS, _TEXT_GRAMS = 512, 256
"""Of one text: what comes later in it is not found. Letters are what most of the memory goes to."""
_QUERY_TERMS = 64
"""Of one request, the most telling, of either sort."""
_SAID, _SPELT = 10, 40
"""Words, and letters four at a time, in which people say what they want; what a request has beyond them is its story,
and no lesson speaks of that. So a share is one of so many at most; without that bound hardly a request of three
sentences found its lesson, with a lower one any story finds something."""
Texts = Sequence[tuple[float, str]]
"""(weight, text) of each field."""


class TextIndex:
    """Texts by slot: small numbers that the caller gives out and takes back."""

    def __init__(self) -> None:
        self._words, self._grams = TermIndex(), TermIndex()

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def put(self, slot: int, fields: Texts) -> None:
        """Add a text at `slot`, which must be empty."""
        for index, terms in self._terms(fields):
            index.put(slot, terms)

    def remove(self, slot: int, fields: Texts) -> None:
        """Take away the text that was put at `slot` with `fields`."""
        for index, terms in self._terms(fields):
            index.remove(slot, terms)

    def coverage(self, request: str, slots: int) -> npt.NDArray[np.float32]:
        """How much of `request` each text speaks of, `(slots,)`, 0 to 1: its BM25, divided by what a text of average
        length would get that says each of the request's terms once.

        Terms that no text has count too, or a request of unknown words would be covered by a text that shares one.
        """
        return self.covered(dict.fromkeys(words(request), 1.0), dict.fromkeys(grams(request), 1.0), slots)

    def covered(self, said: Mapping[str, float], spelt: Mapping[str, float], slots: int) -> npt.NDArray[np.float32]:
        """As `coverage`, of a request by the weights of its `words` and of its `grams`."""
        said = {word: weight for word, weight in said.items() if not _DENSE.search(word)}
        by_letters = _share(self._grams, spelt, slots, _SPELT)
        if not said:
            return by_letters
        by_letters *= np.float32(_LETTERS / (1 + _LETTERS))
        by_letters += np.float32(1 / (1 + _LETTERS)) * _share(self._words, said, slots, _SAID)
        return by_letters

    def idf(self, word: str) -> float:
        """How telling `word` is, above 0."""
        return self._words.idf(word)

    def _terms(self, fields: Texts) -> Iterable[tuple[TermIndex, Fields]]:
        yield self._words, [(weight, _spaced(text)[:_TEXT_WORDS]) for weight, text in fields]
        left, spelt = _TEXT_GRAMS, list[tuple[float, list[str]]]()
        for weight, text in fields:
            own = list(dict.fromkeys(grams(text)))[:left]
            spelt.append((weight, own))
            left -= len(own)
        yield self._grams, spelt


def _spaced(text: str) -> list[str]:
    """The words of `text` as they are compared, without those of scripts that put no space between two."""
    return [word for word in words(text) if not _DENSE.search(word)]


def grams(text: str) -> list[str]:
    """The letters of each word of `text`, four at a time with a mark at its beginning and end; two at a time in scripts
    that write whole words with one or two."""
    found: list[str] = []
    for word in parts(text):
        size = 2 if _DENSE.search(word) else _GRAM
        framed = word if size == 2 else f"^{word}$"
        found += [framed[at : at + size] for at in range(max(1, len(framed) - size + 1))]
    return found


def _share(index: TermIndex, wanted: Mapping[str, float], slots: int, most: int) -> npt.NDArray[np.float32]:
    """The BM25 of each text for `wanted`, by weight, as a share of what `most` of those terms could bring."""
    worth = {term: weight * index.idf(term) for term, weight in wanted.items()}
    whole = sum(worth.values()) * min(1.0, most / max(1, len(worth)))
    if not whole:
        return np.zeros(slots, dtype=np.float32)
    # Terms that no text has count in the whole alone: here they would crowd out all others.
    known = sorted((term for term in worth if term in index), key=lambda term: (-worth[term], term))
    found = index.scores({term: worth[term] / whole for term in known[:_QUERY_TERMS]}, slots)
    return np.minimum(found, np.float32(1.0), out=found)
