"""`HashingEmbedder`: a small local embedder without a model and without a download.

Words and the character n-grams of words are counted into a vector of fixed size by hash, each with a sign that the
hash decides too, so that collisions cancel out on average (feature hashing, Weinberger et al. 2009). N-grams make
"cancel" and "cancelled" neighbours. It knows nothing of meaning: "purchase" and "buy" are as far apart as any words.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\w+")
_EMPTY = "\x00"
"""Feature of a text without words: no vector may be zero."""


class HashingEmbedder:
    """An `Embedder` by feature hashing.

    Args:
        dimension: length of the vectors.
        ngram: characters in an n-gram; words are framed with a space on both sides first.
        word_weight: how much a whole word counts against one of its n-grams.
    """

    def __init__(self, dimension: int = 256, ngram: int = 3, word_weight: float = 2.0) -> None:
        if dimension < 1 or ngram < 1 or word_weight <= 0:
            raise ValueError("dimension, ngram and word_weight must be positive")
        self.id = f"hashing-{ngram}-{word_weight:g}"
        self.dimension = dimension
        self._ngram = ngram
        self._word_weight = word_weight

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of `texts`, `(n, d)` float32 of length 1; never raises `ModelUnavailable`."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            self._add(vectors[row], text)
        return vectors

    def _add(self, vector: npt.NDArray[np.float32], text: str) -> None:
        weights: dict[str, float] = defaultdict(float)
        for feature, weight in self._features(text):
            weights[feature] += weight
        for feature, weight in weights.items():
            digest = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            number = int.from_bytes(digest, "little")
            # The root keeps a word that is said ten times from drowning the others.
            vector[(number >> 1) % self.dimension] += math.sqrt(weight) * (1 if number & 1 else -1)
        length = float(np.linalg.norm(vector))
        if length < 1e-6:
            # Every feature met its opposite, or there was none.
            vector[0] = length = 1.0
        vector /= length

    def _features(self, text: str) -> Iterator[tuple[str, float]]:
        words = _WORD.findall(text.lower()) or [_EMPTY]
        for word in words:
            yield f"w{word}", self._word_weight
            framed = f" {word} "
            for start in range(len(framed) - self._ngram + 1):
                yield f"n{framed[start : start + self._ngram]}", 1.0
