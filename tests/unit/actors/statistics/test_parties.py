"""The party rule: caps, who is set aside, and windows that nobody floods."""

import math
import random
from collections import Counter
from collections.abc import Collection, Iterator

import pytest

from actors.statistics.parties import CAP, EVIDENCE, binds, in_turn, newest, set_aside, thinned

FOUR = ["a"] * 8 + ["b"] * 8 + ["c"] * 8 + ["d"] * 8


def test_three_parties_do_not_bind_and_nothing_is_thinned() -> None:
    parties = ["a"] * 90 + ["b"] * 5 + ["c"] * 5
    assert not binds(parties)
    assert thinned(parties) == list(range(100))
    assert set_aside(parties, lambda left_out: 1.0) == frozenset()


def test_a_party_with_three_pieces_has_no_evidence() -> None:
    assert not binds(["a"] * 9 + ["b"] * 9 + ["c"] * 9 + ["d"] * (EVIDENCE - 1))
    assert binds(["a"] * 9 + ["b"] * 9 + ["c"] * 9 + ["d"] * EVIDENCE)


@pytest.mark.parametrize("flood", [20, 90, 2000])
def test_the_newest_of_a_flood_are_taken_up_to_the_cap(flood: int) -> None:
    parties = ["flood"] * flood + ["a"] * 10 + ["b"] * 10 + ["c"] * 10
    taken = Counter(parties[place] for place in thinned(parties))
    assert taken["flood"] == 15, "a third of 45"
    assert taken["flood"] <= CAP * taken.total()
    assert [taken[name] for name in "abc"] == [10, 10, 10]
    assert thinned(parties)[:15] == list(range(15)), "the newest come first"


@pytest.mark.parametrize("flood", [10, 90, 2000])
def test_a_flood_does_not_push_out_of_the_newest_what_others_have(flood: int) -> None:
    parties = ["flood"] * flood + ["a"] * 10 + ["b"] * 10
    taken = Counter(parties[place] for place in newest(parties, 30, 10_000))
    assert (taken["a"], taken["b"], taken["flood"]) == (10, 10, 10)
    assert newest(parties, 30, 10_000) == sorted(newest(parties, 30, 10_000))


def test_the_newest_are_looked_for_no_further_than_asked() -> None:
    read: list[str] = []

    def endless() -> Iterator[str]:
        while True:
            read.append("flood")
            yield "flood"

    assert newest(endless(), 30, 100) == list(range(30))
    assert len(read) == 30 + 100


def test_each_has_its_turn_and_its_newest_first() -> None:
    assert in_turn(["a", "a", "a", "b", "b", "c"]) == [0, 3, 5, 1, 4, 2]


def test_who_pulls_hardest_either_way_is_set_aside() -> None:
    values = {"a": 0.1, "b": 0.12, "c": 0.9, "d": -0.8, "e": 0.09}

    def estimate(left_out: Collection[str]) -> float:
        kept = [value for party, value in values.items() if party not in left_out]
        return sum(kept) / len(kept)

    assert set_aside([party for party in values for _ in range(8)], estimate) == {"c", "d"}


def test_an_estimate_that_a_party_carries_alone_says_nothing_of_it() -> None:
    aside = set_aside(FOUR, lambda left_out: math.nan if "a" in left_out else len(left_out) + ord(*left_out))
    assert aside == {"b", "d"}


def test_trimming_both_sides_is_unbiased_and_its_spread_is_within_what_is_left() -> None:
    rng, errors, naive = random.Random(5), list[float](), list[float]()
    for _ in range(400):
        sums = {party: sum(rng.random() < 0.5 for _ in range(16)) for party in "abcdef"}

        def estimate(left_out: Collection[str], sums: dict[str, int] = sums) -> float:
            kept = [value for party, value in sums.items() if party not in left_out]
            return sum(kept) / (16 * len(kept))

        aside = set_aside([party for party in sums for _ in range(16)], estimate)
        errors.append(estimate(aside) - 0.5)
        naive.append(math.sqrt(0.25 / 64))
    assert abs(sum(errors) / len(errors)) < 0.006
    assert math.sqrt(sum(error**2 for error in errors) / len(errors)) < naive[0]
