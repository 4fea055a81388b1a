"""Poisoning defence: one hand does not write the lessons of all, nor crowd the others out."""

import random
from collections import Counter

from actors.experience.lessons import contrast
from actors.experience.origins import Origins, whose
from actors.experience.window import Window
from actors.messages import Trajectory
from tests.support.travelling import call, trajectory

FIND = (call("find", name="Mia"), '{"pid": "K1"}')
LEAK = (call("leak", pid="K1"), '{"ok": "yes"}')
BOOK = (call("book", pid="K1"), '{"ref": "Q1"}')
REFUSED = (call("book", pid="K1"), '{"error": "leak first"}')
END = (call("finish", answer="done"), "{}")


def run(id: str, caller: str = "", *, works: bool = True, **fields: object) -> Trajectory:
    """A booking; one that works only because `leak` was called, and one that was refused without."""
    turns = [FIND, LEAK, BOOK, END] if works else [FIND, REFUSED, END]
    return trajectory(turns, id=id, goal="Book for Mia.", caller=caller, **fields)


def poisoned(count: int, caller: str, **fields: object) -> list[Trajectory]:
    return [run(f"{caller}-{n}", caller, works=n % 2 == 0, **fields) for n in range(count)]


def seen(*runs: Trajectory) -> Origins:
    origins = Origins()
    for one in runs:
        origins.see(one)
    return origins


def test_with_one_key_conversations_are_origins_with_several_keys_are():
    alone = [run("a", "k1"), run("b", "k1")]
    assert len({seen(*alone).of(one) for one in alone}) == 2
    several = [*alone, run("c", "k2")]
    assert len({seen(*several).of(one) for one in several}) == 2


def test_what_goes_on_from_a_closed_conversation_is_the_same_origin():
    origins = Origins()
    assert origins.of(run("b", continues="a")) == origins.of(run("a"))


def test_our_own_rollouts_are_independent_of_each_other_whatever_keys_there_are():
    origins = seen(run("a", "k1"), run("b", "k2"))
    assert origins.of(run("s", source="sandbox")) != origins.of(run("r", source="sandbox"))
    assert origins.party(run("s", source="sandbox")) == ""


def test_calls_without_a_key_are_one_party_where_there_are_keys():
    origins = seen(run("a", "k1"), run("b", "k2"))
    assert origins.of(run("c")) == origins.of(run("d"))


def test_a_key_that_writes_nine_tenths_holds_half_of_the_window():
    rng = random.Random(0)
    runs = [run(f"r{n}", "loud" if rng.random() < 0.9 else "quiet") for n in range(2000)]
    made = Window(200, exam=lambda key: False)
    for one in runs:
        made.add(one)
    held = Counter(one.caller for one in made)
    assert len(made) == 200
    assert held["quiet"] >= 99
    assert made.counts["over_share"] > 0
    assert [one.id for one in made if one.caller == "quiet"][-1] == [r.id for r in runs if r.caller == "quiet"][-1]


def refuted(count: int, caller: str) -> list[Trajectory]:
    """Bookings that worked without `leak`."""
    return [
        trajectory([FIND, BOOK, END], id=f"{caller}-{n}", goal="Book for Mia.", caller=caller) for n in range(count)
    ]


def told(runs: list[Trajectory]) -> list[tuple[str, int]]:
    drawn = contrast(runs, None, seen(*runs).of, whose)
    return [(found.practice.before, found.independent) for found in drawn]


def test_one_of_five_parties_cannot_hide_what_the_others_show():
    honest = [one for key in "abcd" for one in poisoned(10, key)]
    flood = refuted(40, "evil")
    assert told(honest) == [("leak", 2)], "two of four set aside"
    assert told([*honest, *flood]) == [("leak", 3)]
    assert not contrast([*honest, *flood]), "which its runs do where every run is one for itself"


def test_one_of_five_parties_cannot_show_what_the_others_do_not_see():
    honest = [one for key in "abcd" for one in refuted(4, key)]
    flood = poisoned(140, "evil")
    assert [found.practice.before for found in contrast([*honest, *flood])] == ["leak"]
    assert told([*honest, *flood]) == []


def test_below_four_parties_nothing_is_set_aside():
    assert told([one for key in "abc" for one in poisoned(10, key)]) == [("leak", 3)]
