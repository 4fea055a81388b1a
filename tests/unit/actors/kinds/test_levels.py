"""The kind of a goal, at the level where enough is known."""

import random

import msgspec

from actors.kinds.clusters import cluster_of
from actors.kinds.levels import ENOUGH, KNOWN, PLACES, REST, Levels
from actors.messages import Trajectory
from tests.simulation.words import bfcl
from tests.unit.actors.kinds.test_kinds import run

ASKED = (
    "Please refund the invoice that I paid twice",
    "the customer wants a refund of an invoice, it was paid two times",
    "Could you refund this invoice? We paid it twice last week",
    "an invoice was paid twice, refund it",
    "refund for a double paid invoice please",
    "I paid an invoice twice and need the refund",
    "how do I get a refund of the invoice that we paid two times",
    "my invoice was paid twice: refund!",
)


def told(*runs: Trajectory) -> Levels:
    levels = Levels()
    for one in runs:
        levels.tell(one)
    return levels


def test_a_goal_that_comes_again_with_other_names_is_a_kind_by_itself() -> None:
    goals = [f"find a flight from Oslo to:X{n}" for n in range(ENOUGH)]
    others = [f"find a cheap hotel near the flight from Oslo to:X{n}" for n in range(ENOUGH)]
    levels = told(
        *(run(n, goal) for n, goal in enumerate(goals)), *(run(99 + n, goal) for n, goal in enumerate(others))
    )
    assert levels.kind("find a flight from Rome to:Y") == cluster_of(goals[0])
    assert levels.kind("find a cheap hotel near the flight from Rome to:Y") == cluster_of(others[0])


def test_what_never_comes_twice_is_of_the_kind_of_what_means_the_same() -> None:
    levels = told(*(run(n, goal) for n, goal in enumerate(ASKED)))
    assert len({levels.kind(goal) for goal in ASKED}) == 1
    assert levels.kind("we have paid this invoice twice, a refund please") == levels.kind(ASKED[0])
    assert levels.kind("reset my password") != levels.kind(ASKED[0])


def test_before_enough_is_known_all_is_the_rest_and_a_little_more_makes_a_kind() -> None:
    levels = told(*(run(n, goal) for n, goal in enumerate(ASKED[:-1])))
    assert {levels.kind(goal) for goal in ASKED} == {REST}
    assert len({levels.alike(goal) for goal in ASKED}) == 1, "they are known to mean the same"
    levels.tell(run(99, ASKED[-1]))
    assert levels.kind(ASKED[0]) != REST


def test_strings_that_nobody_else_sends_are_one_kind_however_many_they_are() -> None:
    rng = random.Random(1)
    odd = ["".join(rng.choices("bcdfghklmnprstvwz", k=9)) for _ in range(3000)]
    honest = [run(n, goal) for n, goal in enumerate(ASKED)]
    levels = told(*(run(n, goal, caller="stranger", role="odd#1") for n, goal in enumerate(odd)), *honest)
    assert {levels.kind(goal) for goal in odd} == {REST}
    assert {levels.kind(goal, "t/odd#1") for goal in odd} == {"agent t/odd#1"}, "who is known is known at least"
    assert levels.kind(ASKED[0]) not in (REST, *map(levels.kind, odd))


def test_a_flood_of_one_party_pushes_out_no_kind_of_others() -> None:
    levels = told(*(run(n, goal, caller="quiet") for n, goal in enumerate(ASKED)))
    kind = levels.kind(ASKED[0])
    for number in range(3 * KNOWN):
        words = f"{number:x}zq {number * 7919:x}wv".translate(str.maketrans("0123456789", "ghijklmnop"))
        levels.tell(run(number, words, caller="loud", role=f"odd#{number}"))
    assert levels.kind(ASKED[0]) == kind != REST
    assert len(msgspec.msgpack.encode(levels.state())) < 200 * KNOWN + 1000 * PLACES


def test_asking_learns_nothing() -> None:
    rng = random.Random(2)
    goals = [rng.choice(bfcl()) for _ in range(600)]
    asked, silent = Levels(), Levels()
    for number, goal in enumerate(goals):
        for other in goals[: number % 3]:
            asked.kind(other)
        asked.tell(run(number, goal))
        silent.tell(run(number, goal))
    assert [asked.kind(goal) for goal in bfcl()] == [silent.kind(goal) for goal in bfcl()]
    assert len({silent.kind(goal) for goal in bfcl()}) > 5
