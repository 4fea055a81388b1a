"""BabyAI's own bot as a player of the bridge: it plans in a twin of the task's environment and acts through tools."""

from random import Random
from typing import Any

import gymnasium
from minigrid.utils.baby_ai_bot import BabyAIBot

from actors.messages import Task, ToolCall
from actors.ports.environments import Episode
from adapters.environments.gymnasium import GymnasiumEnvironment
from adapters.environments.gymnasium_text import Codec


async def oracle(environment: GymnasiumEnvironment, task: Task) -> tuple[float, int]:
    """The bot's attempt at `task`: outcome and turns."""
    twin = gymnasium.make(task.spec["id"])
    twin.reset(seed=task.spec["seed"])
    names = {number: name for name, number in Codec(twin)._actions.items()}
    bot = BabyAIBot(twin)

    def act(tools: list[dict[str, Any]]) -> str:
        action = int(bot.replan())
        twin.step(action)
        return names[action]

    return await _played(await environment.reset(task), act)


async def at_random(environment: GymnasiumEnvironment, task: Task, rng: Random) -> tuple[float, int]:
    """An attempt with any tool at any turn: outcome and turns."""
    return await _played(
        await environment.reset(task), lambda tools: rng.choice([tool["function"]["name"] for tool in tools])
    )


async def _played(episode: Episode, act: Any) -> tuple[float, int]:
    turns, done = 0, False
    while not done:
        seen = await episode.step((ToolCall(act(episode.tools), "{}", f"call-{turns}"),), "")
        turns, done = turns + 1, seen.done
    outcome = await episode.evaluate()
    await episode.aclose()
    return outcome, turns
