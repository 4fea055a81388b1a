"""What every embedder promises; a new one joins by a line in `EMBEDDERS`."""

from collections.abc import AsyncIterator, Callable, Iterator

import numpy as np
import pytest

from actors.ports.models import Embedder
from adapters.embedders.hashing import HashingEmbedder
from adapters.embedders.openai import OpenAIEmbedder
from tests.support.embedding_server import EmbeddingServer

EMBEDDERS: dict[str, Callable[[str], Embedder]] = {
    "hashing": lambda url: HashingEmbedder(),
    "hashing-small": lambda url: HashingEmbedder(dimension=64),
    "openai": lambda url: OpenAIEmbedder("small", base_url=url),
    "openai-one-a-request": lambda url: OpenAIEmbedder("small", base_url=url, batch=1),
}
TEXTS = ["cancel the order", "", "naïve Übergröße 東京", "!?", "cancel " * 4000, "\ud800"]
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture(params=EMBEDDERS)
async def embedder(request: pytest.FixtureRequest, server: EmbeddingServer) -> AsyncIterator[Embedder]:
    built = EMBEDDERS[request.param](server.url)
    yield built
    if isinstance(built, OpenAIEmbedder):
        await built.aclose()


async def test_vectors_are_float32_of_length_one(embedder: Embedder):
    vectors = await embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


async def test_a_text_has_one_vector_whatever_it_is_embedded_with(embedder: Embedder):
    together = await embedder.embed(TEXTS)
    apart = np.concatenate([await embedder.embed([text]) for text in TEXTS])
    assert np.allclose(together, apart, atol=1e-5)


async def test_texts_with_common_words_are_nearer_than_others(embedder: Embedder):
    goal, near, far = await embedder.embed(
        ["Cancel the order for:Mia.", "When to use: cancel an order.", "When to use: weather."]
    )
    assert goal @ near > goal @ far


async def test_its_id_stays_and_says_which_model_it_is(embedder: Embedder, request: pytest.FixtureRequest):
    before = embedder.id
    await embedder.embed(["a text"])
    assert embedder.id == before != ""
