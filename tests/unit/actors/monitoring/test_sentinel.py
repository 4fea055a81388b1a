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
    Feedback,
    Message,
    Serving,
    Step,
    StepLabel,
    Trajectory,
)
from actors.monitoring.sentinel import Sentinel, SentinelSettings
from actors.system.actor import Received
from tests.benchmarks.standstill.falls import falls
from tests.support.fakes import Clock, FakeEngine, FakeStore

pytestmark = pytest.mark.anyio
SETTINGS = SentinelSettings()


class Bench:
    def __init__(self) -> None:
        self.store, self.clock = FakeStore(), Clock()
        self.engines = {"serving": FakeEngine("serving"), "shadow": FakeEngine("shadow")}
        self.sentinel = self.make()
        self.count = 0

    def make(self, settings: SentinelSettings = SETTINGS) -> Sentinel:
        return Sentinel(settings, store=self.store, engines=self.engines, clock=self.clock)

    async def pass_trial(self, version: int) -> None:
        """The swapper says that `version` fared no worse."""
        details = {"version": str(version), "engine": "serving"}
        order = Directive(id=f"on{version}", kind="roll_on", reason="", origin="swapper", details=details)
        assert await self.tell(order) == []

    async def tell(self, *messages: Message) -> list[Directive]:
        result = await self.sentinel.handle([Received(message.id, "any", message) for message in messages])
        assert list(result.records) == [output.message for output in result.outputs]
        return [output.message for output in result.outputs if isinstance(output.message, Directive)]

    def run(
        self, success: bool | None, version: int, tools=("book", "find"), source="production", tenant="default"
    ) -> Trajectory:
        self.count += 1
        self.clock.now += 1
        return Trajectory(
            id=f"t{self.count}",
            tenant=tenant,
            source=source,
            tools=json.dumps([{"function": {"name": name}} for name in tools]).encode(),
            steps=(Step(exchange_id=f"e{self.count}", response_id=f"r{self.count}"),),
            outcome=None if success is None else float(success),
            started=self.clock.now - 0.5,
            ended=self.clock.now,
            min_version=version,
            max_version=version,
        )

    def said(self, number: int, outcome: float = 0.0, **fields) -> Feedback:
        """Feedback on run `number`, by its response unless `fields` say otherwise."""
        given = fields or {"response_id": f"r{number}"}
        return Feedback(id=f"f{number}{given}", received=self.clock.now, outcome=outcome, **given)

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
    await bench.pass_trial(2)
    rollback, freeze = await bench.tell(*(bench.run(False, 2) for _ in range(30)))
    assert (rollback.kind, freeze.kind) == ("rollback", "freeze")
    assert (rollback.details["version"], rollback.details["to"], rollback.origin) == ("2", "1", "sentinel")
    assert await bench.tell(bench.run(False, 2)) == []


async def test_a_version_on_trial_is_rolled_back_and_learning_goes_on(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    (rollback,) = await bench.tell(*(bench.run(False, 2) for _ in range(30)))
    assert (rollback.kind, rollback.details["version"]) == ("rollback", "2")


async def test_late_feedback_counts(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.pass_trial(2)
    await bench.tell(*(bench.run(None, 2) for _ in range(30)))
    feedback = [
        Feedback(id=f"f{number}", received=bench.clock.now, response_id=f"r{number}", outcome=0.0)
        for number in range(41, 71)
    ]
    assert [directive.kind for directive in await bench.tell(*feedback)] == ["rollback", "freeze"]


async def test_feedback_finds_a_run_that_only_the_store_has(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.pass_trial(2)
    bench.store.save([bench.run(None, 2) for _ in range(30)])
    told = await bench.tell(*(bench.said(number) for number in range(41, 71)))
    assert [directive.kind for directive in told] == ["rollback", "freeze"]
    assert bench.sentinel.late == {"found": 30, "remembered": 0, "left_out": 0}


async def test_the_store_is_asked_so_often_a_batch_and_what_is_left_out_is_counted(bench):
    await bench.tell(bench.swap(2, 1))
    bench.store.save([bench.run(None, 2) for _ in range(100)])
    await bench.tell(*(bench.said(number) for number in range(1, 101)))
    assert (bench.sentinel.late["found"], bench.sentinel.status()["late"]["left_out"]) == (64, 36)


@pytest.mark.parametrize("closed", [True, False], ids=["in memory", "in the store"])
@pytest.mark.parametrize("name", ["trajectory_id", "response_id", "exchange_id"])
async def test_feedback_of_another_tenant_does_not_join(bench, closed, name):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.pass_trial(2)
    theirs = [bench.run(None, 2) for _ in range(30)]
    bench.store.save(theirs)
    if closed:
        await bench.tell(*theirs)
    letter = {"trajectory_id": "t", "response_id": "r", "exchange_id": "e"}[name]
    for tenant, kinds in (("other", []), ("default", ["rollback", "freeze"])):
        feedback = [bench.said(n, **{name: f"{letter}{n}"}, tenant=tenant) for n in range(41, 71)]
        assert [directive.kind for directive in await bench.tell(*feedback)] == kinds
        assert bench.sentinel.late["unknown"] == 30


async def test_feedback_of_the_batch_that_brings_its_run_joins_it(bench):
    await bench.tell(bench.swap(1, 0))
    await bench.tell(bench.said(1), bench.run(None, 1))
    assert bench.sentinel.late["remembered"] == 1


async def test_late_outcomes_of_versions_that_are_forgotten_and_of_other_sources_count_for_nothing(bench):
    bench.store.save([bench.run(None, 7), bench.run(None, 2, source="sandbox"), bench.run(None, 2)])
    assert await bench.tell(bench.said(3)) == []
    await bench.tell(bench.swap(2, 1))
    await bench.tell(bench.said(1), bench.said(2), bench.said(3, step=0, response_id="r3"))
    assert bench.sentinel.late == {"forgotten": 2, "unknown": 1, "remembered": 0, "left_out": 0}


async def test_the_judgement_of_a_run_that_the_store_has_counts(bench):
    def judged(count: int, version: int, good: int) -> list[Attributed]:
        labels = (*[StepLabel("GOOD")] * good, *[StepLabel("BAD")] * (5 - good))
        word = Attribution(labels=labels, judge="llm", rubric="1")
        runs = [bench.run(None, version) for _ in range(count)]
        return [Attributed(id=run.id, trajectory=run, attribution=word) for run in runs]

    await bench.tell(bench.swap(1, 0))
    bench.store.save(before := judged(60, 1, 2))
    bench.store.save(after := judged(60, 2, 5))
    bench.store.save([one.trajectory for one in (*before, *after)])
    assert await bench.tell(*(bench.said(number, number % 2) for number in range(1, 61))) == []
    await bench.tell(bench.swap(2, 1))
    orders = await bench.tell(*(bench.said(number, number % 2) for number in range(61, 121)))
    assert [order.details["cause"] for order in orders] == ["hacking", "hacking"]


@pytest.mark.parametrize(("share", "delay"), [(0.1, 0.0), (0.02, 4 * 3600.0)])
def test_a_planted_fall_is_found_where_few_runs_are_reported_and_late(share, delay):
    assert falls(share, trials=1, delay=delay).found == 1


def test_a_good_version_is_not_accused_because_failures_are_reported_first():
    found = falls(0.1, trials=1, delay=4 * 3600.0, after=0.9, hasty=True)
    assert (found.found, found.others) == (0, {})


@pytest.mark.parametrize("share", [1.0, 0.02])
def test_a_fall_is_found_where_failures_are_reported_first_and_successes_hours_later(share):
    assert falls(share, trials=1, delay=4 * 3600.0, hasty=True).found == 1


async def test_status_says_whose_word_there_is_and_whether_the_rule_binds(bench):
    def of(caller: str, version: int) -> Trajectory:
        return msgspec.structs.replace(bench.run(True, version), caller=caller)

    await bench.tell(bench.swap(1, 0), *(of(caller, 1) for caller in "abc" for _ in range(4)))
    assert bench.sentinel.status()["parties"] == {"with_evidence": 3, "binds": False}
    await bench.tell(*(of("d", 1) for _ in range(4)))
    assert bench.sentinel.status()["parties"] == {"with_evidence": 4, "binds": True}


async def test_a_tool_change_is_drift_with_names(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(8)))
    (drift,) = await bench.tell(*(bench.run(True, 1, tools=("buy", "find")) for _ in range(3)))
    assert (drift.kind, drift.details["missing"], drift.details["new"]) == ("drift", "book", "buy")
    assert drift.details["cause"] == "tools"


async def test_what_pleases_the_judge_alone_is_rolled_back_with_the_numbers(bench):
    def judged(count: int, version: int, good: int) -> list[Attributed]:
        runs = [bench.run(number % 2 == 0, version) for number in range(count)]
        labels = (*[StepLabel("GOOD")] * good, *[StepLabel("BAD")] * (5 - good))
        return [
            Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=labels, judge="llm", rubric="1"))
            for run in runs
        ]

    assert await bench.tell(*judged(60, 1, 2)) == []
    await bench.tell(bench.swap(2, 1))
    orders = await bench.tell(*judged(60, 2, 5))
    assert [order.kind for order in orders] == ["rollback", "freeze"]
    assert orders[0].details["cause"] == "hacking"
    assert "judge's score 0.40 -> 1.00 while success 50% -> 50%" in orders[0].reason


async def test_a_freeze_leaves_what_serves_alone(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    step = Step(exchange_id="q", text="Which day?")

    def asking(count: int) -> list[Trajectory]:
        return [msgspec.structs.replace(bench.run(True, 2), steps=(step,)) for _ in range(count)]

    early = await bench.tell(*asking(30))
    assert {order.kind for order in early} == {"notice"}, "thirty outcomes do not say whether it pays"
    assert all("too few outcomes" in order.reason for order in early)
    orders = await bench.tell(*asking(60))
    assert {order.kind for order in orders} == {"freeze"}
    assert {order.details["cause"] for order in orders} >= {"questions"}


async def test_failing_calls_roll_back(bench):
    def calls(count: int, status: int) -> list[Exchange]:
        bench.clock.now += 1
        return [
            Exchange(
                id=f"x{status}-{bench.clock.now}-{number}", endpoint="chat", engine="serving", duration=0.1,
                started=bench.clock.now, status=status, request=b"", response=b"",
            )
            for number in range(count)
        ]  # fmt: skip

    await bench.tell(bench.swap(1, 0))
    await bench.pass_trial(1)
    await bench.tell(*calls(100, 200))
    await bench.tell(bench.swap(2, 1))
    found = [await bench.tell(*calls(40, 502)) for _ in range(3)]
    assert [[order.kind for order in orders] for orders in found] == [[], ["rollback"], []]


async def test_an_engine_that_stands_still_is_a_notice_and_orders_nothing(bench):
    bench.engines["serving"].paused = True
    orders = []
    for _ in range(10):
        bench.clock.now += 10
        orders += [output.message for output in (await bench.sentinel.tick()).outputs]
    (notice,) = orders
    assert (notice.kind, notice.details["cause"]) == ("notice", "paused")


async def test_its_status_has_every_monitor_and_what_was_done(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.tell(*(bench.run(False, 2) for _ in range(30)))
    status = bench.sentinel.status()
    assert status["monitors"]["outcomes"]["previous_after"] == 0.0
    assert [(told.cause, told.action) for told in status["told"]] == [("outcomes", "rollback")]


async def test_sandbox_runs_are_nobodys_regression(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    assert await bench.tell(*(bench.run(False, 2, source="sandbox") for _ in range(60))) == []


async def test_what_it_saw_survives_a_restart(bench):
    await bench.tell(*(bench.run(True, 1) for _ in range(40)))
    await bench.tell(bench.swap(2, 1))
    await bench.pass_trial(2)
    await bench.sentinel.tick()
    bench.sentinel = bench.make()
    await bench.sentinel.start()
    assert [d.kind for d in await bench.tell(*(bench.run(False, 2) for _ in range(30)))] == ["rollback", "freeze"]


@pytest.mark.parametrize(
    "data", [b"\xc1", zlib.compress(b"\xc1"), zlib.compress(msgspec.msgpack.encode({"history": 1}))]
)
async def test_unreadable_state_is_left_behind(bench, data):
    bench.store.state["sentinel/state"] = data
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


async def test_an_engine_that_does_not_answer_in_time_is_said_to(bench, monkeypatch):
    monkeypatch.setattr(bench.engines["shadow"], "metrics", anyio.sleep_forever)
    bench.sentinel = bench.make(msgspec.structs.replace(SETTINGS, probe_timeout=0.01))
    with capture_logs() as logs:
        await bench.sentinel.tick()
    assert [(entry["engine"], entry["reason"]) for entry in logs] == [("shadow", "no answer within 0.01 s")]


async def test_repeated_conclusions_have_the_same_ids(bench):
    first = Bench()
    for one in (bench, first):
        await one.sentinel.start()
        await one.tell(*(one.run(True, 1) for _ in range(40)))
        await one.tell(one.swap(2, 1))
    a = await bench.tell(*(bench.run(False, 2) for _ in range(30)))
    b = await first.tell(*(first.run(False, 2) for _ in range(30)))
    assert [directive.id for directive in a] == [directive.id for directive in b]
