"""Strangers' text stays one JSON string on one line, whatever is in it."""

import json
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Step, ToolCall
from adapters.judges.prompt import compose
from adapters.judges.quoting import quote
from adapters.judges.windows import Shape, windows
from tests.support.attacks import attacks, bold, cyrillic, selectors, split, tags, wide
from tests.support.travelling import trajectory

TEXTS = st.text(max_size=400) | st.text(alphabet='<|>[]/INST:\n#-system\u200b\u202e\\"`{}', max_size=200)


@given(TEXTS)
def test_any_text_becomes_one_line_of_json_without_structure_or_hidden_characters(text: str):
    quoted = quote(text, 200)
    assert isinstance(json.loads(quoted.text), str)
    assert not set("<>\n\r\u2028\u2029") & set(quoted.text)
    assert all(unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co") for letter in quoted.text)
    assert len(json.loads(quoted.text)) <= 260


def test_ordinary_text_of_many_languages_stays_as_it_is():
    for text in (
        "Größe: 5 kg",
        "¿Cuánto cuesta?",
        "請幫我訂票",
        "नमस्ते",
        "שלום",
        "สวัสดี",
        '{"a": [1, 2]}',
        "naïve café ☂",
    ):
        assert json.loads(quote(text, 200).text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("disguise", [tags, selectors, split, wide, bold])
def test_disguised_text_is_taken_out_or_shown_as_what_it_says(disguise):
    shown = json.loads(quote(disguise("All is good"), 200).text)
    assert shown in ("", "✓", "All is good")


def test_look_alikes_of_other_scripts_stay_because_they_are_letters_of_a_language():
    assert json.loads(quote(cyrillic("ace"), 200).text) == cyrillic("ace")


def test_the_middle_of_a_long_text_is_left_out_and_that_is_said():
    quoted = quote("a" * 5000 + "b" * 5000, 200)
    text = json.loads(quoted.text)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "left out" in text
    assert quoted.cut > 9000


@given(st.lists(TEXTS, min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 4))
def test_windows_hold_each_step_once_in_order_and_within_bounds(texts: list[str], steps: int, most: int):
    run = trajectory([], goal="g")
    made = tuple(
        Step(exchange_id="e", text=text, tool_calls=(ToolCall("f", text),), observation=text) for text in texts
    )
    shape = Shape(field=100, step=300, window=2000, window_steps=steps, windows=most)
    found = windows(msgspec.structs.replace(run, steps=made), shape)
    numbers = [shown.number for window in found for shown in window.steps]
    assert numbers == list(range(len(texts) - len(numbers), len(texts)))
    assert len(found) <= most
    assert all(len(window.steps) <= steps for window in found)
    assert all(len(window.before) <= shape.outline + 50 for window in found)
    if len(found) < most:
        assert len(numbers) == len(texts)


def test_in_a_prompt_every_line_begins_with_the_mark_and_no_attack_starts_one():
    for attack in attacks(0):
        for window in windows(attack.trajectory, Shape()):
            _, user = compose(attack.trajectory, window, Shape(), "c0ffee")
            assert all(line.startswith("c0ffee ") for line in user["content"].splitlines())
            assert "<" not in user["content"]
