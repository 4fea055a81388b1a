"""Travel desk trajectories for tests: played with the demonstrator's habits, which err about as the warm start does."""

import json
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from actors.messages import Label, Step, ToolCall, Trajectory
from actors.ports.environments import Episode
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import Drift, Variant
from adapters.environments.travel.environment import step
from tests.warmstart.travel_demonstrations import Habits, _Play
from tests.warmstart.travel_oracle import good_actions

NO_DRIFT = Drift()


class Played(msgspec.Struct, frozen=True):
    """A trajectory and what the answer key says of its steps."""

    trajectory: Trajectory
    truth: tuple[Label, ...]


def call(tool: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(tool, json.dumps(arguments))


def trajectory(
    turns: list[tuple[ToolCall, str]],
    *,
    id: str = "t",
    goal: str = "",
    outcome: float | None = 1.0,
    tools: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> Trajectory:
    """A trajectory of one call a step; as in production, nothing comes back for the last one."""
    steps = tuple(
        Step(exchange_id=f"{id}-{i}", tool_calls=(made,), observation="" if i == len(turns) - 1 else seen)
        for i, (made, seen) in enumerate(turns)
    )
    described = json.dumps(tools).encode() if tools else b""
    times = {"started": 0.0, "ended": 1.0}
    return Trajectory(id=id, goal=goal, outcome=outcome, tools=described, steps=steps, **{**times, **fields})


def play(rng: random.Random, family: str, *, id: str, drift: Drift = NO_DRIFT, **fields: Any) -> Played:
    """One task, played by somebody who errs."""
    desk = Desk(f"test-{rng.random()}", family, Variant.of(drift))
    mind = _Play(rng, Habits(), desk, False)
    turns: list[tuple[ToolCall, str]] = []
    truth: list[Label] = []
    while not desk.done:
        action = mind.action()
        truth.append("GOOD" if action in good_actions(desk) else "BAD")
        made = call(action[0], **action[1])
        turns.append((made, step(desk, [made]).text))
    outcome = float(desk.solved)
    tools = desk.variant.tools()
    return Played(trajectory(turns, id=id, goal=desk.goal, outcome=outcome, tools=tools, **fields), tuple(truth))


def plays(count: int, *, seed: int = 0, families: str = "AABBC", **fields: Any) -> Iterator[Played]:
    """Many tasks, ids in order."""
    rng = random.Random(seed)
    for number in range(count):
        yield play(rng, rng.choice(families), id=f"run-{seed}-{number}", **fields)


class Clerk:
    """A scripted policy that works as the desk was before any drift; plays any `Episode`, a `Player` for probes.

    Args:
        rng: decides its slips.
        skips_check: how often it cancels without the precondition at first.
        blind: how often it books a flight that it has not searched for, and gives up.
        knows: new names that it uses of itself, by the old ones.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        skips_check: float = 0.0,
        blind: float = 0.0,
        knows: Mapping[str, str] | None = None,
    ) -> None:
        self._rng, self._skips_check, self._blind, self._knows = rng, skips_check, blind, knows or {}

    async def __call__(self, episode: Episode, seed: int) -> None:
        goal = episode.messages[-1]["content"]
        person = re.search(r"for:(\w+)", goal)
        city = re.search(r"to:(\w+)", goal)
        assert person is not None

        async def use(tool: str, /, **arguments: str) -> dict[str, str]:
            seen = await episode.step([call(self._knows.get(tool, tool), **arguments)], "")
            return json.loads(seen.text)

        answer = "done"
        pid = (await use("find_person", name=person[1])).get("pid", "K0")
        if "Cancel" in goal:
            oid = (await use("list_orders", pid=pid)).get("oid", "K0")
            if self._rng.random() >= self._skips_check:
                await use("check_policy", oid=oid)
            if "error" in await use("cancel", oid=oid):
                await use("finish", answer="done")
                return
        if city is not None:
            fid = (
                "K0" if self._rng.random() < self._blind else (await use("search_flight", to=city[1])).get("fid", "K0")
            )
            answer = (await use("book", fid=fid, pid=pid)).get("ref", "done")
        await use("finish", answer=answer)
