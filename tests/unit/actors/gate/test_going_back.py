"""The gatekeeper never leaves the learner on weights that were refused, and missing evidence is no verdict."""

import pytest

from actors.gate.gatekeeper import Gatekeeper, GatekeeperSettings
from actors.gate.sandbox_trial import Comparison
from actors.messages import Candidate, Directive, Serving, Verdict
from actors.ports.store import SwapReport
from actors.system.actor import Received, Result
from tests.support.fakes import Clock, FakeEngine, FakeRunner, FakeStore, candidate
from tests.support.keys import key_pair

pytestmark = pytest.mark.anyio
HOUR = 3600.0


class Scripted:
    """A trial that says what it is told to."""

    def __init__(self) -> None:
        self.says = "promote"
        self.asked: list[tuple[int, int]] = []
        self.far = True

    async def compare(self, candidate, incumbent, served, load, *, deadline=0.0):
        self.asked.append((candidate, incumbent))
        figures = {"evidence": 5.0, "evidence_needed": 32.0} if self.says == "wait" else {}
        return Comparison(self.says, f"said {self.says}", figures, self.far)


class Bench:
    def __init__(self, path) -> None:
        self.path, self.clock, self.store, self.trial = path, Clock(), FakeStore(), Scripted()
        self.engine = FakeEngine()
        self.runner = FakeRunner(self.engine)
        self.key, _ = key_pair(path / "keys")
        self.made: dict[int, Candidate] = {}
        self.make(0, -1)
        self.serve(0)
        self.gate = self.build()

    def build(self, **settings) -> Gatekeeper:
        return Gatekeeper(
            GatekeeperSettings(**{"gate_every": 1, "gate_seconds": 60.0, **settings}),
            store=self.store, shadow=self.engine, shadow_name="shadow", runner=self.runner,
            trial=self.trial, versions=self.path, key=self.key, clock=self.clock,
        )  # fmt: skip

    def make(self, version: int, parent: int) -> Candidate:
        self.clock.now += 1
        self.made[version] = candidate(
            version, self.path / f"v{version:06d}", parent=parent, created=self.clock.now
        )  # fmt: skip
        return self.made[version]

    def serve(self, version: int, result: str = "swapped") -> None:
        self.clock.now += 1
        serving = Serving(
            id=f"s{version}-{self.clock.now}", engine="serving", version=version, previous=0, path="", result=result,
            since=self.clock.now,
        )  # fmt: skip
        self.store.save([serving])

    async def train(self, version: int, parent: int) -> list[Verdict | Directive]:
        made = self.make(version, parent)
        return self.take(await self.gate.handle([Received(made.id, "policy.candidate", made)]))

    async def go_back(self, version: int) -> list[Verdict | Directive]:
        self.clock.now += 1
        made = self.made[version]
        told = Candidate(
            id=f"back-{self.clock.now}", version=version, parent=made.parent, path=made.path, files=made.files,
            manifest=made.manifest, created=self.clock.now, answer="went_back",
        )  # fmt: skip
        return self.take(await self.gate.handle([Received(told.id, "policy.candidate", told)]))

    async def tick(self, seconds: float = 61.0) -> list[Verdict | Directive]:
        self.clock.now += seconds
        return self.take(await self.gate.tick())

    def take(self, result: Result) -> list[Verdict | Directive]:
        self.store.save(result.records)
        return [output.message for output in result.outputs]


@pytest.fixture
async def bench(tmp_path) -> Bench:
    bench = Bench(tmp_path)
    await bench.gate.start()
    return bench


def told(order: object) -> tuple[str, str, str]:
    assert isinstance(order, Directive)
    return order.kind, order.details["version"], order.details["to"]


async def test_a_reject_sends_the_learner_back_to_what_serves(bench):
    bench.trial.says = "reject"
    verdict, order = await bench.train(1, 0)
    assert verdict.decision == "reject"
    assert bench.gate.counts["reject"] == 1
    assert told(order) == ("rebase", "1", "0")
    assert "said reject" in order.reason
    assert await bench.tick() == [], "said once"


async def test_what_the_learner_made_meanwhile_is_rejected_untried_and_not_loaded(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    asked = len(bench.trial.asked)
    verdict, *_ = await bench.train(2, 1)
    assert verdict.reason == "comes of v1, which was given up"
    assert (len(bench.trial.asked), bench.engine.current) == (asked, 1)
    assert bench.gate.counts["abandoned"] == 1


async def test_where_the_learner_went_back_to_is_loaded_and_is_no_candidate(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    asked = len(bench.trial.asked)
    assert await bench.go_back(0) == []
    assert bench.engine.current == 0
    assert await bench.tick() == [] == await bench.tick(2 * HOUR)
    assert len(bench.trial.asked) == asked
    bench.trial.says = "promote"
    (verdict,) = await bench.train(2, 0)
    assert (verdict.version, verdict.decision) == (2, "promote")


async def test_missing_evidence_is_no_verdict_uses_up_no_attempts_and_is_asked_again(bench):
    bench.trial.says = "wait"
    assert await bench.train(1, 0) == []
    for _ in range(10):
        assert await bench.tick() == []
    waiting = bench.gate.waiting
    assert (waiting.version, waiting.have, waiting.need) == (1, 5, 32)
    assert await bench.store.verdicts() == []
    bench.trial.says = "promote"
    (verdict,) = await bench.tick()
    assert verdict.decision == "promote"
    assert bench.gate.waiting is None


async def test_it_is_not_asked_at_every_tick(bench):
    bench.trial.says = "wait"
    await bench.train(1, 0)
    for _ in range(5):
        await bench.tick(5.0)
    assert len(bench.trial.asked) == 1


async def test_a_candidate_that_nobody_can_judge_gives_way_to_a_newer_one_and_else_to_what_serves(bench):
    bench.trial.says = "wait"
    await bench.train(1, 0)
    await bench.tick(HOUR / 2)
    assert await bench.train(2, 1) == []
    assert bench.gate.waiting.version == 2
    assert await bench.tick(HOUR / 2) == [], "v2 has its time too"
    (order,) = await bench.tick(HOUR)
    assert told(order) == ("rebase", "2", "0")
    (verdict,) = await bench.tick(HOUR)
    assert verdict.reason == "comes of v2, which was given up", "on record, for who looks at its history"
    assert await bench.tick(HOUR) == []


async def test_where_nothing_can_be_judged_yet_no_candidate_gives_way_to_another(bench):
    bench.trial.says, bench.trial.far = "wait", False
    await bench.train(1, 0)
    assert await bench.tick(24 * HOUR) == [] == await bench.tick(24 * HOUR)
    assert bench.gate.waiting.since == bench.made[1].created


async def test_holds_to_the_end_send_the_learner_back(bench):
    bench.trial.says = "hold"
    found = await bench.train(1, 0)
    while len(found) < 4:
        found += await bench.tick()
    assert [item.decision for item in found[:4]] == ["hold"] * 4
    assert (bench.gate.counts["hold"], bench.gate.counts["promote"]) == (4, 0)
    assert told(found[4]) == ("rebase", "1", "0")
    assert len(found) == 5


async def test_a_promotion_that_is_under_way_is_left_alone(bench):
    await bench.train(1, 0)
    assert await bench.tick() == []
    bench.serve(1)
    assert await bench.tick(3 * HOUR) == []


async def test_a_promotion_that_never_came_to_serve_ends_the_branch(bench):
    await bench.train(1, 0)
    bench.serve(1, "refused")
    assert await bench.tick() == []
    (order,) = await bench.tick(HOUR)
    assert told(order) == ("rebase", "1", "0")


async def test_when_an_operator_puts_another_version_in_its_place_the_learner_follows(bench):
    for version in (1, 2, 3):
        await bench.train(version, version - 1)
        bench.serve(version)
    bench.serve(1)
    (order,) = await bench.tick(2 * HOUR)
    assert told(order) == ("rebase", "3", "1")


async def test_what_an_operator_brought_back_after_a_refusal_may_have_descendants(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    bench.serve(1)  # promoted by force
    bench.trial.says = "promote"
    (verdict,) = await bench.train(2, 1)
    assert verdict.decision == "promote"


async def test_where_it_stands_is_known_after_a_restart(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    await bench.train(2, 1)
    await bench.go_back(0)
    bench.gate = bench.build()
    await bench.gate.start()
    bench.engine.current = 2
    assert await bench.tick() == []
    assert bench.engine.current == 0, "the shadow is where the learner is"
    verdict, *_ = await bench.train(3, 2)
    assert verdict.reason == "comes of v2, which was given up"


async def test_a_checkpoint_that_the_shadow_refuses_ends_the_branch(bench):
    bench.runner.reports[1] = SwapReport(result="refused", version=1, reason="tensor w is not finite")
    verdict, order = await bench.train(1, 0)
    assert verdict.reason == "tensor w is not finite"
    assert told(order) == ("rebase", "1", "0")


async def test_a_promotion_that_waits_for_another_trial_is_waited_for_however_long_that_takes(bench):
    await bench.train(1, 0)
    assert await bench.tick(10 * HOUR) == []
    assert await bench.train(2, 1) == []
    assert await bench.tick(10 * HOUR) == []
    assert len(bench.trial.asked) == 1
    bench.serve(1)
    (verdict,) = await bench.tick()
    assert (verdict.version, verdict.incumbent) == (2, 1)


async def test_what_was_dropped_with_the_trial_that_it_waited_for_is_not_waited_for(bench):
    await bench.train(1, 0)
    bench.serve(1)
    await bench.train(2, 1)
    details = {"version": "1", "to": "0"}
    bench.clock.now += 1
    order = Directive(
        id="r", kind="rollback", reason="", origin="swapper", created=bench.clock.now, details=details
    )  # fmt: skip
    bench.store.save([order])
    verdict, *_ = await bench.train(3, 2)
    assert verdict.reason == "comes of v1, which was rolled back"


async def test_where_something_else_serves_since_the_learner_went_back_it_follows(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    await bench.go_back(0)
    bench.make(2, 0)
    bench.serve(2)
    (order,) = await bench.tick()
    assert told(order) == ("rebase", "0", "2")
    assert await bench.tick() == []
    bench.serve(0)
    bench.trial.says = "promote"
    (verdict,) = await bench.train(3, 0)
    assert verdict.decision == "promote", "nothing was wrong with v0"
