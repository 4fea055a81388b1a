"""Kinds by meaning, and what is known of each."""

import random
import time
from typing import Any

import msgspec
import numpy as np
import pytest

from actors.kinds.agents import NAMES
from actors.kinds.estimates import HALF, OUTCOMES, Estimates, Piece
from actors.kinds.kinds import Kinds
from actors.kinds.neighbourhoods import Neighbourhoods
from actors.messages import Step, Trajectory
from tests.support.credited import attributed, candidate

REFUNDS = (
    "Please refund the invoice that I paid twice",
    "the customer wants a refund of an invoice, it was paid two times",
    "Could you refund invoice A-17? We paid it twice last week",
)
PASSWORDS = (
    "I cannot log in, please reset my password",
    "reset the password of our new colleague, she cannot log in",
    "password reset needed: log in fails since Monday",
)
TOOLS = b'[{"type":"function","function":{"name":"find"}},{"type":"function","function":{"name":"act"}}]'


def run(number: int, goal: str, outcome: float | None = None, *, role: str = "clerk#1", **fields: Any) -> Trajectory:
    """Of the clerk of tenant t, unless `fields` say otherwise."""
    told = {"tenant": "t", "caller": "", "tools": TOOLS, "steps": (Step(exchange_id="x", role=role),), **fields}
    key = f"{told['tenant']}-{told['caller']}-{number}"
    return attributed(key, goal=goal, outcome=outcome, **told).trajectory


@pytest.mark.parametrize(
    "goal", ["", "   ", "\ud800 broken", "退款 发票 请", "word " * 300_000, "x" * 2_000_000, "*" * 99]
)
def test_any_goal_has_a_kind_and_takes_no_time(goal: str) -> None:
    places = Neighbourhoods(64)
    began = time.process_time()
    assert places.place(goal, "p") == places.place(goal, "p")
    assert time.process_time() - began < 0.5


def test_an_estimate_is_of_the_agent_and_a_new_one_has_its_tenants() -> None:
    kinds = Kinds()
    for number in range(40):
        kinds.tell(run(number, REFUNDS[number % 3], 1.0))
        kinds.tell(run(1000 + number, PASSWORDS[number % 3], 0.0, role="other#1", tools=b'[{"name":"reset"}]'))
    clerk, new = (kinds.estimate(run(5000, REFUNDS[1], role=role, tools=b"")) for role in ("clerk#1", "new#1"))
    assert clerk > 0.85
    assert 0.35 < new < 0.65


def test_of_a_run_alone_nothing_is_to_be_expected() -> None:
    kinds, alone = Kinds(), run(1, REFUNDS[0], 1.0)
    kinds.tell(alone)
    assert kinds.estimate(alone) is None


def test_under_a_policy_that_stays_the_expected_advantage_is_zero() -> None:
    """Two thousand runs of three agents of unequal success: outcome less estimate averages to nothing, for each."""
    advantages: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for seed in range(8):
        rng, kinds, runs = random.Random(seed), Kinds(), list[tuple[int, Trajectory]]()
        for number in range(240):
            agent = rng.randrange(3)
            outcome, tools = float(rng.random() < (0.9, 0.5, 0.1)[agent]), b'[{"name":"t%d"}]' % agent
            runs.append((agent, run(number, f"{REFUNDS[0]} {number}", outcome, role=f"a{agent}#1", tools=tools)))
            kinds.tell(runs[-1][1])
        for agent, told in runs[-60:]:
            advantages[agent].append((told.outcome or 0.0) - kinds.estimate(told))
    for agent, own in advantages.items():
        # Outcomes of one seed share their estimates: the error is that of the means by seed, and this allows three.
        assert abs(np.mean(own)) < 3 * 0.5 / np.sqrt(len(own)) + 0.02, (agent, np.mean(own))


def test_what_the_policy_was_long_ago_counts_less() -> None:
    estimates = Estimates()
    for version in range(1, 9):
        estimates.trained(candidate(version, metrics={"kl_update": HALF}))
    path = ("t", "a")
    for number in range(20):
        estimates.tell(Piece(f"old{number}", "t", "a", path, 0.0, 0))
        estimates.tell(Piece(f"new{number}", "t", "a", path, 1.0, 8))
    then, now = estimates.estimate(path, version=0), estimates.estimate(path, version=8)
    assert then < 0.1
    assert now > 0.9


def test_one_party_of_five_does_not_set_what_others_are_measured_against() -> None:
    kinds, honest = Kinds(), Kinds()
    rng = random.Random(3)
    for number in range(60):
        for party in "abcd":
            told = run(number, REFUNDS[number % 3], float(rng.random() < 0.7), caller=party)
            kinds.tell(told)
            honest.tell(told)
        for extra in range(4):
            kinds.tell(run(10 * number + extra, REFUNDS[number % 3], 0.0, caller="liar"))
    asked = run(999, REFUNDS[0], caller="a")
    assert abs(kinds.estimate(asked) - honest.estimate(asked)) < 0.12


def test_runs_that_saw_lessons_are_an_arm_of_their_own() -> None:
    kinds = Kinds()
    for number in range(30):
        kinds.tell(run(number, REFUNDS[0], 0.0))
        kinds.tell(run(100 + number, REFUNDS[0], 1.0, experience_ids=("l",)))
    assert kinds.estimate(run(999, REFUNDS[0])) < 0.2
    assert kinds.estimate(run(999, REFUNDS[0], experience_ids=("l",))) > 0.8


@pytest.mark.parametrize(
    ("role", "tools"),
    [
        ("clerk#2", TOOLS),
        ("role#77777777", TOOLS),
        ("clerk#3", TOOLS.replace(b"]", b',{"type":"function","function":{"name":"more"}}]')),
    ],
    ids=["prompt edited", "prompt replaced", "tool added"],
)
def test_an_agent_that_is_renamed_keeps_what_is_known_of_it(role: str, tools: bytes) -> None:
    kinds = Kinds()
    for number in range(30):
        kinds.tell(run(number, REFUNDS[number % 3], 0.0))
        kinds.tell(run(100 + number, PASSWORDS[number % 3], 0.0))
        kinds.tell(run(200 + number, REFUNDS[0], 1.0, role="other#1", tools=b'[{"name":"look"}]'))
    renamed = run(999, PASSWORDS[0], 0.0, role=role, tools=tools)
    assert kinds.estimate(renamed) < 0.2
    kinds.tell(renamed)
    assert len(kinds.agents) == 2


def test_another_agent_with_a_like_name_is_another() -> None:
    kinds = Kinds()
    kinds.tell(run(1, REFUNDS[0], 1.0, role="assistant#1"))
    kinds.tell(run(2, REFUNDS[0], 1.0, role="assistant#2", tools=b'[{"name":"weather"},{"name":"news"}]'))
    kinds.tell(run(3, REFUNDS[0], 1.0, role="assistant#1", tenant="other"))
    assert len(kinds.agents) == 3


def test_two_agents_with_the_same_tools_are_two_if_each_says_who_it_is() -> None:
    kinds = Kinds()
    for number in range(20):
        kinds.tell(run(number, REFUNDS[0], 1.0, role="planner#1"))
        kinds.tell(run(100 + number, REFUNDS[0], 0.0, role="worker#1"))
    planner, worker = (kinds.estimate(run(999, REFUNDS[0], role=role)) for role in ("planner#2", "worker#2"))
    assert planner > 0.8
    assert worker < 0.2


def test_a_restart_keeps_everything() -> None:
    kinds, again = Kinds(), Kinds()
    rng = random.Random(5)
    for number in range(50):
        kinds.tell(run(number, rng.choice(REFUNDS + PASSWORDS), float(rng.random() < 0.5), caller=rng.choice("abcde")))
    again.load(kinds.to_save() or b"")
    assert kinds.to_save() is None, "nothing new"
    asked = [run(999, goal, caller="a") for goal in (*REFUNDS, *PASSWORDS, "something else")]
    assert [again.estimate(one) for one in asked] == [kinds.estimate(one) for one in asked]


def test_a_correction_changes_what_a_run_counts_for_and_a_drift_forgets_its_agent_alone() -> None:
    kinds = Kinds()
    for outcome in (0.0, 1.0):
        for number in range(10):
            kinds.tell(run(number, REFUNDS[0], outcome))
            kinds.tell(run(number, REFUNDS[0], 0.0, tenant="other"))
        assert kinds.estimate(run(99, REFUNDS[1])) == pytest.approx(outcome, abs=0.2)
        assert len(kinds.estimates) == 20
    kinds.drifted({"agent": "t/clerk#1"})
    assert kinds.estimate(run(99, REFUNDS[0])) is None
    assert kinds.estimate(run(99, REFUNDS[0], tenant="other")) is not None
    assert len(kinds.estimates) == 10


@pytest.mark.parametrize("data", [b"", b"\xc1", b"nonsense", msgspec.msgpack.encode({"agents": 1})])
def test_a_state_that_cannot_be_read_is_none(data: bytes) -> None:
    kinds = Kinds()
    kinds.tell(run(1, REFUNDS[0], 1.0))
    kinds.load(data)
    assert len(kinds.estimates) == 1


def test_a_flood_of_agents_goals_and_parties_is_bounded() -> None:
    kinds = Kinds()
    for number in range(30):
        kinds.tell(run(number, REFUNDS[number % 3], 1.0, tenant="quiet"))
    for number in range(4500):
        tools = b'[{"name":"t%d"}]' % number
        goal = f"{number:x}a zz{number:x} qq{number * 7:x}"
        kinds.tell(run(number, goal, 0.0, tenant="loud", caller=f"k{number}", role=f"r#{number}", tools=tools))
    assert len(kinds.agents) <= NAMES
    assert len(kinds.estimates) <= OUTCOMES
    assert kinds.estimate(run(999, REFUNDS[0], tenant="quiet")) > 0.8
    assert len(kinds.to_save() or b"") < 4_000_000
