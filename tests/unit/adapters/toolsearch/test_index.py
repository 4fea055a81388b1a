"""`ToolIndex`: the right operation first, and no input that breaks it."""

import numpy as np
import pytest

from actors.ports.errors import AnswerRefused, ModelUnavailable
from adapters.live import MAX_NAME, Operation
from adapters.toolsearch import ToolIndex

pytestmark = pytest.mark.anyio

SHOP = (
    Operation(name="place_order", description="Order what is in the cart.", tags=("write",)),
    Operation(name="show_orders", description="Orders of the past.", tags=("read",)),
    Operation(name="clear_cart", description="Take everything out of the cart.", tags=("write",)),
)
MUSIC = (
    Operation(name="play_song", description="Play a song by its name."),
    Operation(name="next_song", description="Go on to the next song."),
    Operation(name="clear_queue", description="Empty the queue of songs."),
)


async def filled(embedder=None) -> ToolIndex:
    index = ToolIndex(embedder)
    await index.add(SHOP, api="shop")
    await index.add(MUSIC, api="music")
    return index


def names(found) -> list[str]:
    return [f"{one.api}.{one.operation.name}" for one in found]


async def test_a_word_of_the_name_in_any_form_finds_it() -> None:
    index = await filled()
    assert names(await index.search("clearing my carts", k=1)) == ["shop.clear_cart"]


async def test_a_step_decides_and_the_goal_still_counts() -> None:
    index = await filled()
    assert names(await index.search("a party with songs", "empty the queue", k=1)) == ["music.clear_queue"]
    found = names(await index.search("the queue", "clear it", k=6))
    assert found.index("music.clear_queue") < found.index("shop.clear_cart")


async def test_only_what_was_asked_for() -> None:
    index = await filled()
    assert {one.api for one in await index.search("clear the song cart", apis=("music",))} == {"music"}
    assert "shop.place_order" not in names(await index.search("place an order", exclude=("place_order",)))
    assert len(await index.search("song", k=2)) == 2
    assert await index.search("song", k=0) == []


async def test_the_same_name_in_two_apis_is_two_operations_with_names_that_differ() -> None:
    index = ToolIndex()
    long = "x" * MAX_NAME
    for api in ("shop", "music", "our own, very long"):
        await index.add([Operation(name="login", description="Log in."), Operation(name=long, description="Log.")], api)
    shown = [one.shown for one in await index.search("log in", k=10)]
    assert len(shown) == len(set(shown)) == 6
    assert "shop__login" in shown
    assert all(len(name) <= MAX_NAME for name in shown)
    index.remove(["login"], "shop")
    index.remove(["login"], "our own, very long")
    assert [one.shown for one in await index.search("login", k=1)] == ["login"], "alone again"


@pytest.mark.parametrize("query", ["", "   ", "?!", "\n\t", "__"])
async def test_a_query_without_words_finds_nothing(query: str) -> None:
    index = await filled()
    assert await index.search(query) == []
    assert await index.search(query, query) == []
    assert names(await index.search(query, "next song", k=1)) == ["music.next_song"]


async def test_what_is_no_tool_is_counted_and_the_rest_goes_in() -> None:
    index = ToolIndex()
    bad = [{}, {"function": 3}, {"function": {"name": 7}}, {"type": "function", "function": {"name": " "}}]
    tangled: dict = {"properties": {}}
    tangled["properties"]["self"] = tangled  # a schema that holds itself
    walk = {"function": {"name": "walk", "parameters": tangled}}
    good = [walk, {"name": "talk", "description": None}, *SHOP, SHOP[0]]
    assert await index.add([*bad, *good]) == 5
    assert index.skipped == {"no name": 3, "no function": 1, "same name twice": 1}
    assert names(await index.search("talk", k=1)) == [".talk"]


class Moody:
    """An embedder that tells texts about its subject from others, and fails when told to."""

    id = "moody"
    dimension = 2

    def __init__(self, *subject: str) -> None:
        self.subject, self.mood = subject, None

    async def embed(self, texts):
        if self.mood is not None:
            raise self.mood
        about = [any(word in text for word in self.subject) for text in texts]
        return np.array([[1.0, 0.0] if each else [0.0, 1.0] for each in about], dtype=np.float32)


@pytest.mark.parametrize("mood", [ModelUnavailable("away"), AnswerRefused("no")])
async def test_words_find_what_an_embedder_that_fails_does_not(mood: Exception) -> None:
    embedder = Moody("song")
    index = ToolIndex(embedder)
    embedder.mood = mood
    await index.add([*SHOP, *MUSIC])
    assert index.unembedded == 6
    assert names(await index.search("next song", k=1)) == [".next_song"]
    embedder.mood = None
    await index.add([])
    assert {one.operation.name for one in await index.search("melody song of none", k=3)} == {o.name for o in MUSIC}
    embedder.mood = mood
    assert names(await index.search("next song", k=1)) == [".next_song"]
    assert index.unembedded == 7


async def test_vectors_find_what_shares_no_word() -> None:
    index = await filled(Moody("cart", "basket"))
    assert {*names(await index.search("my basket", k=2))} == {"shop.place_order", "shop.clear_cart"}
