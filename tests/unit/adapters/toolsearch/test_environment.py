"""`SearchingEnvironment`: a part of the tools, more on request, and the environment's own verdicts."""

import json
from typing import Any

import pytest

from actors.messages import Task, ToolCall
from actors.ports.environments import Observation, Profile
from actors.ports.errors import EnvironmentFailed
from adapters.toolsearch import ToolIndex
from adapters.toolsearch.environment import SEARCH_TOOL, SearchingEnvironment, tool_name

pytestmark = pytest.mark.anyio


def function(name: str, description: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {}}}


class Office:
    """An environment of one attempt, which says how many calls it was asked for and remembers which."""

    name = "office"

    def __init__(self, *more: dict[str, Any]) -> None:
        self.messages = [{"role": "user", "content": "print the letter"}]
        self.tools = [*TOOLS, *more]
        self.asked: list[list[str]] = []
        self.closed = 0
        self.always: tuple[str, ...] = ()

    def profile(self) -> Profile:
        return Profile(name=self.name, description="", always=self.always)

    async def reset(self, task: Task) -> "Office":
        return self

    async def step(self, calls, text) -> Observation:
        self.asked.append([call.name for call in calls])
        return Observation(f"did {len(calls)}", any(call.name == "leave" for call in calls))

    async def evaluate(self) -> float:
        return 0.25

    async def aclose(self) -> None:
        self.closed += 1


TOOLS = [
    function("print_letter", "Print a letter."),
    function("water_plants", "Water the plants."),
    function("order_lunch", "Order lunch for everybody."),
    function("hire", "Hire somebody."),
    function("leave", "Go home."),
]
TASK = Task(id="t", goal="print the letter", environment="office")


async def begun(*always: str, office: Office | None = None) -> tuple[Office, Any]:
    office = office or Office()
    office.always = always
    return office, await SearchingEnvironment(office, ToolIndex, 1).reset(TASK)


def shown(episode) -> list[str]:
    return [tool_name(tool) for tool in episode.tools]


def call(name: str, key: str = "c1", /, **arguments: Any) -> ToolCall:
    return ToolCall(name, json.dumps(arguments), key)


async def test_an_episode_begins_with_the_tools_of_its_goal_those_always_shown_and_the_search() -> None:
    _, episode = await begun("leave", "no such tool")
    assert shown(episode) == ["print_letter", "leave", SEARCH_TOOL]


async def test_a_search_brings_more_from_the_next_turn_on() -> None:
    office, episode = await begun()
    seen = await episode.step([call(SEARCH_TOOL, query="thirsty plants")], "")
    assert json.loads(seen.text)["found"] == [{"name": "water_plants", "description": "Water the plants."}]
    assert seen.messages == ({"role": "tool", "content": seen.text, "tool_call_id": "c1"},)
    assert not seen.done
    assert shown(episode) == ["print_letter", "water_plants", SEARCH_TOOL]
    assert office.asked == [], "the environment hears nothing of a search"
    await episode.step([call("water_plants")], "")
    assert office.asked == [["water_plants"]]


@pytest.mark.parametrize("name", ["water_plants", "never_heard_of"])
async def test_a_tool_that_is_not_shown_is_a_mistake_that_names_the_search(name: str) -> None:
    office, episode = await begun()
    seen = await episode.step([call(name)], "")
    assert SEARCH_TOOL in json.loads(seen.text)["error"]
    assert name in seen.text
    assert (seen.done, office.asked) == (False, [])


@pytest.mark.parametrize("arguments", ["", "[]", "{", '{"query": 7}', '{"query": "  "}', "[" * 5000])
async def test_a_search_for_nothing_is_answered_with_how_to_ask(arguments: str) -> None:
    _, episode = await begun()
    seen = await episode.step([ToolCall(SEARCH_TOOL, arguments, "c")], "")
    assert "query" in json.loads(seen.text)["error"]


async def test_each_of_several_calls_is_answered_by_whom_it_is_for() -> None:
    office, episode = await begun()
    calls = [call("print_letter", "a"), call(SEARCH_TOOL, "b", query="lunch"), call("hire", "c")]
    seen = await episode.step(calls, "")
    assert office.asked == [["print_letter"]]
    assert sorted(message["tool_call_id"] for message in seen.messages) == ["a", "b", "c"]
    (done,) = [message["content"] for message in seen.messages if message["tool_call_id"] == "a"]
    assert done == "did 1"


async def test_the_verdict_and_the_end_are_the_environments() -> None:
    office, episode = await begun("leave")
    assert (await episode.step([call("leave")], "")).done
    assert (await episode.step([call("hire")], "")).done, "over is over"
    assert await episode.evaluate() == 0.25
    await episode.aclose()
    assert office.closed == 1


async def test_a_tool_of_the_searchs_name_is_refused_and_the_episode_closed() -> None:
    office = Office(function(SEARCH_TOOL))
    with pytest.raises(EnvironmentFailed, match=r"sandbox\.tools_shown = 0"):
        await begun(office=office)
    assert office.closed == 1
