"""The demo's worlds: their settings load, their drift changes what is measured, and their agents can work in them."""

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest

from actors.messages import ToolCall
from adapters.environments.service_desk import ServiceDesk
from adapters.environments.service_desk.desk import Desk
from adapters.environments.service_desk.environment import step
from adapters.environments.service_desk.follow_ups import PHRASES
from adapters.redaction import Redactor
from daemon.cli.main import parser
from daemon.demo.agents import Agent, AgentJournal, AgentSettings
from daemon.demo.world import World
from daemon.demo.worlds import WORLDS
from daemon.errors import ConfigError
from tests.warmstart.service_oracle import Turn, good_turns

pytestmark = pytest.mark.anyio
PROJECT = Path(__file__).parents[4] / "pyproject.toml"


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_played_by_agents_sandbox_and_gate_alike(name: str, tmp_path: Path) -> None:
    world = World(tmp_path / "run", seed=0, overrides={}, agents={}, world=name)
    config, chosen = world.config, WORLDS[name]
    played = (config.rollout, config.gate.sandbox, config.probe)
    assert {part.families for part in played} == {chosen.families}
    assert {part.max_steps for part in played} == {chosen.max_steps}
    assert {part.max_tokens for part in played} == {chosen.max_tokens}
    assert config.learner.warm_start == str(chosen.warm_start)
    registered = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]["evolved.adapters"]
    made = chosen.environment(None)
    assert registered[f"environment.{config.sandbox.environment}"].endswith(f":{type(made).__name__}")
    assert made.name == config.sandbox.environment


@pytest.mark.parametrize("name", WORLDS)
def test_a_drift_renames_tools_that_the_world_has(name: str, tmp_path: Path) -> None:
    environment = WORLDS[name].environment(tmp_path / "desk.json")
    before = {tool["function"]["name"] for tool in environment.tools()}
    said = WORLDS[name].drift(tmp_path / "desk.json", 3)
    after = {tool["function"]["name"] for tool in environment.tools()}
    assert before - after
    assert all(f"{old} to " in said for old in before - after)
    assert all(f" to {new}" in said for new in after - before)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_drifts_to_names_of_its_seed(name: str, tmp_path: Path) -> None:
    said = {WORLDS[name].drift(tmp_path / "desk.json", seed) for seed in (0, 1, 1, 2)}
    assert len(said) == 3


def test_what_customers_of_the_service_desk_write_is_trained_on(tmp_path: Path) -> None:
    """A run with a redacted address is held back from training, and every account has one."""
    config = World(tmp_path / "run", seed=0, overrides={}, agents={}, world="service").config
    redactor, environment = Redactor(config.redaction), ServiceDesk()
    for seed in range(300):
        goal = environment.sample(seed, "train", "A").goal
        assert redactor.text(goal) == (goal, {})
    assert "mia@example.com" not in redactor.text("my email is mia@example.com")[0]


@pytest.mark.parametrize("wrong", ["1.5", "-0.1", "nan", "some"])
def test_a_share_of_feedback_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["demo", "--feedback", wrong])
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["-1", "inf", "nan"])
def test_a_delay_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["demo", "--delay", wrong])
    assert "seconds" in capsys.readouterr().err


class Knowing:
    """An engine that knows the right turns, for one task; keeps the requests that it got."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.requests: list[list[dict[str, Any]]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        messages = json.loads(request.content)["messages"]
        self.requests.append(messages)
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
        message = {"role": "assistant", "content": turn.text or None, "tool_calls": made or None}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": f"r{len(self.requests)}", "object": "chat.completion", "created": 0, "model": "desk"}
        return httpx.Response(200, json={**body, "choices": [choice]})


class Plain(random.Random):
    """Never streams, always reports, thinks for no time."""

    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize("follow_ups", [False, True])
async def test_an_agent_answers_every_call_and_lets_customers_come_back(tmp_path: Path, follow_ups: bool) -> None:
    """Whatever the customer wants: two things at once, something left out, another wish afterwards."""
    environment = ServiceDesk()
    seen_roles: set[str] = set()
    several = 0
    for seed in range(40):
        task = environment.sample(seed, "train", "ROA")
        engine = Knowing(Desk(task.spec["seed"], task.spec["family"], "train"))
        with (tmp_path / f"{seed}.jsonl").open("w+", encoding="utf-8") as out:
            settings = AgentSettings(
                tap="http://tap", journal="", world="service", think=0.0, feedback_delay=0.0, follow_ups=follow_ups
            )
            async with (
                openai.AsyncOpenAI(
                    base_url="http://tap/v1", api_key="unused",
                    http_client=httpx.AsyncClient(transport=httpx.MockTransport(engine.answer)),
                ) as client,
                httpx.AsyncClient(
                    base_url="http://tap", transport=httpx.MockTransport(lambda _: httpx.Response(202))
                ) as http,
                anyio.create_task_group() as reports,
            ):  # fmt: skip
                agent = Agent(client, http, environment, settings, AgentJournal(out), Plain(0))
                await agent.work(seed, reports)
            out.seek(0)
            events = [json.loads(line) for line in out]
        assert [event["outcome"] for event in events if event["event"] == "episode"] == [1.0], task.goal
        assert [event["status"] for event in events if event["event"] == "feedback"] == [202]
        last = engine.requests[-1]
        asked = [call["id"] for message in last for call in message.get("tool_calls") or ()]
        told = [message["tool_call_id"] for message in last if message["role"] == "tool"]
        assert told == asked
        assert last[0]["role"] == "system"
        assert (last[-1]["content"] in PHRASES["thanks"]["train"]) == follow_ups
        seen_roles |= {message["role"] for message in last[3:]}
        several += any(len(message.get("tool_calls") or ()) > 1 for message in last)
    assert seen_roles == {"assistant", "tool", "user"}
    assert several


def test_customers_of_the_travel_desk_never_come_back() -> None:
    arguments = parser().parse_args(["demo", "--follow-ups"])
    with pytest.raises(ConfigError, match="--world service"):
        arguments.run(arguments)
