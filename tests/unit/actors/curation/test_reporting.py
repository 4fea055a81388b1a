"""What people are told: what learning waits for, and of each agent whether it is learned from, why not, what to do."""

import json
import re
from typing import Any

import msgspec
import pytest

from actors.curation.remedies import _REMEDIES, FEEDBACK, calls_that_train, counted, tell
from actors.curation.waiting import Evidence, Facts, Heard, Learning, waiting
from actors.messages import BatchOrder, Candidate, Directive, Step, Trajectory
from actors.store import Dropped, Store
from actors.store.agents import LEARNED, READY, SANDBOX, TRAINING, UNREPORTED, AgentView, label_of
from actors.store.outcomes import GIVEN_UP
from daemon.settings.reading import defaults
from tests.support.credited import attributed

NOW = 1_800_000_000.0
"""2027-01-15 08:00 UTC, a Friday."""


def heard(ago: float = 1800.0, *more: Candidate | Directive) -> Heard:
    """The last update so long ago; the daemon runs for a day."""
    made = Heard(NOW - 86_400.0)
    for one in (answer(12, ago), *more):
        if isinstance(one, Candidate):
            made.answer(one)
        else:
            made.directive(one)
    return made


def answer(version: int, ago: float, **fields: Any) -> Candidate:
    return Candidate(id="c", version=version, parent=0, path="", files=(), manifest="", created=NOW - ago, **fields)


def directive(kind: Any, ago: float) -> Directive:
    return Directive(id="d", kind=kind, reason="incident 4711", origin="o", created=NOW - ago)


def told(**fields: Any) -> Learning:
    """Production alone; half an hour since the last update."""
    values: dict[str, Any] = {
        "now": NOW, "heard": heard(), "head": 12, "fresh_needed": 8, "fresh": 5, "unreported": 230, "reported": 99,
        "last_run": NOW - 10, "serving": [10], "lead": 2,
    }  # fmt: skip
    return waiting(Facts(**{**values, **fields}))


LIMIT = {"fresh": 0, "behind": 20, "lead": 4, "head": 14, "heard": heard(7200.0)}
VERDICT = Evidence(version=14, since=NOW - 600, have=12, need=32, reason="12 of 32 outcomes")
TRIAL = Evidence(version=14, since=NOW - 600, have=10, need=32, until=NOW + 3000)
AHEAD = "20 reported runs wait: the learner (v14) is 4 updates ahead of v10."
SHORT = "5 of 8 outcomes for the next update since 07:30 UTC; 230 runs have none yet."


@pytest.mark.parametrize(
    ("facts", "state", "waits_for", "sentence", "remedy"),
    [
        ({}, "moving", "outcomes", f"v12 was trained at 07:30 UTC. {SHORT}", ""),
        ({"heard": heard(3601.0)}, "waiting", "outcomes", "5 of 8", "report how runs went: POST /v1/feedback"),
        ({"heard": Heard(NOW - 60.0), "fresh": 0, "reported": 0}, "waiting", "outcomes", "0 of 8 outcomes for the next "
         "update since 07:59 UTC; 230 runs have none yet; no outcome was ever reported.", "report how runs went"),
        ({"heard": Heard(NOW - 60.0), "last_run": 0.0}, "waiting", "runs", "No run has come since 07:59 UTC.", "point"),
        ({"last_run": NOW - 8 * 3600, "heard": heard(9 * 3600.0)}, "waiting", "runs", "5 of 8 outcomes for the next "
         "update since 2027-01-14 23:00 UTC; 230 runs have none yet; no run has ended since 00:00 UTC.", ""),
        ({"reported": 0, "unreported": 0, "fresh": 0, "dropped": {"temperature 0": 200, "held out": 30},
          "heard": heard(7200.0)}, "waiting", "runs",
         "Runs come, and none may be trained on: 200 were sampled at temperature 0.", "let the agent sample at"),
        ({"heard": heard(99_000.0, directive("freeze", 90_000), directive("freeze", 9)),
          "ordered": NOW - 9999}, "frozen", "thaw", "Frozen since 2027-01-14 07:00 UTC: incident 4711.",
          "evolved thaw"),
        ({"heard": heard(9000.0, directive("freeze", 8000.0), directive("thaw", 60.0))}, "waiting", "outcomes",
         "5 of 8 outcomes for the next update since 07:59 UTC", ""),
        ({"ordered": NOW - 300, "ordered_runs": 8, "heard": heard(9000.0)}, "waiting", "learner",
         "The learner has 8 runs to train on since 07:55 UTC.", ""),
        ({"ordered": NOW - 1200, "heard": heard(9000.0)}, "waiting", "learner",
         "The learner has not answered: it has 0 runs to train on since 07:40 UTC.", "see that the learner runs"),
        ({"groups_needed": 8, "groups": 2, "heard": heard(3500.0)}, "moving", "groups",
         "v12 was trained at 07:01 UTC. 2 of 8 groups of the sandbox since 07:01 UTC, and 5 of 8 outcomes.", ""),
        ({"fresh": 8}, "moving", "nothing", "v12 was trained at 07:30 UTC. The next update is being ordered.", ""),
        ({**LIMIT, "verdict": VERDICT}, "waiting", "verdict",
         f"{AHEAD} The verdict on v14 waits since 07:50 UTC: 12 of 32 outcomes.", ""),
        ({**LIMIT, "verdict": msgspec.structs.replace(VERDICT, since=NOW - 3601)}, "waiting", "verdict", AHEAD,
         f'{FEEDBACK}; or decide yourself: evolved promote 14 --force --reason "..."'),
        ({**LIMIT}, "waiting", "verdict", f"{AHEAD} v14 is to be judged.", "see what the actor gatekeeper waits for"),
        ({**LIMIT, "promoted": 14}, "waiting", "trial", f"{AHEAD} v14 passed the gate", "see what the actor swapper"),
        ({**LIMIT, "trial": TRIAL, "verdict": VERDICT}, "waiting", "trial",
         f"{AHEAD} v14 is on trial since 07:50 UTC: 10 of 32 outcomes; it ends at 08:50 UTC at the latest.", ""),
        ({**LIMIT, "lead": None}, "waiting", "learner",
         "The learner stands at v14, which does not come of what serves (v10), and is to go back", "see that"),
    ],
    ids=["few", "slow", "nobody", "no run", "night", "unfit", "frozen", "thawed", "learner", "away",
         "groups", "enough", "verdict", "late verdict", "judged", "promoted", "trial", "branch"],
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
    return AgentView(agent="t/desk", label="t, desk", **fields)


@pytest.mark.parametrize(
    ("agent", "sentence", "change"),
    [
        (view(runs=20, came={LEARNED: 20}), "Learning: 20 of 20 runs ordered changed the weights.", ""),
        (view(runs=56, came={LEARNED: 3}, no_gradient={"zero_advantage": 50, "nothing_to_compare": 3}),
         "Hardly learning: 3 of 56 runs ordered changed the weights; 53 gave no gradient: 50 went as was expected of "
         "them; 3 had nothing to be compared with.", "report outcomes that differ"),
        (view(runs=8, no_gradient={"equal_outcomes": 8}),
         "Not learning: 0 of 8 runs ordered changed the weights; 8 gave no gradient: 8 went as well as all that they "
         "were compared with.",
         "report outcomes that differ"),
        (view(runs=8, came={TRAINING: 8}), "Not learning yet: of 8 runs 8 are being trained on.", ""),
        (view(runs=9, came={READY: 5, UNREPORTED: 4}),
         "Not learning yet: of 9 runs 5 wait for an update; 4 have no outcome yet.", ""),
        (view(runs=1, came={UNREPORTED: 1}), "Not learning yet: of 1 run 1 have no outcome yet.", "report how runs"),
        (view(runs=12, came={"temperature 0": 10, UNREPORTED: 2}),
         "Not learning yet: of 12 runs 10 were sampled at temperature 0; 2 have no outcome yet.",
         "let the agent sample at temperature 1"),
        (view(runs=4, came={"held out": 3, "redacted prompt": 1}),
         "Not learning yet: of 4 runs 3 are kept for the gate's exam; 1 held prompt that was redacted.",
         "send less of such data"),
        (view(runs=3, came={"odd": 3}), "Not learning yet: of 3 runs 3 odd", ""),
    ],
)  # fmt: skip
def test_each_agent_has_its_sentence_and_its_remedy(agent: AgentView, sentence: str, change: str) -> None:
    said = tell(agent)
    assert said.sentence.startswith(sentence)
    assert said.remedy.startswith(change)
    assert bool(said.remedy) == bool(change)


@pytest.mark.parametrize(
    ("calls", "unfit", "sentence", "change"),
    [
        (0, {}, "none yet", ""),
        (40, {}, "all 40", ""),
        (40, {"the lesson moved between turns": 20, "no token ids from /v1/messages": 6},
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


async def agents(store: Store, since: float = 0.0) -> list[AgentView]:
    """Each of whose runs is counted once."""
    found = await store.agents(since)
    for one in found:
        assert one.runs == sum(one.came.values())
    return found


@pytest.mark.promise
@pytest.mark.anyio
async def test_what_came_of_each_run_is_counted_once_by_agent(store_url: str) -> None:
    store = Store(store_url, clock=lambda: 1.0)
    await store.open()
    await store.save([run(key, outcome=None if key == "f" else 1.0) for key in "abcdefg"])
    await store.save([BatchOrder(id="o", path="", sha256="", size=0, trajectories=("a", "b", "c"), created=1.0)])
    await store.save([Dropped(id="d", reason="held out"), Dropped(id="c", reason=GIVEN_UP)])
    (one,) = await agents(store)
    assert (one.agent, one.label) == ("default/desk#1f0c2a9b", "default, desk")
    assert (one.runs, one.reported) == (7, 6)
    assert one.came == {UNREPORTED: 1, READY: 2, TRAINING: 2, "held out": 1, GIVEN_UP: 1}
    assert (one.dropped, one.no_gradient) == ({"held out": 1}, {GIVEN_UP: 1})
    for _ in range(2):
        await store.save([answer(1, 0.0, batch_ids=("o",), no_gradient={"a": "zero_advantage"})])
    (one,) = await agents(store)
    assert one.no_gradient == {"zero_advantage": 1}
    assert one.came == {UNREPORTED: 1, READY: 2, LEARNED: 2, "held out": 1, "zero_advantage": 1}, "late, and it counts"
    assert await agents(store, 1e9) == []
    await store.aclose()


@pytest.mark.anyio
async def test_untrainable_runs_and_their_calls_are_told_apart_by_what_is_wrong_with_them(store_url: str) -> None:
    store = Store(store_url, clock=lambda: 1.0)
    await store.open()
    for key, why_not in (("a", ""), ("b", "temperature 0"), ("c", "redacted prompt"), ("d", ""), ("e", "")):
        await store.save([run(key, trainable=not why_not, why_not=why_not)])
    reasons = zip("abcd", ("held out", "untrainable", "untrainable", "unknown version"), strict=True)
    await store.save([Dropped(id=key, reason=reason) for key, reason in reasons])
    await store.save([run("s", source="sandbox", group="g"), run("p", source="probe")])
    one, sandbox = await agents(store)
    assert one.dropped == {"temperature 0": 1, "redacted prompt": 1, "held out": 1, "unknown version": 1}
    assert one.calls == 5
    assert one.unfit == {"temperature 0": 1, "redacted prompt": 1, "unknown version": 1}
    assert (sandbox.agent, sandbox.label, sandbox.runs) == (SANDBOX, "the sandbox", 1), "a probe is nobody's"
    await store.aclose()


def test_a_label_names_tenant_role_and_tools_and_nothing_that_cannot_be_printed() -> None:
    tools = json.dumps([{"type": "function", "function": {"name": name}} for name in "abcd"]).encode()
    assert label_of(run("a", tools=tools)) == "default, desk, with a, b, c ..."
    assert label_of(run("a", tenant="ev\x1b[31mil\n" + "x" * 500)).startswith("ev [31mil xxx")
    assert len(label_of(run("a", tenant="x" * 500))) == 100
