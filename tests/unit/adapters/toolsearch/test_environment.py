"""`SearchingEnvironment`: a part of the tools, more on request, and the environment's own verdicts."""

import json
from typing import Any

import pytest

from actors.messages import Task, ToolCall
from actors.ports.environments import Observation, Profile
from actors.ports.errors import EnvironmentFailed
from adapters.environments.travel import TravelDesk
from adapters.toolsearch import ToolIndex
from adapters.toolsearch.environment import SEARCH_TOOL, SearchingEnvironment, tool_name
from tests.warmstart.travel_oracle import good_actions

pytestmark = pytest.mark.anyio


def function(name: str, description: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {}}}


class Office:
    """Says what it was asked."""

    name = "office"

    def __init__(self, tools: list[dict[str, Any]], *always: str) -> None:
        self.own, self._always = tools, always
        self.opened: list[OfficeEpisode] = []

    def profile(self) -> Profile:
        return Profile(name=self.name, description="", always=self._always)

    async def reset(self, task: Task) -> "OfficeEpisode":
        self.opened.append(OfficeEpisode(self.own))
        return self.opened[-1]


class OfficeEpisode:
    def __init__(self, tools: list[dict[str, Any]]) -> None:
        self.messages = [{"role": "user", "content": "print the letter"}]
        self.tools = tools
        self.asked: list[list[str]] = []
        self.closed = 0

    async def step(self, calls, text) -> Observation:
        self.asked.append([call.name for call in calls])
        return Observation(f"did {len(calls)}", any(call.name == "leave" for call in calls))

    async def evaluate(self) -> float:
        return 0.25

    async def aclose(self) -> None:
        self.closed += 1


TOOLS = [
    function("print_letter", "Print a letter."),
    function("water_plants", "Water the plants of the office."),
    function("order_lunch", "Order lunch for everybody."),
    function("hire", "Hire somebody."),
    function("leave", "Go home."),
]
TASK = Task(id="t", goal="print the letter", environment="office")


def searching(environment) -> SearchingEnvironment:
    return SearchingEnvironment(environment, ToolIndex, 1)


def shown(episode) -> list[str]:
    return [tool_name(tool) for tool in episode.tools]


def call(name: str, key: str = "c1", /, **arguments: Any) -> ToolCall:
    return ToolCall(name, json.dumps(arguments), key)


async def test_an_episode_begins_with_the_tools_of_its_goal_those_always_shown_and_the_search() -> None:
    episode = await searching(Office(TOOLS, "leave", "no such tool")).reset(TASK)
    assert shown(episode) == ["print_letter", "leave", SEARCH_TOOL]


async def test_a_search_brings_more_from_the_next_turn_on() -> None:
    office = Office(TOOLS)
    episode = await searching(office).reset(TASK)
    seen = await episode.step([call(SEARCH_TOOL, query="thirsty plants")], "")
    assert json.loads(seen.text)["found"] == [
        {"name": "water_plants", "description": TOOLS[1]["function"]["description"]}
    ]
    assert seen.messages == ({"role": "tool", "content": seen.text, "tool_call_id": "c1"},)
    assert not seen.done
    assert shown(episode) == ["print_letter", "water_plants", SEARCH_TOOL]
    assert office.opened[0].asked == [], "the environment hears nothing of a search"
    await episode.step([call("water_plants")], "")
    assert office.opened[0].asked == [["water_plants"]]


@pytest.mark.parametrize("name", ["water_plants", "never_heard_of"])
async def test_a_tool_that_is_not_shown_is_a_mistake_that_names_the_search(name: str) -> None:
    office = Office(TOOLS)
    episode = await searching(office).reset(TASK)
    seen = await episode.step([call(name)], "")
    assert SEARCH_TOOL in json.loads(seen.text)["error"]
    assert name in seen.text
    assert (seen.done, office.opened[0].asked) == (False, [])


@pytest.mark.parametrize("arguments", ["", "[]", "{", '{"query": 7}', '{"query": "  "}', "[" * 5000])
async def test_a_search_for_nothing_is_answered_with_how_to_ask(arguments: str) -> None:
    episode = await searching(Office(TOOLS)).reset(TASK)
    seen = await episode.step([ToolCall(SEARCH_TOOL, arguments, "c")], "")
    assert "query" in json.loads(seen.text)["error"]


async def test_each_of_several_calls_is_answered_by_whom_it_is_for() -> None:
    office = Office(TOOLS)
    episode = await searching(office).reset(TASK)
    calls = [call("print_letter", "a"), call(SEARCH_TOOL, "b", query="lunch"), call("hire", "c")]
    seen = await episode.step(calls, "")
    assert office.opened[0].asked == [["print_letter"]]
    assert sorted(message["tool_call_id"] for message in seen.messages) == ["a", "b", "c"]
    (done,) = [message["content"] for message in seen.messages if message["tool_call_id"] == "a"]
    assert done == "did 1"


async def test_the_verdict_and_the_end_are_the_environments() -> None:
    office = Office(TOOLS, "leave")
    episode = await searching(office).reset(TASK)
    assert (await episode.step([call("leave")], "")).done
    assert (await episode.step([call("hire")], "")).done, "over is over"
    assert await episode.evaluate() == 0.25
    await episode.aclose()
    assert office.opened[0].closed == 1


async def test_a_tool_of_the_searchs_name_is_refused_and_the_episode_closed() -> None:
    office = Office([*TOOLS, function(SEARCH_TOOL)])
    with pytest.raises(EnvironmentFailed, match=r"sandbox\.tools_shown = 0"):
        await searching(office).reset(TASK)
    assert office.opened[0].closed == 1


async def test_the_desk_is_solved_by_who_searches_for_what_is_not_shown() -> None:
    desk = searching(TravelDesk())
    for seed in range(5):
        task = desk.sample(seed, "train", None)
        episode = await desk.reset(task)
        inner = episode._inner._desk
        while not inner.done:
            name, arguments = good_actions(inner)[0]
            if name not in shown(episode):
                await episode.step([call(SEARCH_TOOL, query=name.replace("_", " "))], "")
            await episode.step([call(name, **arguments)], "")
        assert await episode.evaluate() == 1.0
