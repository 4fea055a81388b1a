"""What became of each agent's runs: nothing is counted twice, nothing is left out, and a restart forgets nothing."""

import json

import msgspec
import pytest

from actors.curation.agents import LEARNED, PERIOD, SANDBOX, Agent, AgentLedger, AgentView, label_of
from actors.messages import Step, Trajectory
from tests.support.credited import attributed


def run(key: str, agent: str = "desk", **fields: object) -> Trajectory:
    steps = (Step(exchange_id=f"x-{key}", role=f"{agent}#1f0c2a9b"),)
    return attributed(key, steps=steps, **fields).trajectory


def only(ledger: AgentLedger) -> AgentView:
    (view,) = ledger.views()
    return view


def whole(view: AgentView) -> bool:
    """Every run is counted once."""
    settled = view.learned + sum(view.dropped.values()) + sum(view.no_gradient.values())
    return view.runs == settled + view.unreported + view.ready + view.training


@pytest.mark.promise
def test_a_run_is_counted_once_however_often_it_is_told_of() -> None:
    ledger = AgentLedger()
    assert ledger.seen(run("a", outcome=None), 1.0)
    assert not ledger.seen(run("a", outcome=None), 2.0)
    view = only(ledger)
    assert (view.agent, view.runs, view.reported, view.unreported) == ("default/desk#1f0c2a9b", 1, 0, 1)


def test_an_outcome_that_comes_late_makes_it_reported_and_ready() -> None:
    ledger = AgentLedger()
    ledger.seen(run("a", outcome=None), 1.0)
    ledger.seen(run("a", outcome=0.0), 2.0)
    view = only(ledger)
    assert (view.runs, view.reported, view.unreported, view.ready) == (1, 1, 0, 1)


def test_an_order_is_answered_with_what_was_learned_and_why_the_rest_was_not() -> None:
    ledger = AgentLedger()
    for key in "abcd":
        ledger.seen(run(key), 1.0)
    ledger.ordered("abc")
    assert (only(ledger).training, only(ledger).ready, only(ledger).ordered) == (3, 1, 3)
    ledger.answered("abc", {"a": "zero_advantage"}, "", 2.0)
    view = only(ledger)
    assert (view.learned, view.no_gradient, view.ordered, view.ready) == (2, {"zero_advantage": 1}, 3, 1)
    assert whole(view)
    assert ledger.effects == {LEARNED: 2, "zero_advantage": 1}


def test_untrainable_runs_are_told_apart_by_what_is_wrong_with_them() -> None:
    ledger = AgentLedger()
    ledger.seen(run("a", trainable=False, why_not="temperature 0"), 1.0)
    ledger.seen(run("b", trainable=False, why_not="redacted prompt"), 1.0)
    ledger.seen(run("c"), 1.0)
    for key, reason in (("a", "untrainable"), ("b", "untrainable"), ("c", "held out")):
        ledger.dropped(key, reason, 2.0)
    view = only(ledger)
    assert view.dropped == {"temperature 0": 1, "redacted prompt": 1, "held out": 1}
    assert (view.held_out, whole(view)) == (1, True)


def test_the_sandbox_is_one_agent_and_a_probe_is_none() -> None:
    ledger = AgentLedger()
    ledger.seen(run("a", source="sandbox", group="g"), 1.0)
    ledger.seen(run("b", source="sandbox", group="h", tools=b'[{"name": "x"}]'), 1.0)
    ledger.seen(run("c", source="probe"), 1.0)
    assert (only(ledger).agent, only(ledger).label, only(ledger).runs) == (SANDBOX, "the sandbox", 2)


def test_an_agent_that_is_gone_is_forgotten_unless_a_run_of_it_is_under_way() -> None:
    ledger = AgentLedger()
    for key, agent in (("a", "gone"), ("b", "waits")):
        ledger.seen(run(key, agent), 0.0)
    ledger.dropped("a", "stale", 0.0)
    assert len(ledger.save(2 * PERIOD - 1)) == 2
    assert list(ledger.save(2 * PERIOD)) == ["default/waits#1f0c2a9b"]


def test_calls_of_runs_that_cannot_be_trained_on_are_counted_by_reason_settled_or_under_way() -> None:
    ledger = AgentLedger()
    for key, why_not in (("a", ""), ("b", "temperature"), ("c", "temperature"), ("d", "")):
        ledger.seen(run(key, trainable=not why_not, why_not=why_not), 1.0)
    assert (only(ledger).calls, only(ledger).unfit) == (4, {"temperature": 2})
    ledger.dropped("b", "untrainable", 2.0)
    ledger.dropped("d", "unknown version", 2.0)
    ledger.dropped("a", "stale", 2.0)
    assert (only(ledger).calls, only(ledger).unfit) == (4, {"temperature": 2, "unknown version": 1})
    again = AgentLedger()
    again.load(msgspec.json.decode(msgspec.json.encode(ledger.save(3.0)), type=dict[str, Agent]))
    assert (only(again).calls, only(again).unfit) == (3, {"temperature": 1, "unknown version": 1})


def test_what_is_settled_is_saved_and_what_is_under_way_is_told_again() -> None:
    ledger = AgentLedger()
    for key in "abc":
        ledger.seen(run(key), 1.0)
    ledger.ordered("ab")
    ledger.answered("a", {}, "", 2.0)
    again = AgentLedger()
    again.load(ledger.save(3.0))
    for key in "bc":
        again.seen(run(key), 3.0)
    again.ordered("b")
    before, after = only(ledger), only(again)
    assert (after.runs, after.learned, after.training, after.ready) == (3, 1, 1, 1)
    assert (after.since, after.ordered) == (before.since, before.ordered)


def test_a_label_names_tenant_role_and_tools_and_nothing_that_cannot_be_printed() -> None:
    tools = json.dumps([{"type": "function", "function": {"name": name}} for name in "abcd"]).encode()
    assert label_of(run("a", tools=tools)) == "default, desk, with a, b, c ..."
    assert label_of(run("a", tenant="ev\x1b[31mil\n" + "x" * 500)).startswith("ev [31mil xxx")
    assert len(label_of(run("a", tenant="x" * 500))) == 100
