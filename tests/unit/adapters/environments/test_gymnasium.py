"""The Gymnasium bridge: actions as tools, observations in words, BabyAI solved by its own bot through them."""

import json
import string
from random import Random
from typing import Any

import gymnasium
import numpy as np
import pytest

from actors.messages import ToolCall
from actors.ports.environments import Environment
from actors.ports.errors import EnvironmentFailed
from adapters.environments.gymnasium import BABYAI, GymnasiumEnvironment
from adapters.environments.gymnasium_text import Codec, grid
from tests.support.babyai import at_random, oracle

pytestmark = pytest.mark.anyio
LAKE = "FrozenLake-v1"


class Guess(gymnasium.Env[str, str]):
    """Text in, text out: guess the word."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(20, charset=string.printable)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "Guess a word.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action == "plum"
        return ("Yes." if right else "No."), float(right), right, False, {}


class Broken(Guess):
    def step(self, action: str) -> Any:
        raise KeyError("a bug")


def as_protocol(environment: GymnasiumEnvironment) -> Environment:
    return environment


@pytest.mark.parametrize("level", BABYAI)
async def test_babyais_bot_solves_its_levels_through_the_tools(level: str):
    environment = GymnasiumEnvironment([level])
    for seed in range(5):
        outcome, turns = await oracle(environment, environment.sample(seed, "heldout", None))
        assert outcome == 1.0
        assert turns < 64


async def test_random_actions_do_not_unlock_a_door():
    environment = GymnasiumEnvironment([BABYAI[3]], limit=20)
    for seed in range(5):
        outcome, _ = await at_random(environment, environment.sample(seed, "train", None), Random(seed))
        assert outcome == 0.0


async def test_the_tools_are_the_actions_and_the_task_is_the_mission():
    environment = GymnasiumEnvironment()
    names = [tool["function"]["name"] for tool in as_protocol(environment).tools()]
    assert names == ["turn_left", "turn_right", "forward", "pickup", "drop", "toggle", "done"]
    task = environment.sample(1, "train", "B")
    assert task.goal == "Go to a red ball."
    assert task.spec == {"id": BABYAI[1], "seed": 2}
    episode = await environment.reset(task)
    assert episode.messages[0]["content"].startswith("Go to a red ball.\nYou see: ")
    await episode.aclose()


def test_the_view_is_told_from_where_the_agent_stands():
    image = np.ones((7, 7, 3), dtype=np.uint8)
    image[:, :, 1:] = 0
    image[3, 4] = (6, 0, 0)  # a red ball, two ahead
    image[1, 6] = (4, 4, 2)  # a locked yellow door, beside
    image[3, 0] = (2, 5, 0)  # wall
    image[3, 6] = (5, 1, 0)  # where it stands: what it carries
    assert grid(image) == "You see: locked yellow door 2 left; red ball 2 ahead; wall 6 ahead. You carry: green key."


async def test_mistakes_are_answered_and_an_episode_of_mistakes_ends():
    environment = GymnasiumEnvironment([LAKE], actions={LAKE: ["left", "down", "right", "up"]}, limit=4)
    episode = await environment.reset(environment.sample(0, "train", None))
    for calls, answer in (
        ([ToolCall("fly", "{}", "a")], "no tool"),
        ([ToolCall("left", '{"far": true}', "a")], "bad arguments"),
        ([], "bad call"),
    ):
        seen = await episode.step(calls, "")
        assert json.loads(seen.text) == {"error": answer}
    assert (await episode.step([], "")).done
    assert await episode.evaluate() == 0.0


async def test_discrete_actions_that_nobody_named_have_numbers_and_observations_are_json():
    environment = GymnasiumEnvironment([LAKE], options={LAKE: {"is_slippery": False}})
    names = [tool["function"]["name"] for tool in environment.tools()]
    assert names == ["action_0", "action_1", "action_2", "action_3"]
    episode = await environment.reset(environment.sample(0, "train", None))
    for action in (1, 1, 2, 1, 2, 2):
        seen = await episode.step([ToolCall(f"action_{action}", "{}", "a")], "")
    assert (seen.text, seen.done, await episode.evaluate()) == ("15", True, 1.0)
    assert seen.messages == ({"role": "tool", "content": "15", "tool_call_id": "a"},)


async def test_several_calls_in_a_turn_are_taken_in_turn_until_the_end():
    environment = GymnasiumEnvironment([LAKE], options={LAKE: {"is_slippery": False}})
    episode = await environment.reset(environment.sample(0, "train", None))
    calls = [ToolCall(f"action_{action}", "{}", str(at)) for at, action in enumerate((1, 1, 2, 1, 2, 2, 0))]
    seen = await episode.step(calls, "")
    assert seen.done
    assert [message["content"] for message in seen.messages][-2:] == ["15", '{"error": "over"}']
    assert await episode.evaluate() == 1.0


@pytest.fixture
def registered():
    gymnasium.register("Guess-v0", entry_point=Guess)
    gymnasium.register("Broken-v0", entry_point=Broken)
    yield
    for key in ("Guess-v0", "Broken-v0"):
        del gymnasium.registry[key]


async def test_an_environment_of_text_has_one_tool_that_takes_text(registered: None):
    environment = GymnasiumEnvironment(["Guess-v0"])
    task = environment.sample(0, "train", None)
    assert task.goal == "Reach the goal of Guess-v0."
    episode = await environment.reset(task)
    assert (await episode.step([ToolCall("act", '{"text": "pear"}', "a")], "")).text == "No."
    assert (await episode.step([ToolCall("act", '{"text": 3}', "a")], "")).text == '{"error": "bad arguments"}'
    assert (await episode.step([ToolCall("act", '{"text": "plum"}', "a")], "")).done
    assert await episode.evaluate() == 1.0


async def test_what_an_environment_raises_is_environment_failed(registered: None):
    environment = GymnasiumEnvironment(["Broken-v0"])
    episode = await environment.reset(environment.sample(0, "train", None))
    with pytest.raises(EnvironmentFailed, match="Broken-v0: KeyError"):
        await episode.step([ToolCall("act", '{"text": "x"}', "a")], "")
    with pytest.raises(EnvironmentFailed, match="Nowhere-v7"):
        GymnasiumEnvironment(["Nowhere-v7"]).tools()


def test_action_spaces_that_are_no_tools_are_refused():
    with pytest.raises(ValueError, match="Box"):
        Codec(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="1 names"):
        Codec(gymnasium.make(LAKE), ("only",))


async def test_nothing_is_printed_between_the_lines_of_the_process(capfd: pytest.CaptureFixture[str]):
    environment = GymnasiumEnvironment()
    for seed in range(40):
        environment.sample(seed, "train", None)
    assert capfd.readouterr().out == ""
