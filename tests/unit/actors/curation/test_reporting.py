"""What people are told: what learning waits for, and of each agent whether it is learned from, why not, what to do."""

import json
import re
from typing import Any

import msgspec
import pytest

from actors.curation.agents import LEARNED, PERIOD, SANDBOX, Agent, AgentLedger, AgentView, label_of
from actors.curation.pace import ALL, EXAM
from actors.curation.progress import Evidence, Facts, Learning, progress
from actors.curation.remedies import _REMEDIES, FEEDBACK, calls_that_train, counted, tell
from actors.messages import Step, Trajectory
from daemon.settings.reading import defaults
from tests.support.credited import attributed

NOW = 1_800_000_000.0
"""2027-01-15 08:00 UTC, a Friday."""


def every(seconds: float, number: int = 9, until: float = NOW) -> list[float]:
    """Arrivals, the last one at `until`."""
    return [until - seconds * place for place in reversed(range(number))]


def told(**fields: Any) -> Learning:
    """Production alone, an outcome a minute, an update half an hour ago."""
    values: dict[str, Any] = {
        "now": NOW, "since": NOW - 86_400, "updated": NOW - 1800, "answered": NOW - 1800, "version": 12, "head": 12,
        "fresh_needed": 8, "fresh": 5, "unreported": 230, "runs": every(10), "reported": every(60), "first_report": 1.0,
        "update_seconds": 40.0, "serving": [10], "lead": 2,
    }  # fmt: skip
    return progress(Facts(**{**values, **fields}))


QUIET = NOW - 8 * 3600
SLOW = {"reported": every(900), "updated": NOW - 80_000}
NOBODY = {"reported": [], "first_report": 0.0, "fresh": 0, "updated": 0.0, "answered": 0.0, "version": -1}
LIMIT = {"fresh": 0, "behind": 20, "lead": 4, "head": 14}
VERDICT = Evidence(version=14, since=NOW - 600, have=12, need=32, share=EXAM, reason="12 of 32 outcomes")
TRIAL = Evidence(version=14, since=NOW - 600, have=10, need=32, share=ALL, until=NOW + 3000)
SKIPPED = {"skipped_orders": 5, "skipped": {"zero_advantage": 33, "equal_outcomes": 7}}


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"updated": NOW - 3 * 520}, "moving"),  # eight outcomes and the update itself: 520 s
        ({"updated": NOW - 3 * 520 - 1}, "waiting"),
        ({"swapped": NOW - 3 * 520}, "moving"),
        ({"updated": NOW - 300, "reported": every(1)}, "moving"),  # two minutes at least
        ({"updated": NOW - 361, "reported": every(1), "update_seconds": None}, "waiting"),
        ({"answered": NOW - 3599}, "waiting"),
        ({"answered": NOW - 3600}, "stuck"),
        ({**SLOW, "answered": NOW - 3 * 8 * 900 + 1}, "waiting"),
        ({**SLOW, "answered": NOW - 3 * 8 * 900 - 1}, "stuck"),
        ({**NOBODY, "since": NOW - 3599}, "waiting"),
        ({**NOBODY, "since": NOW - 3600}, "stuck"),
        ({"ordered": NOW - 3600, "runs": [], "reported": []}, "stuck"),
        ({"ordered": NOW - 3700, "update_seconds": 1300.0, "updated": NOW - 9000}, "waiting"),
        ({**SKIPPED, "skipped_since": NOW - 3599}, "waiting"),
    ],
)
def test_it_moves_waits_or_is_stuck(facts: dict[str, Any], state: str) -> None:
    assert told(**facts).state == state


AHEAD = "20 reported runs wait: the learner (v14) is 4 updates ahead of v10."
SHORT = "5 of 8 outcomes for the next update since 07:30 UTC; 230 runs have none yet."


@pytest.mark.parametrize(
    ("facts", "state", "waits_for", "sentence", "remedy"),
    [
        ({}, "waiting", "outcomes", SHORT, "report how runs went"),
        ({"answered": NOW - 3600}, "stuck", "outcomes", "5 of 8", "report how runs went: POST /v1/feedback"),
        (NOBODY, "stuck", "outcomes", "0 of 8 outcomes for the next update since Thursday 08:00 UTC; 230 runs have "
         "none yet; no outcome was ever reported.", "report how runs went: POST /v1/feedback"),
        ({"runs": every(10, until=QUIET), "reported": every(60, until=QUIET), "answered": QUIET}, "waiting", "runs",
         "5 of 8 outcomes for the next update since 00:00 UTC; 230 runs have none yet; no run and no outcome has come "
         "since 00:00 UTC.", ""),
        ({"reported": [], "unreported": 0, "fresh": 0, "dropped": {"temperature 0": 200, "held out": 30},
          "answered": NOW - 7200}, "stuck", "runs",
         "Runs come, and none may be trained on: 200 were sampled at temperature 0.", "let the agent sample at"),
        ({"frozen": True, "frozen_since": NOW - 90_000, "frozen_reason": "incident 4711", "ordered": NOW - 9999},
         "frozen", "thaw", "Frozen since Thursday 07:00 UTC: incident 4711.", "evolved thaw, once its cause is gone"),
        ({"ordered": NOW - 300}, "waiting", "learner",
         "The learner has not answered for 5 min: orders wait since 07:55 UTC; it usually takes 40 s.",
         "see that the learner runs: systemctl status evolved-learner"),
        ({**SKIPPED, "skipped_since": NOW - 3600}, "stuck", "outcomes",
         "The last 5 orders made no update: of their runs 33 went as was expected of them; 7 went as well as all that "
         "they were compared with. 5 of 8 outcomes", "report outcomes that differ"),
        ({**SKIPPED, "skipped_orders": 2, "answered": NOW - 60}, "waiting", "outcomes", "5 of 8 outcomes", ""),
        ({"groups_needed": 8, "groups": 2, "group_size": 8, "played": every(5), "wait_seconds": 1800.0}, "waiting",
         "groups", "2 of 8 groups of the sandbox since 07:30 UTC, and 5 of 8 outcomes; what there is, is ordered 30 "
         "min after it came, at the latest.", ""),
        ({**LIMIT, "verdict": VERDICT}, "waiting", "verdict",
         f"{AHEAD} The verdict on v14 waits since 07:50 UTC: 12 of 32 outcomes.", ""),
        ({**LIMIT, "verdict": msgspec.structs.replace(VERDICT, since=NOW - 3601)}, "waiting", "verdict", AHEAD,
         f'{FEEDBACK}; or decide yourself: evolved promote 14 --force --reason "..."'),
        ({**LIMIT, "trial": TRIAL, "verdict": VERDICT}, "waiting", "trial",
         f"{AHEAD} v14 is on trial since 07:50 UTC: 10 of 32 outcomes; it ends at 08:50 UTC at the latest.", ""),
        ({"fresh": 0, "behind": 20, "lead": None, "head": 14}, "waiting", "learner",
         "The learner stands at v14, which does not come of what serves (v10), and is to go back", "see that"),
    ],
    ids=["few", "slow", "nobody", "night", "unfit", "frozen", "learner", "taught", "twice", "groups",
         "verdict", "late verdict", "trial", "branch"],
)  # fmt: skip
def test_each_wait_has_its_sentence_and_its_remedy(
    facts: dict[str, Any], state: str, waits_for: str, sentence: str, remedy: str
) -> None:
    learning = told(**facts)
    assert (learning.state, learning.waits_for) == (state, waits_for)
    assert learning.sentence.startswith(sentence)
    assert learning.remedy.startswith(remedy)
    assert bool(learning.remedy) == bool(remedy)


def view(**fields: Any) -> AgentView:
    values: dict[str, Any] = {
        "agent": "t/desk", "label": "t, desk", "seen": 1.0, "since": 0.0, "runs": 0, "reported": 0, "held_out": 0,
        "ordered": 0, "learned": 0, "unreported": 0, "ready": 0, "training": 0, "dropped": {}, "no_gradient": {},
        "calls": 0, "unfit": {},
    }  # fmt: skip
    return AgentView(**{**values, **fields})


@pytest.mark.parametrize(
    ("agent", "learning", "sentence", "change"),
    [
        (view(runs=20, learned=20), True, "Learning: 20 of 20 runs ordered changed the weights.", ""),
        (view(runs=56, learned=3, no_gradient={"zero_advantage": 50, "nothing_to_compare": 3}), True,
         "Hardly learning: 56 runs ordered, 53 gave no gradient: 50 went as was expected of them; 3 had nothing to "
         "be compared with.", "report outcomes that differ"),
        (view(runs=8, no_gradient={"equal_outcomes": 8}), False,
         "Not learning: 8 runs ordered, none gave a gradient: 8 went as well as all that they were compared with.",
         "report outcomes that differ"),
        (view(runs=8, training=8), False, "Not learning yet: the first 8 runs are with the learner.", ""),
        (view(runs=9, ready=5, unreported=4), False,
         "Not learning yet: 5 of 9 runs can be learned from and wait for an update.", ""),
        (view(runs=1, unreported=1), False, "Not learning: none of 1 run has an outcome.", "report how runs"),
        (view(runs=12, reported=4, unreported=2, dropped={"temperature 0": 10}), False,
         "Not learning: of 12 runs none can be learned from: 2 have no outcome yet; 10 were sampled at temperature 0.",
         "let the agent sample at temperature 1"),
        (view(runs=4, reported=4, dropped={"held out": 3, "redacted prompt": 1}), False,
         "Not learning: of 4 runs none can be learned from: 3 are kept for the gate's exam; 1 held prompt that was "
         "redacted.", "send less of such data"),
        (view(runs=3, reported=3, dropped={"odd": 3}), False, "Not learning: of 3 runs none can be learned from", ""),
        (view(), False, "Not learning yet: no run has come.", ""),
    ],
)  # fmt: skip
def test_each_agent_has_its_sentence_and_its_remedy(
    agent: AgentView, learning: bool, sentence: str, change: str
) -> None:
    said = tell(agent)
    assert said.learning == learning
    assert said.sentence.startswith(sentence)
    assert said.remedy.startswith(change)
    assert bool(said.remedy) == bool(change)


@pytest.mark.parametrize(
    ("calls", "unfit", "sentence", "change"),
    [
        (0, {}, "none yet", ""),
        (40, {}, "all 40", ""),
        (40, {"side call": 20, "no token ids from /v1/messages": 6},
         "35 % of 40; 6 are of runs that called /v1/messages, and their engine gave no token ids there", "install"),
    ],
)  # fmt: skip
def test_what_share_of_its_calls_trains_and_the_first_reason_why_not(
    calls: int, unfit: dict[str, int], sentence: str, change: str
) -> None:
    said = calls_that_train(view(calls=calls, unfit=unfit))
    assert said.sentence == sentence
    assert said.remedy.startswith(change)
    assert bool(said.remedy) == bool(change)


def test_reasons_are_counted_the_commonest_first_and_every_setting_that_a_remedy_names_exists() -> None:
    assert counted({"a": 1, "stale": 9, "b": 2, "temperature 0": 5}) == (
        "9 were too old for the weights that are trained; 5 were sampled at temperature 0; 2 b; 1 for other reasons"
    )
    tables = {name: table[0] if isinstance(table, list) else table for name, table in defaults().items()}
    known = {f"{name}.{key}" for name, table in tables.items() if isinstance(table, dict) for key in table}
    named = {found for _, change in _REMEDIES.values() for found in re.findall(r"\b[a-z]+\.[a-z_]+\b", change)}
    assert {name for name in named if not name.endswith(".md")} <= known


def run(key: str, agent: str = "desk", **fields: Any) -> Trajectory:
    return attributed(key, steps=(Step(exchange_id=f"x-{key}", role=f"{agent}#1f0c2a9b"),), **fields).trajectory


def only(ledger: AgentLedger) -> AgentView:
    """The only agent, each of whose runs is counted once."""
    (one,) = ledger.views()
    settled = one.learned + sum(one.dropped.values()) + sum(one.no_gradient.values())
    assert one.runs == settled + one.unreported + one.ready + one.training
    return one


@pytest.mark.promise
def test_a_run_is_counted_once_however_often_it_is_told_of_and_reported_when_its_outcome_comes() -> None:
    ledger = AgentLedger()
    assert ledger.seen(run("a", outcome=None), 1.0)
    assert not ledger.seen(run("a", outcome=None), 2.0)
    one = only(ledger)
    assert (one.agent, one.runs, one.reported, one.unreported) == ("default/desk#1f0c2a9b", 1, 0, 1)
    ledger.seen(run("a", outcome=0.0), 2.0)
    one = only(ledger)
    assert (one.runs, one.reported, one.unreported, one.ready) == (1, 1, 0, 1)


def test_an_order_is_answered_with_what_was_learned_and_a_restart_forgets_nothing() -> None:
    ledger = AgentLedger()
    for key in "abcd":
        ledger.seen(run(key), 1.0)
    ledger.ordered("abc")
    assert (only(ledger).training, only(ledger).ready, only(ledger).ordered) == (3, 1, 3)
    ledger.answered("ab", {"a": "zero_advantage"}, "", 2.0)
    one = only(ledger)
    assert (one.learned, one.no_gradient, one.ordered, one.ready) == (1, {"zero_advantage": 1}, 3, 1)
    assert ledger.effects == {LEARNED: 1, "zero_advantage": 1}
    again = AgentLedger()
    again.load(msgspec.json.decode(msgspec.json.encode(ledger.save(3.0)), type=dict[str, Agent]))
    for key in "cd":
        again.seen(run(key), 3.0)
    again.ordered("c")
    assert msgspec.structs.replace(only(again), seen=1.0) == one


def test_untrainable_runs_and_their_calls_are_told_apart_by_what_is_wrong_with_them() -> None:
    ledger = AgentLedger()
    for key, why_not in (("a", ""), ("b", "temperature 0"), ("c", "redacted prompt"), ("d", ""), ("e", "")):
        ledger.seen(run(key, trainable=not why_not, why_not=why_not), 1.0)
    for key, reason in zip("abcd", ("held out", "untrainable", "untrainable", "unknown version"), strict=True):
        ledger.dropped(key, reason, 2.0)
    one = only(ledger)
    assert one.dropped == {"temperature 0": 1, "redacted prompt": 1, "held out": 1, "unknown version": 1}
    assert (one.held_out, one.calls) == (1, 5)
    assert one.unfit == {"temperature 0": 1, "redacted prompt": 1, "unknown version": 1}


def test_the_sandbox_is_one_agent_a_probe_is_none_and_one_that_is_gone_is_forgotten() -> None:
    ledger = AgentLedger()
    ledger.seen(run("a", source="sandbox", group="g"), 0.0)
    ledger.seen(run("b", source="sandbox", group="h", tools=b'[{"name": "x"}]'), 0.0)
    ledger.seen(run("c", source="probe"), 0.0)
    assert (only(ledger).agent, only(ledger).label, only(ledger).runs) == (SANDBOX, "the sandbox", 2)
    ledger.seen(run("d", "gone"), 0.0)
    ledger.dropped("d", "stale", 0.0)
    assert len(ledger.save(2 * PERIOD - 1)) == 2
    assert list(ledger.save(2 * PERIOD)) == [SANDBOX], "runs of it are under way"


def test_a_label_names_tenant_role_and_tools_and_nothing_that_cannot_be_printed() -> None:
    tools = json.dumps([{"type": "function", "function": {"name": name}} for name in "abcd"]).encode()
    assert label_of(run("a", tools=tools)) == "default, desk, with a, b, c ..."
    assert label_of(run("a", tenant="ev\x1b[31mil\n" + "x" * 500)).startswith("ev [31mil xxx")
    assert len(label_of(run("a", tenant="x" * 500))) == 100
