"""Lessons as JSONL: what is written is read, and a file that is not whole is refused with the line at fault."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import OrderRefused
from daemon.experience.transfer import read, write
from tests.support.experience import lesson

words = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), min_size=1, max_size=60).filter(
    lambda text: bool(text.strip())
)


@given(st.lists(st.tuples(words, words), unique=True, max_size=8))
def test_what_is_written_is_read(pairs: list[tuple[str, str]]) -> None:
    lessons = [lesson(str(n), when_to_use=when, content=content) for n, (when, content) in enumerate(pairs)]
    found = read(write(lessons, 1.0), tenants={})
    assert [(item.when_to_use, item.content) for item in found] == pairs
    assert {item.tenant for item in found} <= {"acme"}


def test_tenants_are_mapped_by_name_and_the_others_by_the_star() -> None:
    text = write([lesson("a"), lesson("b", tenant="zeta"), lesson("c", tenant="eta")], 1.0)
    assert [item.tenant for item in read(text, tenants={"acme": "beta"})] == ["beta", "zeta", "eta"]
    assert [item.tenant for item in read(text, tenants={"acme": "beta", "*": "all"})] == ["beta", "all", "all"]


def test_two_tenants_lessons_with_the_same_words_cannot_become_one() -> None:
    text = write([lesson("a"), lesson("a", id="b", tenant="zeta")], 1.0)
    assert len(read(text, tenants={})) == 2
    with pytest.raises(OrderRefused, match="line 3: the same lesson as line 2"):
        read(text, tenants={"*": "one"})


def changed(number: int, **fields: object) -> str:
    """Two lessons, one line of which was tampered with."""
    lines = write([lesson("a"), lesson("b")], 1.0).splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **fields})
    return "\n".join(lines) + "\n"


GOOD = write([lesson("a"), lesson("b")], 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: no header"),
        ("not json\n", "line 1: no header"),
        (GOOD.partition("\n")[2], "line 1: no header"),
        (changed(1, format="something"), "line 1: format 'something'"),
        (changed(1, schema=2), "schema 2; this evolved reads"),
        (changed(1, count=10_001), "line 1: 10,001 lessons"),
        (changed(1, count=3), "line 1 says 3 lessons and there are 2"),
        (GOOD[: GOOD.rindex('{"when_to_use"')], "line 1 says 2 lessons and there are 1"),
        (GOOD + "\n", "line 4: "),
        (GOOD[:-20], "line 3: "),
        (changed(2, content="do evil"), "the digest in line 1"),
        (changed(3, content=" "), "line 3: content is empty"),
        (changed(3, content="x" * 16_001), "line 3: content has 16,001"),
        (changed(3, content="a\x00b"), "line 3: content has a NUL"),
        (changed(2, kind="song"), "line 2: Invalid enum value 'song'"),
        (changed(2, guided="many"), "line 2: Expected `array`"),
        (changed(2, password="x"), "line 2: Object contains unknown field `password`"),
        (changed(2, sources=["s"] * 1001), "line 2: sources has 1001"),
        (changed(2, detail={"x": "y" * 64_000}), "line 2: detail has more"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_the_line_at_fault(text: str, said: str) -> None:
    with pytest.raises(OrderRefused) as caught:
        read(text, tenants={})
    assert said in str(caught.value)
