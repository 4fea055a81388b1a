"""The rewriter: a lesson in other words, or the lesson as it is."""

import json
import random

import pytest

from actors.experience.navigator import Navigator
from actors.messages import Experience
from actors.store import Store
from adapters.rewriters.llm import LLMRewriter
from tests.support.chat_endpoint import ChatEndpoint, Reply, fails, says

pytestmark = pytest.mark.anyio
LESSON, WORDS = "search then book:buy", "Search the flight to Oslo, then call book:buy."


@pytest.mark.parametrize(
    ("reply", "given"),
    [(says(WORDS), WORDS), (says("x" * 1001), LESSON), (says("one\n\ntwo"), LESSON), (fails(500), LESSON)],
)
async def test_a_lesson_is_given_in_the_model_s_words_or_as_it_is_and_kept_in_its_own(
    store_url: str, reply: Reply, given: str
):
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    await store.save([Experience(id="book", when_to_use="book", content=LESSON, state="active")])
    with ChatEndpoint(reply) as endpoint:
        actor = Navigator(
            store=store, embedder=None, rng=random.Random(0),
            rewriter=LLMRewriter(model="m", url=endpoint.url, timeout=20.0),
        )  # fmt: skip
        await actor.start()
        [lesson] = await actor.lessons("Book a flight to:Oslo.", step="no such tool: book")
        [request] = endpoint.requests
    assert (lesson.content, (await store.experiences())[0].content) == (given, LESSON)
    assert (actor.figures["rewritten"], actor.figures["rewrite_failures"]) == ((1, 0) if given == WORDS else (0, 1))
    system, user = request["messages"]
    assert "Oslo" not in system["content"]
    told = {"lesson": LESSON, "goal": "Book a flight to:Oslo.", "last_seen": "no such tool: book"}
    assert json.loads(user["content"]) == told, "as data, in one field"
    await store.aclose()
