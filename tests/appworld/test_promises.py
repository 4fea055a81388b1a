"""AppWorld keeps what every environment promises."""

import json

import pytest

from actors.messages import ToolCall
from actors.ports.environments import Environment, Episode, Observation
from tests.support.environment_promises import PROMISES, Case, keeps, simple
from tests.support.patience import within

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(within(300))]


async def sign_up(episode: Episode, environment: Environment) -> Observation:
    """Task 0 is about a mail account."""
    given = {"first_name": "Ada", "last_name": "Lane", "email": "ada@example.com", "password": "Wr0ng-horse"}
    return await episode.step((ToolCall("gmail__signup", json.dumps(given), "c"),), "")


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_appworld_keeps_the_promises_of_an_environment(promise, shared, anyio_backend):
    await keeps(Case(simple(lambda: shared(anyio_backend)), change=sign_up, in_time=250.0), promise)
