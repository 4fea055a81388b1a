"""BFCL keeps what every environment promises."""

import json

import pytest

from actors.messages import ToolCall
from actors.ports.environments import Environment, Episode, Observation
from tests.support.environment_promises import PROMISES, Case, keeps, simple

pytestmark = pytest.mark.anyio


async def watch_a_stock(episode: Episode, environment: Environment) -> Observation:
    """Task 0 of the base category is about trading."""
    return await episode.step((ToolCall("add_to_watchlist", json.dumps({"stock": "TSLA"}), "c"),), "")


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_bfcl_keeps_the_promises_of_an_environment(promise, shared, anyio_backend):
    await keeps(Case(simple(lambda: shared(anyio_backend)), "B", change=watch_a_stock), promise)
