"""Drift of the desks: tools that change while production and sandbox run, by a file that both read."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.messages import ToolCall
from actors.ports.errors import EnvironmentFailed
from adapters.environments import service_desk, travel
from adapters.environments.service_desk.agents import AGENTS, ROLES

TRAVEL, SERVICE = (travel.TravelDesk, travel.Drift), (service_desk.ServiceDesk, service_desk.Drift)


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kinds", "family", "old", "new"),
    [
        pytest.param(TRAVEL, "A", "book", "buy", id="travel"),
        pytest.param(SERVICE, "R", "create_refund", "zokari", id="service desk"),
    ],
)
async def test_a_drift_renames_the_tools_of_the_next_attempt_and_leaves_the_running_one(
    kinds: tuple[Any, Any], family: str, old: str, new: str, tmp_path: Path
) -> None:
    kind, drift = kinds
    file = tmp_path / "desk.json"
    production, sandbox = kind(file), kind(str(file))
    task = production.sample(0, "train", family)
    running = await production.reset(task)
    drift(rename={old: new}).write(file)
    for desk in (production, sandbox):
        begun = await desk.reset(task)
        assert new in names(desk.tools())
        assert (new in names(begun.tools), old in names(begun.tools)) == (True, False)
        assert desk.sample(0, "train", family) == task
        assert "tool" in json.loads((await begun.step([ToolCall(old, "{}", "c")], "")).text)["error"]
    assert old in names(running.tools)
    assert "tool" not in json.loads((await running.step([ToolCall(old, "{}", "c")], "")).text)["error"]
    file.unlink()
    assert old in names(production.tools())


@pytest.mark.parametrize(
    ("kinds", "drift", "complaint"),
    [
        (TRAVEL, {"rename": {"fly": "soar"}}, "no tool 'fly'"),
        (TRAVEL, {"precondition": {"finish": "ask"}}, "can have no precondition"),
        (TRAVEL, {"rename": {"book": "cancel"}}, "same name"),
        (SERVICE, {"rename": {"pay": "zoka"}}, "no tool 'pay'"),
        (SERVICE, {"rename": {"send_label": "check_policy"}}, "same name"),
    ],
)
def test_a_drift_that_makes_no_sense_is_refused(
    kinds: tuple[Any, Any], drift: dict[str, dict[str, str]], complaint: str, tmp_path: Path
) -> None:
    kind, made = kinds
    with pytest.raises(ValueError, match=complaint):
        made(**drift)
    file = tmp_path / "desk.json"
    file.write_text(json.dumps(drift))
    with pytest.raises(EnvironmentFailed, match=f"cannot read the desk's drift.*{complaint}"):
        kind(file).tools()


def test_no_two_agents_of_the_service_desk_have_a_tool_of_one_name() -> None:
    assert len(ROLES) == sum(len(agent.tools) for agent in AGENTS.values())
