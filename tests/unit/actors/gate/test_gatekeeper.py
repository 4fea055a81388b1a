"""Candidates into the shadow engine, verdicts out."""

from pathlib import Path

import pytest

from actors.gate.gatekeeper import Gatekeeper, GatekeeperSettings
from actors.gate.sandbox_trial import SandboxTrial, SandboxTrialSettings
from actors.messages import Directive, Serving, Verdict
from actors.messages.signing import record_problem
from actors.ports.store import SwapReport
from actors.system.actor import Received, Result
from actors.system.errors import DependencyUnavailable
from actors.versions.version_timeline import VersionTimeline
from tests.support.fakes import Clock, FakeEngine, FakeEnvironment, FakeRunner, FakeStore, candidate
from tests.support.keys import key_pair

pytestmark = pytest.mark.anyio


class Bench:
    """A gatekeeper with everything around it."""

    def __init__(self, tmp_path: Path, **settings) -> None:
        self.path, self.clock, self.store, self.environment = tmp_path, Clock(), FakeStore(), FakeEnvironment()
        self.engine = FakeEngine(skill={0: 0.3, 1: 0.9, 2: 0.9, 3: 0.9, 4: 0.1, 5: 0.3})
        self.runner = FakeRunner(self.engine)
        self.key, self.keys = key_pair(tmp_path / "keys")
        self.heard: list[int] = []
        self.times = VersionTimeline(self.clock)
        self.trial = SandboxTrial(
            SandboxTrialSettings(batch=30, tasks=60, max_tasks=180, attempts=1, margin=0.1, first_seed=0),
            environment=self.environment,
            engine=self.engine,
            store=self.store,
        )
        self.gate = self.make(**settings)
        candidate(0, tmp_path / "v000000")
        self.serve(0, self.clock.now - 1)

    def make(self, **settings) -> Gatekeeper:
        return Gatekeeper(
            GatekeeperSettings(**{"gate_every": 1, **settings}),
            store=self.store,
            shadow=self.engine,
            shadow_name="shadow",
            runner=self.runner,
            trial=self.trial,
            versions=self.path,
            key=self.key,
            clock=self.clock,
            times=self.times,
            loaded=self.heard.append,
        )

    def serve(self, version: int, since: float) -> None:
        serving = Serving(
            id=f"s{version}-{since}",
            engine="serving",
            version=version,
            previous=0,
            path="",
            result="swapped",
            since=since,
        )
        self.store.save([serving])

    def roll_back(self, version: int) -> None:
        details = {"version": str(version), "to": "0"}
        order = Directive(
            id=f"r{version}", kind="rollback", reason="", origin="sentinel", created=self.clock.now, details=details
        )
        self.store.save([order])

    async def offer(self, *versions: int) -> list[Verdict]:
        made = [candidate(version, self.path / f"v{version:06d}", created=self.clock.now) for version in versions]
        return self.take(await self.gate.handle([Received(c.id, "policy.candidate", c) for c in made]))

    def take(self, result: Result) -> list[Verdict]:
        self.store.save(result.records)
        self.clock.now += 1
        return [output.message for output in result.outputs if isinstance(output.message, Verdict)]


@pytest.fixture
async def bench(tmp_path) -> Bench:
    bench = Bench(tmp_path)
    await bench.gate.start()
    return bench


async def test_a_better_candidate_is_promoted_and_signed(bench):
    (verdict,) = await bench.offer(1)
    assert verdict.decision == "promote"
    assert verdict.incumbent == 0
    assert record_problem(verdict, bench.keys) == ""
    assert verdict.measurements["success"] > verdict.measurements["incumbent_success"]
    assert bench.engine.current == 1, "the candidate is back in the shadow engine"
    assert bench.heard == [1]


async def test_a_worse_candidate_is_rejected(bench):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    (verdict,) = await bench.offer(4)
    assert (verdict.decision, verdict.incumbent) == ("reject", 1)


async def test_what_comes_of_a_version_that_was_rolled_back_is_rejected_untried(bench):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    await bench.offer(2)
    bench.roll_back(1)
    bench.serve(0, bench.clock.now)
    asked = bench.engine.requests
    (verdict,) = await bench.offer(3)
    assert (verdict.decision, verdict.reason) == ("reject", "comes of v1, which was rolled back")
    assert bench.engine.requests == asked
    fresh = candidate(5, bench.path / "v000005", parent=0, created=bench.clock.now)
    bench.engine.skill[5] = 0.9
    (verdict,) = bench.take(await bench.gate.handle([Received(fresh.id, "policy.candidate", fresh)]))
    assert verdict.decision == "promote", "the learner went back as well"


async def test_a_rollback_during_a_trial_ends_it_with_a_rejection(bench, monkeypatch):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    compare = bench.trial.compare

    async def interrupted(*arguments):
        bench.roll_back(1)
        return await compare(*arguments)

    monkeypatch.setattr(bench.trial, "compare", interrupted)
    (verdict,) = await bench.offer(2)
    assert (verdict.decision, verdict.reason) == ("reject", "comes of v1, which was rolled back")


async def test_a_line_is_known_after_a_restart(bench):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    await bench.offer(2)
    bench.roll_back(1)
    bench.gate = bench.make()
    await bench.gate.start()
    (verdict,) = await bench.offer(3)
    assert verdict.reason == "comes of v1, which was rolled back"


async def test_a_candidate_must_match_the_best_that_ever_served(bench):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    bench.clock.now += 1
    bench.serve(0, bench.clock.now)  # somebody went back
    bench.clock.now += 1
    (verdict,) = await bench.offer(5)
    assert verdict.incumbent == 0
    assert verdict.measurements["best_version"] == 1
    assert verdict.decision == "reject"


async def test_only_the_newest_of_several_is_loaded_and_all_are_recorded(bench):
    (verdict,) = await bench.offer(1, 2, 3)
    assert verdict.version == 3
    assert ("shadow", 1) not in bench.runner.calls
    assert bench.gate.counts["skipped"] == 2
    assert [item.version for item in await bench.store.candidates()] == [3, 2, 1]


async def test_between_two_verdicts_candidates_are_only_loaded(tmp_path):
    bench = Bench(tmp_path, gate_every=3)
    await bench.gate.start()
    assert await bench.offer(1) == []
    assert await bench.offer(2) == []
    (verdict,) = await bench.offer(3)
    assert verdict.version == 3
    assert bench.heard == [1, 2, 3]


async def test_the_last_candidate_is_judged_when_no_more_come(tmp_path):
    bench = Bench(tmp_path, gate_every=3, gate_seconds=30.0)
    await bench.gate.start()
    await bench.offer(1)
    assert bench.take(await bench.gate.tick()) == []
    bench.clock.now += 40
    (verdict,) = bench.take(await bench.gate.tick())
    assert (verdict.version, verdict.decision) == (1, "promote")
    bench.clock.now += 40
    assert bench.take(await bench.gate.tick()) == []


async def test_a_hold_gets_more_tasks_and_ends(tmp_path):
    bench = Bench(tmp_path, gate_seconds=30.0)
    bench.engine.skill = {0: 0.5, 1: 0.5}
    bench.trial = SandboxTrial(
        SandboxTrialSettings(batch=10, tasks=10, max_tasks=40, attempts=1, margin=0.001, alpha=0.005, beta=0.005),
        environment=bench.environment,
        engine=bench.engine,
        store=bench.store,
    )
    bench.gate = bench.make(gate_seconds=30.0)
    await bench.gate.start()
    bench.runner.reports = {}
    original = bench.engine.chat

    async def other_luck(body):  # another stream of luck for each version, or they would agree on every task
        return await original({**body, "seed": f"{body['seed']}-{bench.engine.current}"})

    bench.engine.chat = other_luck
    verdicts = await bench.offer(1)
    for _ in range(5):
        bench.clock.now += 40
        verdicts += bench.take(await bench.gate.tick())
    assert [verdict.decision for verdict in verdicts] == ["hold"] * 4
    assert [verdict.measurements["tasks"] for verdict in verdicts] == [10, 20, 30, 40]


async def test_each_candidate_is_compared_on_tasks_that_chose_nobody(bench):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    before = {number for _, number in bench.environment.begun}
    bench.environment.begun.clear()
    await bench.offer(2)
    assert not before & {number for _, number in bench.environment.begun}
    assert ("shadow", 1) in bench.runner.calls, "the incumbent attempts them too"


async def test_after_a_drift_records_of_the_old_desk_count_no_more(bench):
    await bench.offer(1)
    bench.serve(1, bench.clock.now)
    bench.clock.now += 1
    bench.serve(0, bench.clock.now)  # somebody went back
    bench.environment.names = ["win", "lose", "finish", "extra"]
    (verdict,) = await bench.offer(3)
    assert verdict.measurements["best_void"] == 1.0
    assert "best_version" not in verdict.measurements
    assert bench.engine.current == 3


async def test_a_drift_during_the_measurement_concludes_nothing(bench):
    original = bench.engine.chat

    async def drifting(body):
        bench.environment.names = ["win", "lose", "finish", "other"]
        return await original(body)

    bench.engine.chat = drifting
    (verdict,) = await bench.offer(1)
    assert verdict.decision == "hold"
    assert "changed" in verdict.reason


async def test_a_refused_checkpoint_is_rejected_and_not_loaded_after_a_restart(bench):
    bench.runner.reports[1] = SwapReport(result="refused", version=1, reason="tensor w is not finite")
    (verdict,) = await bench.offer(1)
    assert (verdict.decision, verdict.reason) == ("reject", "tensor w is not finite")
    assert bench.engine.current == 0
    bench.gate = bench.make()
    await bench.gate.start()
    bench.runner.calls.clear()
    await bench.gate.tick()
    assert bench.runner.calls == []


async def test_a_shadow_engine_that_was_restarted_is_brought_up_to_date(bench):
    await bench.offer(1)
    bench.engine.current = 0
    await bench.gate.tick()
    assert bench.engine.current == 1
    assert bench.heard == [1, 1]


@pytest.mark.promise
async def test_a_shadow_engine_that_a_swap_left_paused_is_loaded_again(bench):
    await bench.offer(1)
    bench.engine.paused = True
    bench.runner.calls.clear()
    await bench.gate.tick()
    assert bench.runner.calls == [("shadow", 1)], "its weights may be half loaded, whatever its label says"


async def test_an_engine_that_is_away_is_waited_for(bench):
    bench.engine.down = True
    with pytest.raises(DependencyUnavailable):
        await bench.offer(1)


async def test_broken_episodes_are_left_out_and_too_many_of_them_conclude_nothing(bench):
    bench.environment.broken = {3}
    (verdict,) = await bench.offer(1)
    assert verdict.measurements["tasks"] == 29
    bench.serve(1, bench.clock.now)
    bench.environment.names = [*bench.environment.names, "new"]
    bench.environment.broken = set(range(0, 15))
    with pytest.raises(DependencyUnavailable, match="broke down"):
        await bench.offer(2)


async def test_while_a_promoted_version_waits_to_serve_nothing_is_judged_against_it(bench):
    await bench.offer(1)
    assert await bench.offer(2) == []
    assert bench.gate.waiting.reason == "v1 was promoted and waits to serve; the next verdict is against it"
    bench.serve(1, bench.clock.now)
    bench.clock.now += 60
    (verdict,) = bench.take(await bench.gate.tick())
    assert (verdict.version, verdict.incumbent) == (2, 1)


async def test_an_older_candidate_that_comes_late_changes_nothing(bench):
    await bench.offer(3)
    old = candidate(2, bench.path / "v000002", created=1.0)
    result = await bench.gate.handle([Received(old.id, "policy.candidate", old)])
    assert result.outputs == ()
    assert bench.engine.current == 3


async def test_measured_on_heldout_tasks_only(bench):
    await bench.offer(1)
    assert {split for split, _ in bench.environment.begun} == {"heldout"}


async def test_an_engine_whose_label_says_nothing_gets_version_0_before_the_first_candidate(tmp_path):
    bench = Bench(tmp_path)
    bench.engine.current = -1
    await bench.gate.start()
    bench.take(await bench.gate.tick())
    assert (await bench.engine.version(), bench.heard) == (0, [0])
    bench.take(await bench.gate.tick())
    assert bench.runner.calls == [("shadow", 0)]


async def test_without_version_0_on_disk_it_is_left_as_it_is(tmp_path):
    bench = Bench(tmp_path)
    bench.engine.current = -1
    (tmp_path / "v000000" / "manifest.json").unlink()
    bench.take(await bench.gate.tick())
    assert (await bench.engine.version(), bench.heard) == (-1, [])


async def test_what_the_shadow_engine_has_is_known_until_other_weights_come(tmp_path):
    bench = Bench(tmp_path)
    await bench.gate.start()
    bench.take(await bench.gate.tick())
    held = bench.times.hold("shadow")
    assert held() == 0
    await bench.offer(1)
    assert (held(), bench.times.hold("shadow")()) == (-1, 1)
