"""Candidates into the shadow engine, verdicts and orders to go back out."""

import shutil

import msgspec
import pytest

from actors.gate.replay_trial import ReplayTrial
from actors.messages import Candidate, Directive, Verdict
from actors.messages.signing import record_problem
from actors.ports.store import SwapReport
from actors.system.errors import DependencyUnavailable
from tests.unit.actors.gate.made import HELD_OUT, Bench, production

pytestmark = pytest.mark.anyio
HOUR = 3600.0


@pytest.fixture
async def bench(tmp_path) -> Bench:
    bench = Bench(tmp_path)
    await bench.gate.start()
    return bench


def told(order: object) -> tuple[str, str, str]:
    assert isinstance(order, Directive)
    return order.kind, order.details["version"], order.details["to"]


async def test_a_promotion_is_signed_and_says_what_it_was_compared_with(bench):
    (verdict,) = await bench.train(1, 0)
    assert (verdict.decision, verdict.version, verdict.incumbent, verdict.reason) == ("promote", 1, 0, "said promote")
    assert record_problem(verdict, bench.keys) == ""
    assert (bench.engine.current, bench.heard, bench.gate.counts["promote"]) == (1, [1], 1)


async def test_a_reject_sends_the_learner_back_and_what_comes_of_it_is_not_even_loaded(bench):
    bench.trial.says = "reject"
    verdict, order = await bench.train(1, 0)
    assert (verdict.decision, told(order), "said reject" in order.reason) == ("reject", ("rebase", "1", "0"), True)
    assert await bench.tick() == [], "said once"
    verdict, *_ = await bench.train(2, 1)
    assert (verdict.decision, verdict.reason) == ("reject", "comes of v1, which was given up")
    assert (len(bench.trial.asked), bench.engine.current, bench.gate.counts["abandoned"]) == (1, 1, 1)


async def test_where_the_learner_went_back_to_is_loaded_and_is_no_candidate(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    assert (await bench.go_back(0), bench.engine.current) == ([], 0)
    assert await bench.tick() == [] == await bench.tick(2 * HOUR)
    assert len(bench.trial.asked) == 1
    bench.trial.says = "promote"
    (verdict,) = await bench.train(2, 0)
    assert (verdict.version, verdict.decision) == (2, "promote")


@pytest.mark.parametrize("restarted", [True, False])
async def test_what_comes_of_a_version_that_was_rolled_back_is_rejected_untried(bench, restarted):
    for version in (1, 2):
        await bench.train(version, version - 1)
        bench.serve(version)
    bench.roll_back(1)
    bench.serve(0)
    if restarted:
        await bench.restart()
    verdict, *_ = await bench.train(3, 2)
    assert (verdict.decision, verdict.reason) == ("reject", "comes of v1, which was rolled back")
    assert len(bench.trial.asked) == 2
    (verdict,) = await bench.train(4, 0)
    assert verdict.decision == "promote", "the learner went back as well"


async def test_a_version_whose_weights_are_gone_is_compared_with_nothing(bench):
    await bench.train(1, 0)
    bench.serve(1)
    await bench.train(2, 1)
    assert bench.trial.served == [0, 1]
    shutil.rmtree(bench.path / "v000001")
    bench.serve(2)
    await bench.train(3, 2)
    assert bench.trial.served == [0, 2], "or the gate waits for it for ever"


async def test_a_rollback_during_a_trial_ends_it_with_a_rejection_and_an_order_has_it_measured_anew(bench, monkeypatch):
    await bench.train(1, 0)
    bench.serve(1)
    await bench.train(2, 1)
    bench.serve(2)
    compare, comes = bench.trial.compare, [lambda: bench.serve(1), lambda: None, lambda: bench.roll_back(1)]

    async def interrupted(*arguments):
        comes.pop(0)()
        return await compare(*arguments)

    monkeypatch.setattr(bench.trial, "compare", interrupted)
    assert await bench.train(3, 2) == []
    assert bench.gate.waiting.reason == "v1 serves since v2 was compared with"
    (verdict,) = await bench.tick()
    assert (verdict.version, verdict.incumbent, bench.trial.asked[-2:]) == (3, 1, [(3, 2), (3, 1)])
    bench.serve(3)
    verdict, *_ = await bench.train(4, 1)
    assert (verdict.decision, verdict.reason) == ("reject", "comes of v1, which was rolled back")


async def test_only_the_newest_of_several_is_loaded_and_all_are_recorded(bench):
    (verdict,) = await bench.hear(*(bench.make(version, version - 1) for version in (1, 2, 3)))
    assert (verdict.version, bench.runner.calls) == (3, [("shadow", 3)])
    assert bench.gate.counts["skipped"] == 2
    assert [item.version for item in await bench.store.newest(Candidate)] == [3, 2, 1]
    old = msgspec.structs.replace(bench.made[2], id="late", created=1.0)
    assert (await bench.hear(old), bench.engine.current) == ([], 3), "one that comes late changes nothing"


async def test_between_two_verdicts_candidates_are_only_loaded_and_the_last_is_judged_when_no_more_come(tmp_path):
    bench = Bench(tmp_path, gate_every=3, gate_seconds=30.0)
    await bench.gate.start()
    found = [[item.version for item in await bench.train(version, version - 1)] for version in (1, 2, 3)]
    assert (found, bench.heard) == ([[], [], [3]], [1, 2, 3])
    bench.serve(3)
    await bench.train(4, 3)
    assert await bench.tick(10) == []
    (verdict,) = await bench.tick(30)
    assert (verdict.version, verdict.decision) == (4, "promote")
    assert await bench.tick(40) == []


async def test_missing_evidence_is_no_verdict_uses_up_no_attempts_and_is_asked_again(bench):
    bench.trial.says = "wait"
    assert await bench.train(1, 0) == []
    for _ in range(5):
        await bench.tick(5.0)
    assert len(bench.trial.asked) == 1, "not at every tick"
    for _ in range(10):
        assert await bench.tick() == []
    waiting = bench.gate.waiting
    assert (waiting.version, waiting.have, waiting.need, len(bench.trial.asked)) == (1, 5, 32, 11)
    assert await bench.store.newest(Verdict) == []
    bench.trial.says = "promote"
    (verdict,) = await bench.tick()
    assert (verdict.decision, bench.gate.waiting) == ("promote", None)


async def test_a_candidate_that_nobody_can_judge_gives_way_to_a_newer_one_and_else_to_what_serves(bench):
    bench.trial.says = "wait"
    await bench.train(1, 0)
    await bench.tick(HOUR / 2)
    assert (await bench.train(2, 1), bench.gate.waiting.version) == ([], 2)
    assert await bench.tick(HOUR / 2) == [], "v2 has its time too"
    (order,) = await bench.tick(HOUR)
    assert told(order) == ("rebase", "2", "0")
    (verdict,) = await bench.tick(HOUR)
    assert verdict.reason == "comes of v2, which was given up", "the history says why"
    assert await bench.tick(HOUR) == []


async def test_where_nothing_can_be_judged_yet_no_candidate_gives_way_to_another(bench):
    bench.trial.says, bench.trial.far = "wait", False
    await bench.train(1, 0)
    assert await bench.tick(24 * HOUR) == [] == await bench.tick(24 * HOUR)
    assert (bench.gate.waiting.since, bench.gate.until) == (bench.made[1].created, None)


async def test_the_hour_of_a_candidate_begins_when_what_was_promoted_before_it_serves(bench):
    await bench.train(1, 0)
    bench.trial.says = "wait"
    await bench.train(2, 1)
    assert await bench.tick(10 * HOUR) == []
    bench.serve(1)
    assert await bench.tick() == [] == await bench.tick(HOUR / 2)
    (order,) = await bench.tick(HOUR / 2)
    assert told(order) == ("rebase", "2", "1")


@pytest.mark.parametrize("loaded", [True, False])
async def test_the_hour_of_a_candidate_does_not_run_while_the_shadow_engine_is_away(bench, loaded):
    bench.trial.says = "wait"
    one = bench.make(1, 0)
    if loaded:
        await bench.hear(one)
    bench.engine.down = True
    for _ in range(3):
        with pytest.raises(DependencyUnavailable):
            await (bench.tick(HOUR) if loaded else bench.hear(one))
        bench.clock.now += 0.0 if loaded else HOUR
        await bench.gate.start()  # as the runner does
    bench.engine.down = False
    assert await bench.hear(one) == [] == await bench.tick()
    assert await bench.tick(HOUR / 2) == []
    (order,) = await bench.tick(HOUR / 2)
    assert told(order) == ("rebase", "1", "0")


async def test_three_outcomes_in_four_hours_refuse_nobody_and_a_small_step_serves_in_the_end(bench):
    bench.trial = ReplayTrial(engine=bench.engine, store=bench.store)
    bench.gate = bench.build()
    await bench.gate.start()
    found = await bench.train(1, 0)
    for number in range(36):
        bench.store.save([production(HELD_OUT[number], bench.clock.now, outcome=float(number % 2))])
        for _ in range(4):
            found += await bench.tick(HOUR / 3)
    (verdict,) = found
    assert (verdict.decision, verdict.measurements["trajectories"]) == ("promote", 8)


async def test_holds_to_the_end_send_the_learner_back(bench):
    bench.trial.says = "hold"
    found = await bench.train(1, 0)
    while len(found) < 4:
        found += await bench.tick()
    *verdicts, order = found
    assert [item.decision for item in verdicts] == ["hold"] * 4
    assert (told(order), bench.gate.counts["hold"]) == (("rebase", "1", "0"), 4)
    assert (await bench.tick(), len(bench.trial.asked)) == ([], 4)


@pytest.mark.parametrize("serves", [True, False])
async def test_a_promotion_that_is_under_way_is_left_alone_and_one_that_was_refused_ends_the_branch(bench, serves):
    await bench.train(1, 0)
    assert await bench.tick() == []
    bench.serve(1, "swapped" if serves else "refused")
    assert await bench.tick() == []
    assert [told(order) for order in await bench.tick(3 * HOUR)] == ([] if serves else [("rebase", "1", "0")])


async def test_a_promotion_that_waits_for_another_trial_is_waited_for_however_long_that_takes(bench):
    await bench.train(1, 0)
    assert await bench.tick(10 * HOUR) == []
    assert await bench.train(2, 1) == []
    assert bench.gate.waiting.reason == "v1 was promoted and waits to serve; the next verdict is against it"
    assert await bench.tick(10 * HOUR) == []
    assert len(bench.trial.asked) == 1
    bench.serve(1)
    (verdict,) = await bench.tick()
    assert (verdict.version, verdict.incumbent) == (2, 1)


@pytest.mark.parametrize(
    "ends",
    [lambda bench: bench.serve(2, "refused"), lambda bench: bench.roll_back(1), lambda bench: bench.serve(0)],
    ids=["an engine refuses it", "the trial before it is rolled back", "an operator brings in another"],
)
async def test_what_was_promoted_is_waited_for_until_it_is_given_up(bench, ends):
    await bench.train(1, 0)
    bench.serve(1)
    await bench.train(2, 1)
    assert await bench.train(3, 2) == []
    ends(bench)
    verdict, *_ = await bench.tick()
    assert (verdict.version, bench.gate.waiting) == (3, None)


async def test_a_candidate_that_is_refused_untried_does_not_end_the_waiting_of_what_was_promoted(bench):
    await bench.train(1, 0)
    bench.runner.reports[2] = SwapReport(result="refused", version=2, reason="tensor w is not finite")
    await bench.train(2, 1)
    assert await bench.tick() == [], "v1 is not judged once more"
    assert await bench.train(3, 0) == []
    assert bench.gate.waiting.reason.startswith("v1 was promoted and waits to serve")
    assert bench.trial.asked == [(1, 0)]


async def test_when_an_operator_puts_another_version_in_its_place_the_learner_follows(bench):
    for version in (1, 2, 3):
        await bench.train(version, version - 1)
        bench.serve(version)
    bench.serve(1)
    (order,) = await bench.tick(2 * HOUR)
    assert told(order) == ("rebase", "3", "1")


async def test_where_something_else_serves_since_the_learner_went_back_it_follows(bench):
    bench.trial.says = "reject"
    await bench.train(1, 0)
    await bench.go_back(0)
    bench.make(2, 0)
    bench.serve(2)
    (order,) = await bench.tick()
    assert (told(order), await bench.tick()) == (("rebase", "0", "2"), [])
    bench.serve(0)
    bench.trial.says = "promote"
    (verdict,) = await bench.train(3, 0)
    assert verdict.decision == "promote", "nothing was wrong with v0"


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
    await bench.restart()
    bench.engine.current = 2
    assert await bench.tick() == []
    assert bench.engine.current == 0, "the shadow is where the learner is"
    verdict, *_ = await bench.train(3, 2)
    assert verdict.reason == "comes of v2, which was given up"


async def test_a_checkpoint_that_the_shadow_refuses_ends_the_branch_and_is_not_loaded_after_a_restart(bench):
    bench.runner.reports[1] = SwapReport(result="refused", version=1, reason="tensor w is not finite")
    verdict, order = await bench.train(1, 0)
    assert (verdict.decision, verdict.reason) == ("reject", "tensor w is not finite")
    assert (told(order), bench.engine.current) == (("rebase", "1", "0"), 0)
    await bench.restart()
    bench.runner.calls.clear()
    await bench.tick()
    assert bench.runner.calls == []


@pytest.mark.promise
@pytest.mark.parametrize("paused", [True, False], ids=["a swap left it paused", "it came up anew"])
async def test_a_shadow_engine_is_brought_up_to_date_by_itself(bench, paused):
    await bench.train(1, 0)
    bench.engine.paused, bench.engine.current = paused, int(paused)
    bench.runner.calls.clear()
    await bench.tick()
    assert bench.runner.calls == [("shadow", 1)], "its weights may be half loaded, whatever its label says"
    assert (bench.engine.current, bench.heard) == (1, [1, 1])


async def test_an_engine_that_is_away_is_waited_for(bench):
    bench.engine.down = True
    with pytest.raises(DependencyUnavailable):
        await bench.train(1, 0)


@pytest.mark.parametrize(("there", "loaded"), [(True, [0]), (False, [])])
async def test_an_engine_whose_label_says_nothing_gets_version_0_before_the_first_candidate(tmp_path, there, loaded):
    bench = Bench(tmp_path)
    bench.engine.current = -1
    if not there:
        (tmp_path / "v000000" / "manifest.json").unlink()
    await bench.gate.start()
    for _ in range(2):
        await bench.tick(1.0)
        assert (await bench.engine.version(), bench.heard) == (0 if there else -1, loaded)


async def test_what_the_shadow_engine_has_is_known_until_other_weights_come(bench):
    await bench.tick(1.0)
    held = bench.times.hold("shadow")
    assert held() == 0
    await bench.train(1, 0)
    assert (held(), bench.times.hold("shadow")()) == (-1, 1)
