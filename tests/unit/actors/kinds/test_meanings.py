"""Kinds where an embedding server is named: by vectors, and by words whenever it is not there."""

import random
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from actors.experience.retrieval.embedding import Embeddings
from actors.kinds.kinds import Kinds
from actors.kinds.levels import Levels
from actors.kinds.meanings import Meaning, Meanings
from actors.kinds.neighbourhoods import FEW, Leader, Neighbourhoods
from actors.messages import Step, Trajectory
from actors.ports.errors import EmbedderUnavailable, VectorsRefused
from actors.store import Store
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


class Topics:
    """An embedder that gives goals their topics' vectors; may be away, refuse a goal or become another model."""

    id = "m"

    def __init__(self) -> None:
        self.dimension, self.away, self.bad, self.asked = SIZE, False, "", 0
        self.known = {goal(topic, number): (topic, number) for topic in range(TOPICS) for number in range(8)}

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += 1
        if self.away:
            raise EmbedderUnavailable("away")
        if self.bad in texts:
            raise VectorsRefused("not this one")
        places = [self.known.get(text, (TOPICS + 9, 0)) for text in texts]
        return np.stack([vector(topic, 10 * topic + number, self.dimension) for topic, number in places])


async def test_kinds_and_levels_go_by_the_server_and_by_words_while_it_is_away_or_another(store: Store) -> None:
    model, ticks = Topics(), Clock(0.0)
    kinds, levels = Kinds(Meanings(Embeddings(model, store), ticks=ticks)), Levels()
    levels.meanings = kinds.meanings
    await kinds.meanings.look([goal(topic, number) for topic in range(TOPICS) for number in (0, 1)])
    for topic in range(TOPICS):
        kinds.tell(run(topic, 0, 1.0))
        levels.tell(run(topic, 0, 1.0))
    assert kinds.kind(run(3, 1)) == kinds.kind(run(3, 0))
    assert levels.alike(goal(3, 1)) == levels.alike(goal(3, 0))
    assert kinds.figures["kinds_vectors_embedded"] == 2 * TOPICS
    model.away = True
    await kinds.meanings.look([goal(3, 2)])
    asked = model.asked
    await kinds.meanings.look([goal(3, 2)])
    assert model.asked == asked, "who failed is left alone for a while"
    assert kinds.kind(run(3, 2)) != kinds.kind(run(3, 0))
    assert kinds.meanings.counts["unavailable"] == 2
    model.away, ticks.now = False, 31.0
    await kinds.meanings.look([goal(3, 2)])
    assert kinds.kind(run(3, 2)) == kinds.kind(run(3, 0))
    model.dimension, ticks.now = 32, 40.0
    await kinds.meanings.look([goal(3, 3)])
    ticks.now = 80.0
    await kinds.meanings.look([goal(3, 3)])
    assert kinds.meanings.counts["changed"] == 1
    assert kinds.meanings.of(goal(3, 0)) is None, "made by the model of before"
    assert kinds.meanings.of(goal(3, 3)).vector.shape == (32,)


async def test_one_bad_goal_costs_only_itself(store: Store) -> None:
    model = Topics()
    model.bad = goal(2, 0)
    meanings = Meanings(Embeddings(model, store), ticks=Clock(0.0))
    await meanings.look([goal(topic, 0) for topic in range(TOPICS)])
    assert meanings.counts == {"embedded": TOPICS - 1, "refused": 1}
    assert meanings.of(goal(2, 0)) is None
    assert meanings.of(goal(3, 0)) is not None


async def test_a_slow_server_costs_seconds_of_each_half_minute_and_no_more(store: Store) -> None:
    ticks = Clock(0.0)

    class Slow(Topics):
        async def embed(self, texts: Sequence[str]) -> np.ndarray:
            ticks.now += 2.0
            return await super().embed(texts)

    meanings = Meanings(Embeddings(Slow(), store), ticks=ticks)
    for number in range(10):
        await meanings.look([f"goal {number}"])
    counts = dict(meanings.counts)
    assert counts["embedded"] + counts["unavailable"] == 10
    assert counts["embedded"] <= 3
    ticks.now += 30.0
    await meanings.look(["goal 9"])
    assert meanings.of("goal 9") is not None
