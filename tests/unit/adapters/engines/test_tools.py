"""Hermes tool calls, whole and in pieces."""

import itertools

import pytest

from adapters.engines.embedded.tools import Reader, parse

SEARCH = '<tool_call>\n{"name": "search", "arguments": {"to": "Ålesund", "n": 1}}\n</tool_call>'
BOOK = '<tool_call>\n{"name": "book", "arguments": {}}\n</tool_call>'
MALFORMED = [
    '<tool_call>{"name": "search"}</tool_call>',
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    "<tool_call>search(Oslo)</tool_call>",
    '<tool_call>{"name": "search", "arguments": {"to": ',
    "<tool_call>[1]</tool_call>",
    "<tool_call></tool_call>",
    "<tool_call>",
]


def ids():
    numbers = itertools.count()
    return lambda: f"call-{next(numbers)}"


def test_a_call_that_is_not_closed_counts_as_it_was_written():
    content, calls = parse(SEARCH.removesuffix("</tool_call>"), ids())
    assert content is None
    assert [call["function"] for call in calls] == [{"name": "search", "arguments": '{"to": "Ålesund", "n": 1}'}]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_call_stays_content(text):
    assert parse(f"So: {text}", ids()) == (f"So: {text}", [])


def read(text, size):
    reader = Reader(ids())
    content, calls = "", []
    for start in range(0, len(text), size):
        more, found = reader.add(text[start : start + size])
        content, calls = content + more, calls + found
    more, found = reader.add("", last=True)
    return content + more, calls + found


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    "text", ["hello < there", "a <tool", f"Look. {SEARCH}\n{BOOK}", SEARCH.removesuffix("</tool_call>"), *MALFORMED]
)
def test_pieces_add_up_to_the_whole(text, size):
    content, calls = parse(text, ids())
    assert read(text, size) == (content or "", [{"index": i, **call} for i, call in enumerate(calls)])
