"""What can be said of an answer by itself, and the judge that prefers by it."""

import pytest

from actors.messages import ToolCall
from actors.ports.answers import Answer, listed_tools, loops, offered, refuses, same_action, valid_calls
from actors.ports.preference import Request
from adapters.judges.conduct import ConductJudge

BOOK = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "required": ["to"]}}}
REQUEST = Request(messages=[{"role": "user", "content": "A flight to Oslo."}], tools=[BOOK])


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


@pytest.mark.parametrize("text", ["Done.", "You cannot cancel this order.", "The flight is booked."])
def test_bad_news_are_no_refusal(text):
    assert not refuses(Answer(text=text))


def test_going_round_in_circles_is_told_from_a_long_answer():
    assert loops(Answer(text="and so on and so forth " * 20))
    assert loops(Answer(text="ha" * 200))
    assert loops(Answer(calls=(ToolCall("book", "{}"),) * 4))
    assert not loops(Answer(text=" ".join(f"step {n} of the plan is to look at flight K{n}" for n in range(30))))
    assert not loops(Answer(text="yes"))


def test_the_same_action_is_told_by_what_is_asked_not_by_how_it_is_written():
    assert same_action(calling("book", '{"a":1,"b":2}'), calling("book", '{"b": 2, "a": 1}'))
    assert same_action(Answer(text="Hi"), Answer(text="Hello"))
    assert not same_action(calling("book", '{"a": 1}'), Answer(text="Hi"))


GOOD = calling("book", '{"to": "Oslo"}')
CASES = [
    (GOOD, calling("buy", '{"to": "Oslo"}'), 1.0),
    (GOOD, calling("book", '{"to": "Rome"}'), 1.0),
    (GOOD, Answer(text="I cannot book flights."), 1.0),
    (Answer(text="When?"), Answer(text="When would you like to leave, if I may ask?"), 1.0),
    (GOOD, calling("book", '{ "to": "Oslo" }'), 0.5),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("first", "second", "wanted"), CASES)
async def test_prefers_the_better_conduct_wherever_it_stands(first, second, wanted):
    judge = ConductJudge()
    assert await judge.prefer(REQUEST, first, second) == wanted
    assert await judge.prefer(REQUEST, second, first) == 1.0 - wanted


@pytest.mark.anyio
async def test_a_call_that_was_made_before_is_worse_than_a_new_one():
    made = {"role": "assistant", "tool_calls": [{"function": {"name": "book", "arguments": '{"to": "Oslo"}'}}]}
    request = Request(messages=[*REQUEST.messages, made], tools=[BOOK])
    assert await ConductJudge().prefer(request, GOOD, Answer(text="Booked.")) == 0.0


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        (b"", []),
        (b"[", []),
        (b"\xff\xfe\xff", []),
        (b'{"name": "book"}', []),
        (b"[" * 100_000, []),
        (b'[{"name": "book"}, "find", null, {}]', [{"name": "book"}, {}]),
    ],
)
def test_a_tool_list_is_what_of_it_can_be_read(tools, found):
    assert listed_tools(tools) == found
