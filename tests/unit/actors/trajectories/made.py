"""Calls of agents, what they become, and an assembler on a store with a clock to turn."""

import json
from collections.abc import Sequence
from typing import Any

from actors.messages import Exchange, Feedback, Hints, Message, Trajectory, pack_array
from actors.store import Store
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from actors.trajectories.assembler import Assembler
from actors.trajectories.builder import build
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Closing, Limits, Stitcher
from tests.support.driving import Driver
from tests.support.traffic import exchange, without_tools

SESSION = Hints(trajectory_id="session")


def system(text: str) -> dict:
    return {"role": "system", "content": text}


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def says(text: str | None) -> dict:
    return {"role": "assistant", "content": text}


def calls(tool: str, *keys: str, **arguments: Any) -> dict:
    """An answer that calls `tool`, once a key."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return says(None) | {"tool_calls": [{"id": key, "type": "function", "function": function} for key in keys]}


def result(key: str, text: str) -> dict:
    return {"role": "tool", "content": text, "tool_call_id": key}


def call(
    name: str, messages: list[dict], answer: dict | list[dict], *, at: float, tools: Sequence[str] = ("add",),
    prompt: Sequence[int] = (), **fields: Any,
) -> Exchange:  # fmt: skip
    """A chat call, with tokens if it has a prompt of them."""
    request: dict = {"messages": messages}
    if tools:
        request["tools"] = [{"type": "function", "function": {"name": tool}} for tool in tools]
    choices = [{"message": message} for message in (answer if isinstance(answer, list) else [answer])]
    values = {
        "id": name, "response_id": f"r-{name}", "started": at, "versions": (), "hints": Hints(),
        "request": json.dumps(request).encode(), "response": json.dumps({"choices": choices}).encode(),
        "prompt_ids": pack_array(prompt, "<i4"), "response_ids": pack_array([int(at), 9] if prompt else [], "<i4"),
        "logprobs": pack_array([-1.0, -1.0] if prompt else [], "<f4"),
    }  # fmt: skip
    return exchange("unused", 0, **(values | fields))


def run_of(run: str = "a", count: int = 3, **fields: Any) -> list[Exchange]:
    """The first calls of a run."""
    return [exchange(run, number, **fields) for number in range(count)]


def title(number: int = 1, **fields: Any) -> Exchange:
    """A call without tools beside run `a`, when `number` of its answers are there."""
    values = {"id": "x-title", "response_id": "r-title", "started": 105.0 + 10 * (number - 1)}
    return exchange("a", number, request=without_tools("a", number), **(values | fields))


def mirrored(name: str, messages: list[dict], *, at: float) -> Exchange:
    """A request alone."""
    return call(name, messages, says(""), at=at, source="mirror", status=0, response=b"", response_id="")


def stitcher_of(*messages: Message, **limits: Any) -> Stitcher:
    """All that came at time 0; the store gives what was said of a call before it came."""
    stitcher, said = Stitcher(Limits(**limits)), list[Feedback]()
    for message in messages:
        if isinstance(message, Exchange):
            stitcher.add(read_turn(message), 0.0)
        elif isinstance(message, Feedback):
            said.append(message)
        for one in said:
            stitcher.hear(one, 0.0)
    return stitcher


def built(closings: Sequence[Closing]) -> list[Trajectory]:
    """What comes of them."""
    runs = [build(closing).run for closing in closings]
    return sorted(runs, key=lambda run: (run.goal, run.started, run.id))


def closed(*messages: Message, at: float = 10_000.0, **fields: Any) -> list[Trajectory]:
    """What came at time 0, as far as it is closed at `at`."""
    return built(stitcher_of(*messages, **fields).close_due(at))


def lines(*messages: Message) -> tuple[Trajectory, list[str]]:
    """The main line, and the calls beside it, of all that is one closing."""
    (closing,) = stitcher_of(*messages).close_due(10_000.0)
    found = build(closing)
    return found.run, [turn.id for turn in found.beside]


def names(run: Trajectory) -> str:
    """Its calls."""
    return " ".join(step.exchange_id.removeprefix("x-default-") for step in run.steps)


def stitched(*messages: Message) -> dict[str, object]:
    """How sure each run is, by its calls, and which calls are beside one."""
    found = [build(closing) for closing in stitcher_of(*messages).close_due(10_000.0)]
    return {names(one.run): one.run.confidence for one in found} | {
        turn.id: "side" for one in found for turn in one.beside
    }


class Bench:
    """An assembler on a store."""

    def __init__(self, store: Store) -> None:
        self.store, self.now = store, 5000.0

    async def restart(self, **fields: Any) -> None:
        """As after kill -9: what was in memory is gone."""
        values = {"clock": lambda: self.now, "limits": Limits(idle_seconds=60.0)}
        self.assembler = Assembler(store=self.store, **(values | fields))
        self.driver = Driver(self.assembler, self.store)
        await self.assembler.start()

    async def see(self, *messages: Message, commit: bool = True) -> list[Message]:
        found: list[Message] = []
        for kind, subject in ((Exchange, TRAFFIC_EXCHANGE), (Feedback, TRAFFIC_FEEDBACK)):
            some = [message for message in messages if isinstance(message, kind)]
            found += await self.driver.feed(subject, *some, commit=commit)
        return found

    async def later(self, seconds: float = 61.0) -> list[Trajectory]:
        """What has closed by then."""
        self.now += seconds
        return [run for run in await self.driver.tick() if isinstance(run, Trajectory)]

    async def outcome(self, run: Trajectory) -> float | None:
        found = await self.store.trajectory(run.id)
        assert isinstance(found, Trajectory)
        return found.outcome
