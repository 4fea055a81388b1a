"""What every embedder promises; a new one joins by a line in `EMBEDDERS`."""

from collections.abc import Callable

import numpy as np
import pytest

from adapters.embedders import Embedder
from adapters.embedders.hashing import HashingEmbedder

EMBEDDERS: dict[str, Callable[[], Embedder]] = {
    "hashing": HashingEmbedder,
    "hashing-small": lambda: HashingEmbedder(dimension=64),
}
TEXTS = ["Cancel the order for:Mia.", "", "☂ ☂ ☂", "a", "Book a flight to:Oslo for:Mia.", "x" * 10_000, "\ud800"]


@pytest.fixture(params=EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return EMBEDDERS[request.param]()


@pytest.mark.anyio
async def test_vectors_are_float32_of_length_one(embedder: Embedder):
    vectors = await embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.anyio
async def test_no_texts_give_no_vectors(embedder: Embedder):
    assert (await embedder.embed([])).shape == (0, embedder.dimension)


@pytest.mark.anyio
async def test_a_text_has_one_vector_whatever_it_is_embedded_with(embedder: Embedder):
    together = await embedder.embed(TEXTS)
    apart = np.concatenate([await embedder.embed([text]) for text in TEXTS])
    assert np.allclose(together, apart, atol=1e-5)


@pytest.mark.anyio
async def test_texts_with_common_words_are_nearer_than_others(embedder: Embedder):
    goal, near, far = await embedder.embed(
        ["Cancel the order for:Mia.", "When to use: cancel an order.", "When to use: weather."]
    )
    assert goal @ near > goal @ far
