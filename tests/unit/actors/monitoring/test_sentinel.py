"""What the sentinel orders."""

import json
import zlib

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from actors.messages import (
    Attributed,
    Attribution,
    Directive,
    Exchange,
    Message,
    OutcomeChanged,
    Serving,
    Step,
    StepLabel,
    Trajectory,
)
from actors.monitoring.sentinel import Sentinel
from actors.system.actor import Received
from tests.benchmarks.standstill.falls import falls
from tests.support.fakes import Clock, FakeEngine, FakeStore

pytestmark = pytest.mark.anyio


class Bench:
    """Version 1 has served forty runs that were solved; version 2 serves, on trial or after it."""

    def __init__(self) -> None:
        self.store, self.clock, self.count = FakeStore(), Clock(), 0
        self.engines = {"serving": FakeEngine("serving"), "shadow": FakeEngine("shadow")}
        self.sentinel = self.make()

    def make(self) -> Sentinel:
        return Sentinel(store=self.store, engines=self.engines, clock=self.clock)

    async def begin(self, *, passed: bool = True) -> "Bench":
        await self.sentinel.start()
        assert await self.tell(*self.runs(40, True, 1)) == []
        await self.swap(2, passed=passed)
        return self

    async def swap(self, version: int, *, passed: bool = False) -> None:
        self.clock.now += 1
        serving = Serving(
            id=f"s{version}", engine="serving", version=version, previous=version - 1, path="", result="swapped",
            since=self.clock.now,
        )  # fmt: skip
        assert await self.tell(serving) == []
        if passed:
            self.ordered("roll_on", str(version))

    def ordered(self, kind, version: str) -> None:
        """It stands in the books."""
        self.clock.now += 1
        order = Directive(
            id=f"{kind}{version}", kind=kind, reason="", origin="", created=self.clock.now, details={"version": version}
        )
        self.store.save([order])

    async def tell(self, *messages: Message) -> list[Directive]:
        result = await self.sentinel.handle([Received(message.id, "any", message) for message in messages])
        assert list(result.records) == [output.message for output in result.outputs]
        return [output.message for output in result.outputs if isinstance(output.message, Directive)]

    def runs(self, count: int, success: bool | None, version: int, tools=("book", "find"), **fields):
        """The next `count` runs, one a second; their calls are e1, their responses r1 and so on."""
        made: list[Trajectory] = []
        for _ in range(count):
            self.count += 1
            self.clock.now += 1
            run = Trajectory(
                id=f"t{self.count}", tools=json.dumps([{"function": {"name": name}} for name in tools]).encode(),
                steps=(Step(exchange_id=f"e{self.count}", response_id=f"r{self.count}"),),
                outcome=None if success is None else float(success), started=self.clock.now - 0.5,
                ended=self.clock.now, min_version=version, max_version=version,
            )  # fmt: skip
            made.append(msgspec.structs.replace(run, **fields))
        return made

    def said(self, numbers, outcome: float | None = 0.0) -> list[OutcomeChanged]:
        """The outcomes of runs are reported."""
        return [
            self.store.tell(f"t{number}", float(number % 2) if outcome is None else outcome, self.clock.now)
            for number in numbers
        ]


@pytest.fixture
async def bench() -> Bench:
    return await Bench().begin()


def kinds(orders: list[Directive]) -> list[str]:
    return [order.kind for order in orders]


BACK = ["rollback", "freeze"]


@pytest.mark.parametrize(("passed", "done"), [(True, BACK), (False, ["rollback"])], ids=["passed", "on trial"])
async def test_a_regression_rolls_back_and_freezes_unless_the_version_is_on_trial(passed, done):
    again = []
    for restarted in (False, True):
        bench = await Bench().begin(passed=passed)
        if restarted:
            await bench.sentinel.tick()
            bench.sentinel = bench.make()
            await bench.sentinel.start()
        orders = await bench.tell(*bench.runs(30, False, 2))
        assert (kinds(orders), orders[0].origin) == (done, "sentinel")
        assert (orders[0].details["version"], orders[0].details["to"]) == ("2", "1")
        assert await bench.tell(*bench.runs(1, False, 2)) == []
        status = bench.sentinel.status()
        assert status["monitors"]["outcomes"]["previous_after"] == 0.0
        assert [(told.cause, told.action) for told in status["told"]] == [("outcomes", "rollback")]
        again.append([order.id for order in orders])
    assert again[0] == again[1], "the same conclusion has the same id"


async def test_sandbox_runs_are_nobodys_regression(bench):
    assert await bench.tell(*bench.runs(60, False, 2, source="sandbox")) == []


@pytest.mark.parametrize("closed", [True, False], ids=["in memory", "in the store"])
async def test_outcomes_that_come_late_count_once(bench, closed):
    theirs = bench.runs(30, None, 2)
    bench.store.save(theirs)
    if closed:
        await bench.tell(*theirs)
    assert kinds(await bench.tell(*bench.said(range(41, 71)))) == BACK
    assert await bench.tell(*bench.said(range(41, 71)), *theirs) == []


async def test_late_outcomes_of_versions_that_are_forgotten_and_of_other_sources_count_for_nothing(bench):
    bench.store.save([*bench.runs(30, None, 7), *bench.runs(30, None, 2, source="sandbox")])
    assert await bench.tell(*bench.said(range(41, 101))) == []


def judged(bench: Bench, count: int, version: int, good: int, success=None) -> list[Attributed]:
    labels = (*[StepLabel("GOOD")] * good, *[StepLabel("BAD")] * (5 - good))
    word = Attribution(labels=labels, judge="llm", rubric="1")
    return [Attributed(id=run.id, trajectory=run, attribution=word) for run in bench.runs(count, success, version)]


@pytest.mark.parametrize("stored", [True, False], ids=["the store has them", "heard of"])
async def test_what_pleases_the_judge_alone_is_rolled_back_with_the_numbers_also_on_trial(stored):
    bench = Bench()
    await bench.sentinel.start()
    await bench.swap(1)
    before, after = judged(bench, 60, 1, 2), judged(bench, 60, 2, 5)
    for numbers, heard in ((range(1, 61), before), (range(61, 121), after)):
        bench.store.save(heard)
        orders = await bench.tell(*([] if stored else heard), *bench.said(numbers, None))
        if heard is before:
            assert orders == []
            await bench.swap(2)
    assert (kinds(orders), orders[0].details["cause"]) == (BACK, "hacking")
    assert "judge's score 0.40 -> 1.00 while success 50% -> 50%" in orders[0].reason


@pytest.mark.parametrize(
    ("share", "how", "found"),
    [
        (0.02, {"delay": 4 * 3600.0}, 1),
        (0.02, {"delay": 4 * 3600.0, "hasty": True}, 1),
        (0.1, {"delay": 4 * 3600.0, "hasty": True, "after": 0.9}, 0),  # a good version is not accused
    ],
)
def test_a_planted_fall_is_found_where_few_runs_are_reported_late_and_failures_first(share, how, found):
    seen = falls(share, trials=1, **how)
    assert (seen.found, seen.others if not found else {}) == (found, {})


async def test_status_says_whose_word_there_is_and_whether_the_rule_binds():
    bench = Bench()
    await bench.sentinel.start()
    await bench.swap(1)
    for callers, binds in (("abc", False), ("d", True)):
        await bench.tell(*(run for caller in callers for run in bench.runs(4, True, 1, caller=caller)))
        assert bench.sentinel.status()["parties"] == {"with_evidence": 4 if binds else 3, "binds": binds}


async def test_a_tool_change_is_drift_with_names(bench):
    (drift,) = await bench.tell(*bench.runs(3, True, 2, tools=("buy", "find")))
    assert (drift.kind, drift.details["cause"]) == ("drift", "tools")
    assert (drift.details["missing"], drift.details["new"]) == ("book", "buy")


async def test_a_freeze_leaves_what_serves_alone(bench):
    step = Step(exchange_id="q", text="Which day?")
    early = await bench.tell(*bench.runs(30, True, 2, steps=(step,)))
    assert {order.kind for order in early} == {"notice"}, "thirty outcomes do not say whether it pays"
    assert all("too few outcomes" in order.reason for order in early)
    orders = await bench.tell(*bench.runs(60, True, 2, steps=(step,)))
    assert {order.kind for order in orders} == {"freeze"}
    assert {order.details["cause"] for order in orders} >= {"questions"}


async def test_failing_calls_roll_back():
    bench = Bench()
    await bench.sentinel.start()

    async def calls(count: int, status: int) -> list[Directive]:
        bench.clock.now += 1
        return await bench.tell(*(
            Exchange(
                id=f"x{status}-{bench.clock.now}-{number}", endpoint="chat", engine="serving", duration=0.1,
                started=bench.clock.now, status=status, request=b"", response=b"",
            )
            for number in range(count)
        ))  # fmt: skip

    await bench.swap(1, passed=True)
    await calls(100, 200)
    await bench.swap(2)
    assert [kinds(await calls(40, 502)) for _ in range(3)] == [[], ["rollback"], []]


@pytest.mark.parametrize(
    "data", [b"\xc1", zlib.compress(b"\xc1"), zlib.compress(msgspec.msgpack.encode({"history": 1}))]
)
async def test_unreadable_state_is_left_behind(bench, data):
    bench.store.state["sentinel/state"] = data
    await bench.sentinel.start()
    assert await bench.tell(*bench.runs(1, True, 1)) == []


async def test_an_unreachable_engine_is_logged_once_and_its_return_once(bench, monkeypatch):
    with capture_logs() as logs:
        for down in (True, True, False, False):
            bench.engines["shadow"].down = down
            await bench.sentinel.tick()
    events = [(entry["event"], entry["engine"]) for entry in logs]
    assert events == [("engine_unreachable", "shadow"), ("engine_reachable", "shadow")]
    monkeypatch.setattr(bench.engines["shadow"], "version", anyio.sleep_forever)
    monkeypatch.setattr("actors.monitoring.sentinel._PROBE_TIMEOUT", 0.01)
    bench.sentinel = bench.make()
    with capture_logs() as logs:
        await bench.sentinel.tick()
    assert [(entry["engine"], entry["reason"]) for entry in logs] == [("shadow", "no answer within 0.01 s")]


@pytest.mark.parametrize(
    ("kind", "version", "done"), [("roll_on", "-", ["rollback"]), ("promote", "2", BACK)], ids=["no version", "by hand"]
)
async def test_a_trial_ended_well_if_the_books_say_so_or_a_person_ordered_the_version_meanwhile(kind, version, done):
    bench = await Bench().begin(passed=False)
    bench.ordered(kind, version)
    assert kinds(await bench.tell(*bench.runs(30, False, 2))) == done


async def test_the_order_that_began_a_trial_does_not_end_it():
    bench = await Bench().begin(passed=False)
    bench.ordered("promote", "3")
    await bench.tell(*bench.runs(40, True, 2))
    await bench.swap(3)
    assert kinds(await bench.tell(*bench.runs(30, False, 3))) == ["rollback"]
