"""Lessons: their one form, and what contrast finds on the travel desk and what it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.experience.lessons import Practice, contrast, lesson_id, read_practice
from actors.messages import Experience
from actors.messages.experience import lessons_text
from actors.tool_results.tool_calls import calls_of
from adapters.environments.travel import Drift
from adapters.environments.travel.drift import Variant
from tests.support.travelling import plays
from tests.warmstart.travel_demonstrations import hints


def lesson(practice: Practice) -> Experience:
    return Experience(id=lesson_id("default", practice), when_to_use=practice.intent, content=practice.content)


CANCEL = Practice(intent="cancel", tool="cancel", before="check_policy")
BOOK = Practice(intent="book", tool="buy", producer="search")


def test_lessons_read_exactly_as_the_warm_start_was_taught():
    desk = Variant.of(Drift(rename={"book": "buy"}))
    assert lessons_text([lesson(CANCEL), lesson(BOOK)]) == "".join("\n" + line for line in hints("C", desk))
    needs = Variant.of(Drift(precondition={"book": "hold"}))
    assert lessons_text([lesson(Practice(intent="book", tool="book", before="hold"))]) == "\n" + hints("A", needs)[0]
    assert lessons_text([]) == ""


names = st.from_regex(r"[a-z]{1,8}(_[a-z]{1,5})?", fullmatch=True)


@given(intent=names, tool=names, before=st.just("") | names, producer=st.just("") | names)
def test_a_lesson_can_be_read_back(intent: str, tool: str, before: str, producer: str):
    practice = Practice(intent=intent, tool=tool, before=before, producer="" if before else producer)
    assert read_practice(lesson(practice)) == practice


@pytest.mark.parametrize("content", ["", "be careful", "before_book:hold then cancel:drop", "search then pay:buy"])
def test_what_is_not_in_our_form_is_no_practice(content: str):
    assert read_practice(Experience(id="e", when_to_use="book", content=content)) is None


def test_after_a_rename_contrast_speaks_of_the_new_tool_under_the_old_word():
    drift = Drift(rename={"cancel": "drop"}, precondition={"cancel": "confirm"})
    runs = [played.trajectory for played in plays(120, drift=drift)]
    found = contrast(runs, {"drop": "cancel"})
    assert "before_cancel:confirm then cancel:drop" in [one.practice.content for one in found]


@given(st.integers(0, 10_000))
def test_contrast_never_names_a_tool_that_nobody_called(seed: int):
    runs = [played.trajectory for played in plays(12, seed=seed)]
    called = {made.tool for run in runs for made in calls_of(run)}
    for found in contrast(runs, support=1):
        assert found.practice.tools <= called
