"""The rewriter: a lesson in other words, or the lesson as it is."""

import json
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from actors.experience.navigator import Navigator
from actors.experience.retrieval.settings import NavigatorSettings
from actors.messages import Experience
from actors.store import Store
from adapters.embedders.hashing import HashingEmbedder
from adapters.rewriters.llm import LLMRewriter
from tests.support.embedding_server import Answer, EmbeddingServer

pytestmark = pytest.mark.anyio


def said(content: str | None) -> Answer:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return 200, json.dumps(
        {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    ).encode()


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    await store.save([Experience(id="book", when_to_use="book", content="search then book:buy", state="active")])
    yield store
    await store.aclose()


async def given(store: Store, server: EmbeddingServer) -> tuple[str, dict[str, float]]:
    """What is given for a goal, and the figures."""
    actor = Navigator(
        NavigatorSettings(), store=store, embedder=HashingEmbedder(), rng=random.Random(0),
        rewriter=LLMRewriter(model="m", url=server.url, timeout=20.0),
    )  # fmt: skip
    await actor.start()
    [lesson] = await actor.lessons("Book a flight to:Oslo.", step="no such tool: book")
    return lesson.content, actor.figures


async def test_a_lesson_is_given_in_the_model_s_words_and_kept_in_its_own(store: Store, server: EmbeddingServer):
    server.script = lambda body: said("Search the flight to Oslo, then call book:buy.")
    content, figures = await given(store, server)
    assert content == "Search the flight to Oslo, then call book:buy."
    assert figures["rewritten"] == 1
    [kept] = await store.experiences()
    assert kept.content == "search then book:buy"


async def test_lesson_goal_and_step_go_out_as_data_in_one_field(store: Store, server: EmbeddingServer):
    server.script = lambda body: said("ok")
    await given(store, server)
    system, user = server.asked[0].json["messages"]
    assert "Oslo" not in system["content"]
    assert "response_format" not in server.asked[0].json
    assert json.loads(user["content"]) == {
        "lesson": "search then book:buy", "goal": "Book a flight to:Oslo.", "last_seen": "no such tool: book",
    }  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [said("x" * 1001), said("one\n\ntwo"), (500, b"{}")],
)
async def test_whatever_goes_wrong_the_lesson_is_given_as_it_is_and_that_is_counted(
    store: Store, server: EmbeddingServer, answer: Answer
):
    server.script = lambda body: answer
    content, figures = await given(store, server)
    assert content == "search then book:buy"
    assert (figures["rewritten"], figures["rewrite_failures"]) == (0, 1)
    assert len(server.asked) == 1
