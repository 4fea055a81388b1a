"""BFCL through the hand that plays episodes: several calls a turn, turns of the user, tools that come later."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from actors.rollout.episode_runner import play
from tests.support.bfcl_runs import Call
from tests.support.fakes import FakeEngine

pytestmark = pytest.mark.anyio
TASK = "multi_turn_miss_func_0"


class Scripted(FakeEngine):
    """Says given turns one after the other; an empty one is a turn in words."""

    def __init__(self, turns: Sequence[Sequence[Call]]) -> None:
        super().__init__()
        self._left = list(turns)
        self.asked: list[dict[str, Any]] = []

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await super().chat(body)
        self.asked.append({"messages": list(body["messages"]), "tools": list(body["tools"])})
        calls = [
            {
                "id": f"call-{len(self.asked)}-{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(self._left.pop(0))
        ]
        message = {"role": "assistant", "content": None if calls else "Done.", "tool_calls": calls or None}
        answer["choices"][0]["message"] = message
        return answer


async def test_the_ground_truth_is_played_and_rewarded_with_tools_that_come_later(shared, given, anyio_backend):
    bfcl, known = shared(anyio_backend), given[TASK]
    script = [calls for turn in known.turns for calls in ([turn, []] if turn else [[]])]
    engine = Scripted(script)
    episode = await bfcl.reset(bfcl.task(TASK))
    played = await play(engine, episode, max_steps=50)
    await episode.aclose()
    assert played.finished
    assert played.outcome == 1.0
    assert len(played.steps) == len(script)
    offered = [{tool["function"]["name"] for tool in asked["tools"]} for asked in engine.asked]
    (turn,) = known.held_back
    first_after = sum(2 if calls else 1 for calls in known.turns[:turn])
    assert [known.held_back[turn] <= names for names in offered] == [
        number >= first_after for number in range(len(script))
    ]
