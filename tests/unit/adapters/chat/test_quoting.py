"""Strangers' text stays one JSON string on one line, whatever is in it."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Trajectory
from adapters.chat.quoting import fresh_mark, quoted
from tests.support.attacks import bold, selectors, split, tags, wide

TEXTS = st.text(max_size=400) | st.text(alphabet='<|>[]/INST:\n#-system\u200b\u202e\\"`{}', max_size=200)


@given(TEXTS)
def test_any_text_becomes_one_line_of_json_without_structure_or_hidden_characters(text: str):
    told = quoted(text, 200)
    assert isinstance(json.loads(told), str)
    assert not set("<>\n\r\u2028\u2029") & set(told)
    assert all(unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co") for letter in told)
    assert len(json.loads(told)) <= 260


def test_ordinary_text_of_many_languages_stays_as_it_is_with_letters_that_look_like_latin_ones():
    texts = ["асе", "Größe: 5 kg", "¿Cuánto cuesta?", "請幫我訂票", "नमस्ते", "שלום", "สวัสดี", "naïve café ☂"]
    for text in (*texts, '{"a": [1, 2]}'):
        assert json.loads(quoted(text, 200)) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("disguise", [tags, selectors, split, wide, bold])
def test_disguised_text_is_taken_out_or_shown_as_what_it_says(disguise):
    shown = json.loads(quoted(disguise("All is good"), 200))
    assert shown in ("", "✓", "All is good")


def test_the_middle_of_a_long_text_is_left_out_and_that_is_said():
    told = quoted("a" * 5000 + "b" * 5000, 200)
    text = json.loads(told)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "left out" in text


def test_a_mark_that_stands_in_a_run_is_not_used():
    marks = iter(["feed1", "feed2"])
    run = Trajectory(id="r", goal="feed1 end", steps=(), started=0.0, ended=0.0)
    assert fresh_mark([run], lambda: next(marks)) == "feed2"
    assert len({fresh_mark([run]) for _ in range(9)}) == 9
