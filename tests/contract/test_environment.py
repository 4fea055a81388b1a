"""What every environment promises; a new one joins by a line in `ENVIRONMENTS`. On trio and on asyncio.

The checks are in `tests/support/environment_promises.py`, so that suites with an interpreter of their own (tests/bfcl)
run the same.
"""

import json

import pytest

from actors.messages import ToolCall
from adapters.environments import Environment, Episode, Observation
from adapters.environments.selfmade import SelfMade
from adapters.environments.travel import TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE
from tests.support.environment_promises import PROMISES, Case, keeps, simple

pytestmark = pytest.mark.anyio


async def book_a_flight(episode: Episode, environment: Environment) -> Observation:
    """A booking, whoever for: three calls of task 0's own words."""
    ticket = Desk("train-0", environment.sample(0, "train", "A").spec["family"], BASE).ticket
    assert ticket is not None
    for name, arguments in (
        ("find_person", {"name": ticket.name}),
        ("search_flight", {"to": ticket.city}),
        ("book", {"fid": ticket.flight, "pid": ticket.person}),
    ):
        seen = await episode.step((ToolCall(name, json.dumps(arguments), "c"),), "")
    return seen


ENVIRONMENTS: dict[str, Case] = {
    "travel": Case(simple(TravelDesk), "A", change=book_a_flight),
    "selfmade": Case(simple(lambda: SelfMade(TravelDesk())), "A", change=book_a_flight),
}


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", ENVIRONMENTS)
async def test_an_environment_keeps_its_promises(name: str, promise):
    await keeps(ENVIRONMENTS[name], promise)
