"""The demo's worlds and accounts: settings load, drifts are measured, agents can work, and every call is counted."""

import io
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest

from actors.messages import Exchange, Step, ToolCall
from actors.store import Store
from adapters.environments.service_desk import ServiceDesk
from adapters.environments.service_desk.desk import Desk
from adapters.environments.service_desk.environment import step
from adapters.environments.service_desk.follow_ups import PHRASES
from adapters.redaction import Redactor
from daemon.composition import values
from daemon.demo.accounts import settle
from daemon.demo.agents import Agent, AgentJournal, AgentSettings
from daemon.demo.world import World
from daemon.demo.worlds import WORLDS
from daemon.processes.tap_settings import redaction
from tests.support.chat_endpoint import says
from tests.support.credited import attributed
from tests.warmstart.service_oracle import Turn, good_turns

pytestmark = pytest.mark.anyio
PROJECT = Path(__file__).parents[4] / "pyproject.toml"


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_played_by_agents_sandbox_and_gate_alike(name: str, tmp_path: Path) -> None:
    config, chosen = World(tmp_path / "run", seed=0, overrides={}, agents={}, world=name).config, WORLDS[name]
    for part in (values.rollout(config), values.sandbox_trial(config)):
        limits = (chosen.families, chosen.max_steps, chosen.max_tokens)
        assert (part.families, part.max_steps, part.max_tokens) == limits
    assert config.model.path == str(chosen.warm_start)
    registered = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]["evolved.adapters"]
    made = chosen.environment(None)
    assert registered[f"environment.{config.sandbox.environment}"].endswith(f":{type(made).__name__}")
    assert made.name == config.sandbox.environment


@pytest.mark.parametrize("name", WORLDS)
def test_a_drift_renames_tools_that_the_world_has_to_names_of_its_seed(name: str, tmp_path: Path) -> None:
    file, world = tmp_path / "desk.json", WORLDS[name]
    environment = world.environment(file)
    before = {tool["function"]["name"] for tool in environment.tools()}
    said = world.drift(file, 3)
    after = {tool["function"]["name"] for tool in environment.tools()}
    assert before - after
    assert all(f"{old} to " in said for old in before - after)
    assert all(f" to {new}" in said for new in after - before)
    assert len({world.drift(file, seed) for seed in (0, 1, 1, 2)}) == 3


def test_what_customers_of_the_service_desk_write_is_trained_on(tmp_path: Path) -> None:
    """A run with a redacted address is held back from training, and every account has one."""
    config = World(tmp_path / "run", seed=0, overrides={}, agents={}, world="service").config
    redactor, environment = Redactor(redaction(config)), ServiceDesk()
    for seed in range(300):
        goal = environment.sample(seed, "train", "A").goal
        assert redactor.text(goal) == (goal, {})
    assert "mia@example.com" not in redactor.text("my email is mia@example.com")[0]


class Knowing:
    """An engine that knows the right turns, for one task; keeps the requests that it got."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.requests: list[list[dict[str, Any]]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(json.loads(request.content)["messages"])
        turn = Turn((), "You are welcome.") if self._desk.done else good_turns(self._desk)[-1]
        calls = [
            ToolCall(name, json.dumps(arguments), f"call-{len(self.requests)}-{at}")
            for at, (name, arguments) in enumerate(turn.calls)
        ]
        if not self._desk.done:
            step(self._desk, calls, turn.text)
        made = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        status, body = says(turn.text or None, tool_calls=made or None)({})
        return httpx.Response(status, content=body, headers={"content-type": "application/json"})


class Plain(random.Random):
    """Never streams, always reports, thinks for no time."""

    def random(self) -> float:
        return 0.5


async def worked(engine: Knowing, seed: int, **settings: Any) -> list[dict[str, Any]]:
    """What an agent writes down of one task."""
    chosen = AgentSettings(tap="http://tap", journal="", world="service", think=0.0, feedback_delay=0.0, **settings)
    answering = httpx.AsyncClient(transport=httpx.MockTransport(engine.answer))
    feedback = httpx.MockTransport(lambda _: httpx.Response(202))
    journal = io.StringIO()
    async with (
        openai.AsyncOpenAI(base_url="http://tap/v1", api_key="unused", http_client=answering) as client,
        httpx.AsyncClient(base_url="http://tap", transport=feedback) as http,
        anyio.create_task_group() as reports,
    ):
        await Agent(client, http, ServiceDesk(), chosen, AgentJournal(journal), Plain(0)).work(seed, reports)
    return [json.loads(line) for line in journal.getvalue().splitlines()]


@pytest.mark.parametrize("follow_ups", [False, True])
async def test_an_agent_answers_every_call_and_lets_customers_come_back(follow_ups: bool) -> None:
    """Whatever the customer wants: two things at once, something left out, another wish afterwards."""
    seen_roles, several = set[str](), 0
    for seed in range(40):
        task = ServiceDesk().sample(seed, "train", "ROA")
        engine = Knowing(Desk(task.spec["seed"], task.spec["family"], "train"))
        events = await worked(engine, seed, follow_ups=follow_ups)
        assert [event["outcome"] for event in events if event["event"] == "episode"] == [1.0], task.goal
        assert [event["status"] for event in events if event["event"] == "feedback"] == [202]
        last = engine.requests[-1]
        asked = [call["id"] for message in last for call in message.get("tool_calls") or ()]
        assert [message["tool_call_id"] for message in last if message["role"] == "tool"] == asked
        assert last[0]["role"] == "system"
        assert (last[-1]["content"] in PHRASES["thanks"]["train"]) == follow_ups
        seen_roles |= {message["role"] for message in last[3:]}
        several += any(len(message.get("tool_calls") or ()) > 1 for message in last)
    assert seen_roles == {"assistant", "tool", "user"}
    assert several


EPISODES = [{"event": "episode", "response_id": one} for one in ("r1", "r2")]


@pytest.mark.parametrize(
    ("kept", "runs", "events", "expected"),
    [
        pytest.param(
            "r1 r2", [("t", 1.0, "r1", "r2")], EPISODES[1:],
            {"requests": 2, "lost": 0, "doubled": 0, "episodes": 1, "outcomes": 1}, id="all is well",
        ),
        pytest.param(
            "r1", [("t", 1.0, "r1"), ("u", None, "r1")],
            [{"event": "failed", "error": "502"}, {"event": "feedback_failed"}],
            {"lost": 1, "doubled": 1, "outcomes": 1, "failed": 1, "feedback_failed": 1}, id="nothing is well",
        ),
        pytest.param(
            "r1 r2", [("t", 1.0, "r1"), ("u", None, "r2")], [*EPISODES, {"event": "feedback", "status": 202}],
            {"episodes": 2, "reported": 1, "outcomes": 1}, id="what agents kept to themselves is not missing",
        ),
    ],
)  # fmt: skip
async def test_agents_that_saw_two_responses_settle_with_the_store(
    tmp_path: Path, kept: str, runs: list[Any], events: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    url = f"sqlite:///{tmp_path}/evolved.db"
    store = Store(url, clock=lambda: 1.0)
    await store.open()
    await store.save([
        *(Exchange(id=f"e{one}", endpoint="/v1/chat/completions", started=1.0, duration=0.1, status=200, request=b"{}",
                   response=b"{}", response_id=one) for one in kept.split()),
        *(attributed(key, outcome=outcome, steps=tuple(Step(exchange_id=f"x{one}", response_id=one) for one in said))
          for key, outcome, *said in runs),
    ])  # fmt: skip
    await store.aclose()
    lines = [{"event": "response", "id": one} for one in ("r1", "r2")] + events
    (tmp_path / "agents.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"event": "resp')
    got = settle(tmp_path / "agents.jsonl", url)
    assert {name: getattr(got, name) for name in expected} == expected
    assert len(got.missing) == got.lost
