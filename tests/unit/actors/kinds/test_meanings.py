"""Kinds where an embedding server is named: by vectors, and by words whenever it is not there."""

import random
from collections.abc import AsyncIterator, Callable

import msgspec
import numpy as np
import pytest

from actors.experience.retrieval.embedding import Embeddings
from actors.kinds.kinds import Kinds
from actors.kinds.levels import Levels
from actors.kinds.meanings import Meaning, Meanings
from actors.kinds.neighbourhoods import FEW, Leader, Neighbourhoods
from actors.messages import Step, Trajectory
from actors.store import Store
from adapters.embedders.openai import OpenAIEmbedder
from tests.support.embedding_server import EmbeddingServer, listed
from tests.support.fakes import Clock

pytestmark = pytest.mark.anyio
TOPICS = FEW + 4
SIZE = 64


def vector(topic: int, seed: int, size: int = SIZE) -> np.ndarray:
    """Near the others of its topic; topics have nothing in common."""
    noise = np.random.default_rng(seed).normal(size=size) * 0.03
    noise[topic % size] += 1.0
    return (noise / np.linalg.norm(noise)).astype(np.float32)


def goal(topic: int, number: int) -> str:
    """No two share a word."""
    rng = random.Random(f"{topic}-{number}")
    return " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(4))


def run(topic: int, number: int, outcome: float | None = None) -> Trajectory:
    return Trajectory(
        id=f"{topic}-{number}", tenant="t", caller="c", goal=goal(topic, number), outcome=outcome,
        steps=(Step(exchange_id="x", role="clerk#1"),), started=0.0, ended=1.0,
    )  # fmt: skip


def test_what_means_the_same_in_other_words_is_one_neighbourhood_also_without_a_server_and_after_a_restart() -> None:
    places = Neighbourhoods()
    for topic in range(TOPICS):
        places.place(goal(topic, 0), "p", Meaning("m/64", vector(topic, topic)))
    assert places.near(goal(3, 1)) is None, "by words"
    assert places.near(goal(3, 1), Meaning("m/64", vector(3, 99))) == places.near(goal(3, 0))
    name = places.place(goal(3, 1), "p", Meaning("m/64", vector(3, 99)))
    assert places.near(goal(3, 1)) == name
    again = Neighbourhoods()
    again.load(msgspec.msgpack.decode(msgspec.msgpack.encode(places.state()), type=list[tuple[str, Leader]]))
    assert again.near(goal(3, 1)) == name
    assert again.near(goal(3, 2), Meaning("m/64", vector(3, 98))) == name


class Server:
    """Goals' topics as vectors over real HTTP; may be told to fail."""

    def __init__(self) -> None:
        self.size, self.status, self.bad = SIZE, 200, ""
        self.known = {goal(topic, number): (topic, number) for topic in range(TOPICS) for number in range(8)}

    def __call__(self, body: dict[str, object]) -> tuple[int, bytes]:
        texts = body["input"]
        assert isinstance(texts, list)
        if self.status != 200:
            return self.status, b"{}"
        if self.bad and self.bad in texts:
            return 400, b"{}"
        places = [self.known.get(text, (TOPICS + 9, 0)) for text in texts]
        return listed([vector(topic, 10 * topic + number, self.size).tolist() for topic, number in places])


@pytest.fixture
async def made(store_url: str) -> AsyncIterator[Callable[[EmbeddingServer, Clock], Meanings]]:
    """Meanings by a server's vectors, at a time."""
    store, embedders = Store(store_url, clock=lambda: 0.0), list[OpenAIEmbedder]()
    await store.open()

    def make(server: EmbeddingServer, ticks: Clock) -> Meanings:
        embedders.append(OpenAIEmbedder("m", base_url=server.url, retries=0))
        return Meanings(Embeddings(embedders[-1], store), ticks=ticks)

    yield make
    for one in embedders:
        await one.aclose()
    await store.aclose()


async def test_kinds_and_levels_go_by_the_server_and_by_words_while_it_is_away_or_another(made) -> None:
    script, ticks = Server(), Clock(0.0)
    with EmbeddingServer(script) as server:
        kinds, levels = Kinds(made(server, ticks)), Levels()
        levels.meanings = kinds.meanings
        await kinds.meanings.look([goal(topic, number) for topic in range(TOPICS) for number in (0, 1)])
        for topic in range(TOPICS):
            kinds.tell(run(topic, 0, 1.0))
            levels.tell(run(topic, 0, 1.0))
        assert kinds.kind(run(3, 1)) == kinds.kind(run(3, 0))
        assert levels.alike(goal(3, 1)) == levels.alike(goal(3, 0))
        assert kinds.figures["kinds_vectors_embedded"] == 2 * TOPICS
        script.status = 503
        await kinds.meanings.look([goal(3, 2)])
        asked = len(server.asked)
        await kinds.meanings.look([goal(3, 2)])
        assert len(server.asked) == asked, "who failed is left alone for a while"
        assert kinds.kind(run(3, 2)) != kinds.kind(run(3, 0))
        assert kinds.meanings.counts["unavailable"] == 2
        script.status, ticks.now = 200, 31.0
        await kinds.meanings.look([goal(3, 2)])
        assert kinds.kind(run(3, 2)) == kinds.kind(run(3, 0))
        script.size, ticks.now = 32, 40.0
        await kinds.meanings.look([goal(3, 3)])
        ticks.now = 80.0
        await kinds.meanings.look([goal(3, 3)])
        assert kinds.meanings.counts["changed"] == 1
        assert kinds.meanings.of(goal(3, 0)) is None, "made by the model of before"
        found = kinds.meanings.of(goal(3, 3))
        assert found is not None
        assert found.vector.shape == (32,)


async def test_one_bad_goal_costs_only_itself(made) -> None:
    script = Server()
    script.bad = goal(2, 0)
    with EmbeddingServer(script) as server:
        meanings = made(server, Clock(0.0))
        await meanings.look([goal(topic, 0) for topic in range(TOPICS)])
    assert meanings.counts == {"embedded": TOPICS - 1, "refused": 1}
    assert meanings.of(goal(2, 0)) is None
    assert meanings.of(goal(3, 0)) is not None


async def test_a_slow_server_costs_seconds_of_each_half_minute_and_no_more(made) -> None:
    ticks = Clock(0.0)

    def slow(body: dict[str, object]) -> tuple[int, bytes]:
        ticks.now += 2.0
        return Server()(body)

    with EmbeddingServer(slow) as server:
        meanings = made(server, ticks)
        for number in range(10):
            await meanings.look([f"goal {number}"])
        counts = dict(meanings.counts)
        assert counts["embedded"] + counts["unavailable"] == 10
        assert counts["embedded"] <= 3
        ticks.now += 30.0
        await meanings.look(["goal 9"])
        assert meanings.of("goal 9") is not None
