"""What the sentinel orders."""

import json

import pytest
from structlog.testing import capture_logs

from actors.messages import Directive, Feedback, Message, Serving, Step, Trajectory
from actors.monitors import MonitorSettings
from actors.sentinel import Sentinel, SentinelSettings
from actors.system.actor import Received
from tests.support.fakes import Clock, FakeEngine, FakeStore

pytestmark = pytest.mark.anyio
SETTINGS = SentinelSettings(monitors=MonitorSettings(min_runs=20, recent=20))


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


class Bench:
    def __init__(self) -> None:
        self.store, self.clock = FakeStore(), Clock()
        self.engines = {"serving": FakeEngine("serving"), "shadow": FakeEngine("shadow")}
        self.sentinel = self.make()
        self.count = 0

    def make(self) -> Sentinel:
        return Sentinel(SETTINGS, store=self.store, engines=self.engines, clock=self.clock)

    async def tell(self, *messages: Message) -> list[Directive]:
        result = await self.sentinel.handle([Received(message.id, "any", message) for message in messages])
        assert list(result.records) == [output.message for output in result.outputs]
        return [output.message for output in result.outputs if isinstance(output.message, Directive)]

    def run(self, success: bool | None, version: int, tools=("book", "find"), source="production") -> Trajectory:
        self.count += 1
        self.clock.now += 1
        return Trajectory(
            id=f"t{self.count}",
            source=source,
            tools=json.dumps([{"function": {"name": name}} for name in tools]).encode(),
            steps=(Step(exchange_id=f"e{self.count}", response_id=f"r{self.count}"),),
            outcome=None if success is None else float(success),
            started=self.clock.now - 0.5,
            ended=self.clock.now,
            min_version=version,
            max_version=version,
        )

    def swap(self, version: int, previous: int) -> Serving:
        self.clock.now += 1
        return Serving(
            id=f"s{version}", engine="serving", version=version, previous=previous, path="", result="swapped",
            since=self.clock.now,
        )  # fmt: skip


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.sentinel.start()
    return bench


async def test_a_regression_rolls_back_and_freezes(bench):
    assert await bench.tell(*(bench.run(True, 1) for _ in range(40))) == []
    await bench.tell(bench.swap(2, 1))
    rollback, freeze = await bench.tell(*(bench.run(False, 2) for _ in range(30)))
    assert (rollback.kind, freeze.kind) == ("rollback", "freeze")
    assert (rollback.details["version"], rollback.details["to"], rollback.origin) == ("2", "1", "sentinel")
    assert await bench.tell(bench.run(False, 2)) == []


async def test_late_feedback_counts(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.tell(*(bench.run(None, 2) for _ in range(30)))
    feedback = [
        Feedback(id=f"f{number}", received=bench.clock.now, response_id=f"r{number}", outcome=0.0)
        for number in range(41, 71)
    ]
    assert [directive.kind for directive in await bench.tell(*feedback)] == ["rollback", "freeze"]


async def test_a_tool_change_is_drift_with_names(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(5)))
    (drift,) = await bench.tell(*(bench.run(True, 1, tools=("buy", "find")) for _ in range(3)))
    assert (drift.kind, drift.details["missing"], drift.details["new"]) == ("drift", "book", "buy")
    assert drift.details["cause"] == "tools"


async def test_sandbox_runs_are_nobodys_regression(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    assert await bench.tell(*(bench.run(False, 2, source="sandbox") for _ in range(60))) == []


async def test_what_it_saw_survives_a_restart(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.sentinel.tick()
    bench.sentinel = bench.make()
    await bench.sentinel.start()
    assert [d.kind for d in await bench.tell(*(bench.run(False, 2) for _ in range(30)))] == ["rollback", "freeze"]


async def test_unreadable_state_is_left_behind(bench):
    bench.store.state["sentinel/state"] = b"\xc1"
    await bench.sentinel.start()
    assert await bench.tell(bench.run(True, 1)) == []


async def test_an_unreachable_engine_is_logged_once_and_its_return_once(bench):
    with capture_logs() as logs:
        bench.engines["shadow"].down = True
        for _ in range(3):
            await bench.sentinel.tick()
        bench.engines["shadow"].down = False
        for _ in range(3):
            await bench.sentinel.tick()
    events = [(entry["event"], entry["engine"]) for entry in logs]
    assert events == [("engine_unreachable", "shadow"), ("engine_reachable", "shadow")]


async def test_repeated_conclusions_have_the_same_ids(bench):
    first = Bench()
    for one in (bench, first):
        await one.sentinel.start()
        await one.tell(*(one.run(True, 1) for _ in range(40)))
        await one.tell(one.swap(2, 1))
    a = await bench.tell(*(bench.run(False, 2) for _ in range(30)))
    b = await first.tell(*(first.run(False, 2) for _ in range(30)))
    assert [directive.id for directive in a] == [directive.id for directive in b]
