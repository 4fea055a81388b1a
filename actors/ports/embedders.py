"""Embedders: texts to vectors, so that the navigator finds lessons by what they are about."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Embedder(Protocol):
    """Turns texts into vectors whose inner product is their likeness."""

    id: str
    """Names the model and all that decides what its vectors are; vectors are kept under it. Changes with the model."""
    dimension: int
    """`d`, the same for every call; 0 until the first answer, if only that tells."""

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of `texts`, `(n, d)` float32, each of Euclidean length 1; `(0, d)` for no texts.

        The same text always gives the same vector, whatever it is embedded with.

        Raises:
            EmbedderUnavailable: no answer in time.
            VectorsRefused: an answer that cannot be used (`actors.ports.vectors`).
        """
        ...


def words_alone(embedder: Embedder) -> bool:
    """Whether its vectors see no more than words do: then what finds by words does better without them."""
    return embedder.id.startswith("hashing")


__all__ = ["Embedder", "words_alone"]
