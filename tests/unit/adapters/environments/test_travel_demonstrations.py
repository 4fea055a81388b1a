"""What the warm start is shown, and above all what it is never shown."""

import random
import re

import pytest

from adapters.environments.travel import Drift, words
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import BASE, PARAMETERS, Variant
from tests.warmstart.travel_demonstrations import Demonstration, Demonstrator, hints, turns_before

HELD_OUT = {*words.HELD_OUT, *words.HELD_OUT_PAIRS}


@pytest.fixture(scope="module")
def shown() -> list[Demonstration]:
    demonstrator = Demonstrator(random.Random("test"))
    return [demonstrator.demonstrate() for _ in range(3000)]


def test_held_out_names_are_never_demonstrated_hinted_or_listed(shown: list[Demonstration]) -> None:
    for demonstration in shown:
        seen = [demonstration.hint, demonstration.goal, *(text for _, text in demonstration.turns)]
        seen += [tool["function"]["name"] for tool in demonstration.tools]
        seen += [f"{call.name} {call.arguments}" for call, _ in demonstration.turns]
        assert not HELD_OUT & set(re.findall(r"[a-z_]+", " ".join(seen)))


def test_held_out_names_are_in_no_pool_that_names_are_drawn_from() -> None:
    assert not set(words.HELD_OUT) & {*words.VERBS, *words.SUFFIXES, *PARAMETERS}


def test_the_drifts_of_the_recipe_use_held_out_names_only() -> None:
    from tests.warmstart.courses import DRIFTS

    for drift, _ in DRIFTS.values():
        assert {*drift.rename.values(), *drift.precondition.values()} <= HELD_OUT


def test_hinted_demonstrations_draw_from_many_names(shown: list[Demonstration]) -> None:
    named = {tool["function"]["name"] for one in shown if one.hint for tool in one.tools}
    assert len(set(words.VERBS) & named) > 200


def test_most_invented_names_are_made_for_one_demonstration_and_hold_none_that_is_held_out(
    shown: list[Demonstration],
) -> None:
    words_of_names = {*words.VERBS, *(verb + suffix for verb in words.VERBS for suffix in words.SUFFIXES), *PARAMETERS}
    named = [tool["function"]["name"] for one in shown if one.hint for tool in one.tools]
    made = [name for name in named if name not in words_of_names]
    assert len(made) > 1.5 * sum(one.hint != "" for one in shown)
    assert len(set(made)) > 0.9 * len(made)
    assert not [name for name in made for word in words.HELD_OUT if word in name]


def test_the_turns_before_a_tool_are_right_and_do_not_call_it() -> None:
    variant = Variant.of(Drift(rename={"cancel": "zokari"}))
    desk = Desk("before", "B", variant)
    turns = turns_before(desk, "zokari")
    assert [call.name for call, _ in turns] == ["find_person", "list_orders", "check_policy"]
    assert not [answer for _, answer in turns if "error" in answer]
    with pytest.raises(ValueError, match="no call of 'book' is needed"):
        turns_before(Desk("before", "B", variant), "book")


def test_without_a_hint_only_the_distractor_is_renamed(shown: list[Demonstration]) -> None:
    for demonstration in shown:
        listed = [tool["function"]["name"] for tool in demonstration.tools]
        if not demonstration.hint:
            assert {role for role, name in zip(PARAMETERS, listed, strict=True) if role != name} <= {"weather"}


def test_demonstrations_are_imperfect_without_hints_and_good_with_them() -> None:
    demonstrator = Demonstrator(random.Random("success"))

    def rate(family: str, hinted: bool) -> float:
        return sum(demonstrator.demonstrate(family, hinted).solved for _ in range(300)) / 300

    for family in "ABC":
        assert 0.25 < rate(family, False) < 0.75
        assert rate(family, True) > 0.9


def test_the_same_seed_demonstrates_the_same() -> None:
    one, other = Demonstrator(random.Random(5)), Demonstrator(random.Random(5))
    assert [one.demonstrate() for _ in range(20)] == [other.demonstrate() for _ in range(20)]


@pytest.mark.parametrize(
    ("kinds", "variant", "lines"),
    [
        ("A", BASE, ("When to use: book. Content: search then book:book.",)),
        ("B", BASE, ("When to use: cancel. Content: before_cancel:check_policy then cancel:cancel.",)),
        ("A", Variant.of(Drift(rename={"book": "buy"})), ("When to use: book. Content: search then book:buy.",)),
        (
            "A",
            Variant.of(Drift(precondition={"book": "hold"})),
            ("When to use: book. Content: before_book:hold then book:book.",),
        ),
        (
            "C",
            Variant.of(Drift(rename={"book": "buy", "cancel": "drop"})),
            (
                "When to use: cancel. Content: before_cancel:check_policy then cancel:drop.",
                "When to use: book. Content: search then book:buy.",
            ),
        ),
        ("D", BASE, ("When to use: find. Content: search then finish.",)),
    ],
)
def test_hints_have_one_form(kinds: str, variant: Variant, lines: tuple[str, ...]) -> None:
    assert hints(kinds, variant) == lines
