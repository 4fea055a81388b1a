"""What every environment promises; a new one joins by a line in `ENVIRONMENTS`. On trio and on asyncio.

The checks are in `tests/support/environment_promises.py`, so that suites with an interpreter of their own (tests/bfcl)
run the same.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from actors.messages import ToolCall
from actors.ports.environments import Environment, Episode, Observation
from adapters.environments.gymnasium import GymnasiumEnvironment
from adapters.environments.http.client import HttpEnvironment
from adapters.environments.http.service import EnvironmentService
from adapters.environments.live import LiveEnvironment
from adapters.environments.service_desk import ServiceDesk
from adapters.environments.service_desk.desk import Desk as Service
from adapters.environments.service_desk.environment import step as served_by_key
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.environments.travel import TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE
from adapters.environments.workers import WorkerEnvironment
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.policy import PolicySettings
from adapters.live.recording import Recordings
from adapters.live.toolset import LiveTools
from tests.support.environment_promises import PROMISES, Case, attempts_are_independent, keeps, simple
from tests.support.scripted_live_api import CallsLiked, ScriptedLiveApi, operation
from tests.support.served import served
from tests.warmstart.service_oracle import good_turns

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


async def serve_a_customer(episode: Episode, environment: Environment) -> Observation:
    """The customer of task 0, by the answer key on a desk of its own, up to the first thing that cannot be undone."""
    task = environment.sample(0, "train", "R")
    desk = Service(task.spec["seed"], task.spec["family"], "train")
    seen = Observation("", False)
    while not desk.effects:
        turn = good_turns(desk)[0]
        calls = tuple(ToolCall(name, json.dumps(arguments), "c") for name, arguments in turn.calls)
        served_by_key(desk, calls, turn.text)
        seen = await episode.step(calls, turn.text)
    return seen


_TRAVEL = "adapters.environments.travel:TravelDesk"
_SHARED: dict[str, WorkerEnvironment] = {}
_URLS: list[str] = []


@asynccontextmanager
async def over_live_apis() -> AsyncIterator[Environment]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        goals = place / "goals.jsonl"
        goals.write_text("".join(f'{{"goal": "order {number}"}}\n' for number in range(400)))
        guarded = Guarded(
            ScriptedLiveApi(operation("get_order", id={"type": "string"})), PolicySettings(read_only=("get_*",)),
            recordings=Recordings(place / "records"), audit=AuditLog(place / "audit.jsonl"),
        )  # fmt: skip
        yield LiveEnvironment(LiveTools(lambda: {"crm": guarded}), CallsLiked("crm__get_order"), goals=str(goals))


@asynccontextmanager
async def over_http() -> AsyncIterator[Environment]:
    environment = HttpEnvironment(_URLS[0], "travel")
    yield environment
    await environment.aclose()


ENVIRONMENTS: dict[str, Case] = {
    "travel": Case(simple(TravelDesk), "A", change=book_a_flight),
    "travel in workers": Case(simple(lambda: _SHARED["travel"]), "A", change=book_a_flight),
    "travel over HTTP": Case(over_http, "A", change=book_a_flight),
    "gymnasium": Case(simple(lambda: GymnasiumEnvironment(limit=20)), "AB"),
    "gymnasium in workers": Case(simple(lambda: _SHARED["gymnasium"]), "AB"),
    "selfmade": Case(simple(lambda: SyntheticTasks(TravelDesk())), "A", change=book_a_flight),
    "service desk": Case(simple(ServiceDesk), "R", change=serve_a_customer),
    "service desk, self-made": Case(simple(lambda: SyntheticTasks(ServiceDesk())), "R", change=serve_a_customer),
    "live": Case(over_live_apis),
}


@pytest.fixture(scope="module", autouse=True)
def elsewhere() -> Iterator[None]:
    """What takes long to start is started once."""
    _SHARED["travel"] = WorkerEnvironment(_TRAVEL, workers=1)
    options = {"limit": 20}
    _SHARED["gymnasium"] = WorkerEnvironment(f"{GymnasiumEnvironment.__module__}:GymnasiumEnvironment", options)
    with served(EnvironmentService({"travel": TravelDesk()}).app()) as url:
        _URLS[:] = [url]
        yield
    for environment in _SHARED.values():
        assert environment.instances == 0, "a promise was checked and an episode left open"
        anyio.run(environment.aclose)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", ENVIRONMENTS)
async def test_an_environment_keeps_its_promises(name: str, promise):
    await keeps(ENVIRONMENTS[name], promise)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
async def test_an_environment_keeps_a_promise_on_the_other_loop(name: str):
    await keeps(ENVIRONMENTS[name], attempts_are_independent)
