"""What the service desk's warm start is shown, and above all what it is never shown."""

import random
import re
from pathlib import Path

import pytest

from actors.experience.lessons import Practice
from adapters.environments.service_desk import grammar
from adapters.environments.service_desk.agents import AGENTS, NO_DRIFT, ROLES, Drift
from adapters.environments.service_desk.desk import Desk
from tests.warmstart.service_demonstrations import (
    DRAWN,
    Demonstration,
    Demonstrator,
    hints,
    lesson,
)
from tests.warmstart.service_oracle import DOES, LOOKS, PREPARES
from tests.warmstart.tool_names import made_tool_name

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def shown() -> list[Demonstration]:
    demonstrator = Demonstrator(random.Random("test"))
    return [demonstrator.demonstrate() for _ in range(2000)]


def said(demonstration: Demonstration) -> str:
    texts = [message["content"] for _, _, messages in demonstration.turns for message in messages]
    return "\n".join([demonstration.hint, demonstration.goal, *texts])


def test_phrases_for_evaluation_are_never_shown(shown: list[Demonstration]) -> None:
    parts = (*grammar.WISHES.values(), grammar.AGAIN, grammar.COMPLAINTS, grammar.OPENERS, grammar.REASONS)
    for part in parts:
        for phrase in part["heldout"]:
            fixed = max(phrase.replace("{at}", "{").replace("{city}", "{").replace("{wish}", "{").split("{"), key=len)
            if len(fixed) < 16 or any(fixed in line for other in parts for line in other["train"]):
                continue  # a piece that a training phrase has too
            assert not [one for one in shown if fixed in said(one)], fixed


def test_tools_have_names_that_occur_once_and_only_with_lessons(shown: list[Demonstration]) -> None:
    made: list[str] = []
    for one in shown:
        fresh = [tool["function"]["name"] for tool in one.tools if tool["function"]["name"] not in ROLES]
        assert one.hint or not fresh
        made += fresh
    long = [name for name in made if len(name) > 4]
    assert len(long) > 800
    assert len(set(long)) > 0.99 * len(long)


def test_with_lessons_the_place_in_the_tool_list_tells_nothing(shown: list[Demonstration]) -> None:
    orders = {tuple(tool["function"]["name"] for tool in one.tools) for one in shown if not one.hint}
    assert orders == {tuple(agent.tools) for agent in AGENTS.values()}
    listed = [tool["function"]["name"] for one in shown if one.hint for tool in one.tools[:1]]
    assert {"lookup_order", "check_policy", "create_refund", "send_label"} <= set(listed)


def test_demonstrations_are_imperfect_without_lessons_and_good_with_them() -> None:
    demonstrator = Demonstrator(random.Random("success"))
    for letter in AGENTS:
        played = [demonstrator.demonstrate(letter, hinted=False).solved for _ in range(300)]
        assert 0.4 < sum(played) / 300 < 0.8
        assert all(demonstrator.demonstrate(letter, hinted=True).solved for _ in range(50))


def test_several_calls_are_made_at_once_and_customers_are_spoken_to(shown: list[Demonstration]) -> None:
    assert any(len(calls) > 1 for one in shown for calls, _, _ in one.turns)
    assert any("?" in text for one in shown for _, text, _ in one.turns)
    assert any(messages[0]["role"] == "user" for one in shown for _, _, messages in one.turns if messages)


@pytest.mark.parametrize("wish", DOES)
def test_a_lesson_names_every_tool_that_has_a_new_name(wish: grammar.Wish) -> None:
    for number in range(200):
        roles = [role for role in (DOES[wish], PREPARES.get(wish), LOOKS.get(wish)) if role]
        drift = Drift(rename={role: f"zoka{at}" for at, role in enumerate(roles)})
        text = lesson(random.Random(number), wish, drift)
        assert text.startswith("\nWhen to use: ")
        assert all(drift.name(role) in text for role in roles), text


def test_lessons_cover_all_that_the_customer_will_want() -> None:
    for number in range(200):
        desk = Desk(f"train-{number}", "O", "train", NO_DRIFT)
        text = hints(random.Random(number), desk, others=0.0)
        assert text.count("When to use") == len(desk.cases)


def test_made_names_are_names_that_engines_take() -> None:
    rng = random.Random(0)
    names = [made_tool_name(rng) for _ in range(1000)]
    assert all(name.replace("_", "").replace(".", "").isalpha() and 3 < len(name) < 20 for name in names)


def test_lessons_are_worded_as_the_rules_word_what_they_draw() -> None:
    for kind, sentence in DRAWN.items():
        practice = Practice(intent="", tool="TOOL", what=kind, other="OTHER", argument="ARGUMENT")
        assert practice.content == sentence.format(tool="TOOL", other="OTHER", argument="ARGUMENT")


def test_a_lesson_of_the_rules_names_each_tool_that_its_wish_needs_and_that_is_gone() -> None:
    rng, words = random.Random(0), set[str]()
    drift = Drift(rename={"create_refund": "zokari", "check_policy": "mirela"})
    drawn = [lesson(rng, "refund", drift, "hello, i want it back for order K4711") for _ in range(400)]
    drawn = [said for said in drawn if "which is gone" in said]
    assert len(drawn) > 60
    for said in drawn:
        assert {"zokari", "mirela"} <= set(re.findall(r"\w+", said))
        assert "lookup_order instead" not in said
        words.update(line.partition("When to use: ")[2].partition(".")[0] for line in said.split("\n")[1:])
    assert {"create refund", "want back order", "refund"} <= words
    assert not any("K4711" in said for said in drawn)


def test_lessons_may_say_nothing_of_what_is_wanted_but_never_leave_out_a_new_name() -> None:
    rng, silent = random.Random(2), 0
    drift = Drift(rename={"orders.cancel": "zokari"})
    desks = [Desk(f"others-{number}", "O", "train", drift) for number in range(400)]
    for desk in (desk for desk in desks if not any(case.wish == "cancel" for case in desk.cases)):
        silent += all("zokari" in line for line in hints(rng, desk).split("\n")[1:])
    assert silent > 20
    assert all("zokari" in hints(rng, desk) for desk in desks if any(case.wish == "cancel" for case in desk.cases))


def test_two_wishes_that_need_the_same_tool_have_one_lesson_of_it() -> None:
    rng, twice = random.Random(1), 0
    for number in range(600):
        desk = Desk(f"twice-{number}", "A", "train", Drift(rename={"findUser": "zokari"}))
        lines = hints(rng, desk).split("\n")[1:]
        twice += len(desk.cases) > 1
        assert len({line.partition("Content: ")[2] for line in lines}) == len(lines)
    assert twice > 50
