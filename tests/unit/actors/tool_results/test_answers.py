"""What can be said of an answer by itself."""

import pytest

from actors.messages import ToolCall
from actors.ports.parsed_calls import offered
from actors.tool_results.answers import Answer, loops, refuses, valid_calls

BOOK = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "required": ["to"]}}}


def calling(name: str, arguments: str) -> Answer:
    return Answer(calls=(ToolCall(name, arguments),))


@pytest.mark.parametrize(
    ("answer", "valid"),
    [
        (calling("book", '{"to": "Oslo"}'), True),
        (Answer(text="Where to?"), True),
        (calling("book", "{}"), False),
        (calling("book", '{"to": '), False),
        (calling("book", '["Oslo"]'), False),
        (calling("buy", '{"to": "Oslo"}'), False),
        (Answer(text='<tool_call>{"name": "book"'), False),
    ],
)
def test_valid_calls(answer, valid):
    assert valid_calls(answer, offered([BOOK])) is valid


@pytest.mark.parametrize("text", ["I'm sorry, but no.", "I cannot help with that.", "I won’t do this."])
def test_a_refusal_is_heard(text):
    assert refuses(Answer(text=text))


def test_going_round_in_circles_is_told_from_a_long_answer():
    assert loops(Answer(text="and so on and so forth " * 20))
    assert loops(Answer(text="ha" * 200))
    assert loops(Answer(calls=(ToolCall("book", "{}"),) * 4))
    assert not loops(Answer(text=" ".join(f"step {n} of the plan is to look at flight K{n}" for n in range(30))))
    assert not loops(Answer(text="yes"))
