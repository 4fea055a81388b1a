"""Embedders: texts to vectors, so that the navigator finds lessons by what they are about."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Embedder(Protocol):
    """Turns texts into vectors whose inner product is their likeness."""

    dimension: int
    """`d`, the same for every call."""

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of `texts`, `(n, d)` float32, each of Euclidean length 1; `(0, d)` for no texts.

        The same text always gives the same vector, whatever it is embedded with.

        Raises:
            EmbedderUnavailable: no answer in time.
        """
        ...


__all__ = ["Embedder"]
