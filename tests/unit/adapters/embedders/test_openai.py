"""The embedder over HTTP: what a server may do wrong, and what becomes of it."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from actors.ports import errors
from adapters.embedders.openai import OpenAIEmbedder
from tests.support.embedding_server import EmbeddingServer, hanging, honest, listed

pytestmark = pytest.mark.anyio
TEXTS = ["one", "two", "three"]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
async def embedder(server: EmbeddingServer) -> AsyncIterator[Callable[..., OpenAIEmbedder]]:
    """Makes embedders on the server; closed at the end."""
    made: list[OpenAIEmbedder] = []

    def make(**options: Any) -> OpenAIEmbedder:
        made.append(OpenAIEmbedder("small", **{"base_url": server.url, "retries": 0, **options}))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


async def test_the_dimension_is_learned_from_the_first_answer_and_follows_the_model(server: EmbeddingServer, embedder):
    one = embedder()
    assert one.dimension == 0
    assert (await one.embed(["a"])).shape == (1, 256)
    assert one.dimension == 256
    server.script = honest(64)
    assert (await one.embed(["a"])).shape == (1, 64)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (listed([[1.0, 0.0], [0.0, 1.0]]), errors.AnswerRefused),
        (listed([[1.0, 0.0]] * 4), errors.AnswerRefused),
        (listed([[1.0, 0.0], [0.0, 1.0], [1.0]]), errors.WrongDimension),
        (listed([[], [], []]), errors.WrongDimension),
        (listed([[1.0, 0.0], [0.0, float("nan")], [1.0, 1.0]]), errors.AnswerRefused),
        (listed([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), errors.AnswerRefused),
        (listed([[1.0, 0.0], None, [1.0, 1.0]]), errors.WrongDimension),
        (listed([["x"], ["y"], ["z"]]), errors.AnswerRefused),
        ((200, b'{"object": "list"}'), errors.AnswerRefused),
        ((200, b'{"data": [{"index": 0}, {"index": 0}, {"index": 0}]}'), errors.AnswerRefused),
        ((200, b"[]"), errors.AnswerRefused),
        ((200, b"<html>busy</html>"), errors.ModelUnavailable),
        ((200, b""), errors.ModelUnavailable),
        ((400, b'{"error": {"message": "too long"}}'), errors.AnswerRefused),
        ((401, b"{}"), errors.ModelUnavailable),
        ((500, b"oops"), errors.ModelUnavailable),
    ],
)
async def test_no_answer_that_is_not_vectors_gets_through(server: EmbeddingServer, answer, error, embedder):
    server.script = lambda body: answer
    with pytest.raises(error) as raised:
        await embedder().embed(TEXTS)
    assert raised.type is error


async def test_tries_are_bounded_and_a_later_one_may_succeed(server: EmbeddingServer, embedder):
    server.script = lambda body: (503, b"{}")
    with pytest.raises(errors.ModelUnavailable, match="503"):
        await embedder(retries=1).embed(["a"])
    assert len(server.asked) == 2
    answers = iter([(429, b"{}")])
    server.script = lambda body: next(answers, None) or honest()(body)
    assert (await embedder(retries=1).embed(["a"])).shape == (1, 256)


async def test_a_server_that_hangs_is_unavailable_in_time(server: EmbeddingServer, embedder):
    server.script = hanging(5.0)
    with pytest.raises(errors.ModelUnavailable, match="no answer within 1 tries"):
        await embedder(timeout=0.2).embed(["a"])


def test_without_a_key_the_public_endpoint_is_not_even_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(errors.AdapterNotSetUp, match="OPENAI_API_KEY"):
        OpenAIEmbedder("small")


def test_the_id_tells_models_and_places_apart():
    places = ("http://a:1/v1", "http://b:1/v1", "http://a:2/v1")
    kinds = itertools.product(("small", "large"), places, (0, 64))
    ids = {OpenAIEmbedder(model, base_url=url, dimensions=size).id for model, url, size in kinds}
    assert len(ids) == 12
