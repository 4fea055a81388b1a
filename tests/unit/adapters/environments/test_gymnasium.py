"""The Gymnasium bridge: actions as tools, observations in words, BabyAI solved by its own bot through them."""

import string
from typing import Any

import gymnasium
import numpy as np
import pytest
from minigrid.utils.baby_ai_bot import BabyAIBot

from actors.messages import ToolCall
from actors.ports.errors import EnvironmentFailed
from adapters.environments.gymnasium import BABYAI, GymnasiumEnvironment
from adapters.environments.gymnasium_text import Codec, grid

pytestmark = pytest.mark.anyio
LAKE = "FrozenLake-v1"
ALONG = (1, 1, 2, 1, 2, 2)
"""The way over the lake."""


class Guess(gymnasium.Env[str, str]):
    """Text in, text out: guess the word."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(20, charset=string.printable)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "Guess a word.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "bug":
            raise KeyError("a bug")
        right = action == "plum"
        return ("Yes." if right else "No."), float(right), right, False, {}


@pytest.mark.parametrize("level", BABYAI)
async def test_babyais_bot_solves_its_levels_through_the_tools(level: str):
    """It plans in a twin of the task's environment."""
    environment = GymnasiumEnvironment([level])
    for seed in range(5):
        task = environment.sample(seed, "heldout", None)
        twin = gymnasium.make(task.spec["id"])
        twin.reset(seed=task.spec["seed"])
        names = {number: name for name, number in Codec(twin)._actions.items()}
        bot = BabyAIBot(twin)
        episode, turns, done = await environment.reset(task), 0, False
        while not done:
            action = int(bot.replan())
            twin.step(action)
            done = (await episode.step((ToolCall(names[action], "{}", "c"),), "")).done
            turns += 1
        assert await episode.evaluate() == 1.0
        assert turns < 64


async def test_the_tools_are_the_actions_and_the_task_is_the_mission(capfd: pytest.CaptureFixture[str]):
    environment = GymnasiumEnvironment()
    names = [tool["function"]["name"] for tool in environment.tools()]
    assert names == ["turn_left", "turn_right", "forward", "pickup", "drop", "toggle", "done"]
    task = environment.sample(1, "train", "B")
    assert task.goal == "Go to a red ball."
    assert task.spec == {"id": BABYAI[1], "seed": 2}
    episode = await environment.reset(task)
    assert episode.messages[0]["content"].startswith("Go to a red ball.\nYou see: ")
    await episode.aclose()
    for seed in range(40):
        environment.sample(seed, "train", None)
    assert capfd.readouterr().out == "", "nothing is printed between the lines of a worker"


def test_the_view_is_told_from_where_the_agent_stands():
    image = np.ones((7, 7, 3), dtype=np.uint8)
    image[:, :, 1:] = 0
    image[3, 4] = (6, 0, 0)  # a red ball, two ahead
    image[1, 6] = (4, 4, 2)  # a locked yellow door, beside
    image[3, 0] = (2, 5, 0)  # wall
    image[3, 6] = (5, 1, 0)  # where it stands: what it carries
    assert grid(image) == "You see: locked yellow door 2 left; red ball 2 ahead; wall 6 ahead. You carry: green key."


@pytest.mark.parametrize("at_once", [False, True])
async def test_actions_that_nobody_named_have_numbers_and_are_taken_in_turn_until_the_end(at_once: bool):
    environment = GymnasiumEnvironment([LAKE], options={LAKE: {"is_slippery": False}})
    assert [tool["function"]["name"] for tool in environment.tools()] == [f"action_{number}" for number in range(4)]
    episode = await environment.reset(environment.sample(0, "train", None))
    calls = [ToolCall(f"action_{action}", "{}", str(at)) for at, action in enumerate(ALONG)]
    for turn in [[*calls, ToolCall("action_0", "{}", "6")]] if at_once else [[call] for call in calls]:
        seen = await episode.step(turn, "")
    assert (seen.done, await episode.evaluate()) == (True, 1.0)
    told = [message["content"] for message in seen.messages]
    assert told[-2:] == (["15", '{"error": "over"}'] if at_once else ["15"])


@pytest.fixture
def guessing():
    gymnasium.register("Guess-v0", entry_point=Guess)
    yield GymnasiumEnvironment(["Guess-v0"])
    del gymnasium.registry["Guess-v0"]


async def test_an_environment_of_text_has_one_tool_and_what_it_raises_is_environment_failed(guessing):
    task = guessing.sample(0, "train", None)
    assert task.goal == "Reach the goal of Guess-v0."
    episode = await guessing.reset(task)
    for text, answer in (('"pear"', "No."), ("3", '{"error": "bad arguments"}'), ('"plum"', "Yes.")):
        assert (await episode.step([ToolCall("act", f'{{"text": {text}}}', "a")], "")).text == answer
    assert await episode.evaluate() == 1.0
    other = await guessing.reset(task)
    with pytest.raises(EnvironmentFailed, match="Guess-v0: KeyError"):
        await other.step([ToolCall("act", '{"text": "bug"}', "a")], "")
    with pytest.raises(EnvironmentFailed, match="Nowhere-v7"):
        GymnasiumEnvironment(["Nowhere-v7"]).tools()


def test_action_spaces_that_are_no_tools_are_refused():
    with pytest.raises(ValueError, match="Box"):
        Codec(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="1 names"):
        Codec(gymnasium.make(LAKE), ("only",))
