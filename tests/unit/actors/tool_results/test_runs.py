"""What is read from a trajectory: errors, invalid calls, questions, circles, lengths."""

import json

import pytest

from actors.messages import Step, TokenRow, ToolCall, Trajectory, pack_array
from actors.ports.parsed_calls import fault, offered
from actors.tool_results.runs import asks, call_failed, invalid, lateness, loops, summarize, tool_names

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "seats": {"type": "integer"}},
    "required": ["to"],
    "additionalProperties": False,
}
TOOLS = json.dumps(
    [{"type": "function", "function": {"name": "book", "parameters": SCHEMA}}, {"name": "find"}]
).encode()


def trajectory(*steps: Step, **fields: object) -> Trajectory:
    return Trajectory(id="t", steps=steps, tools=TOOLS, started=1.0, ended=2.0, goal="Book to Oslo", **fields)


def test_a_trajectory_in_brief() -> None:
    run, names = summarize(
        trajectory(
            Step(exchange_id="a", tool_calls=(ToolCall("buy", "{}"),), observation='{"error": "no tool"}'),
            Step(exchange_id="b", tool_calls=(ToolCall("book", '{"to": "Oslo"}'),), observation='{"pid": "K1"}'),
            Step(exchange_id="c", text="Which day?"),
            min_version=3,
            max_version=4,
        )
    )
    assert names == ("book", "find")
    assert (run.steps, run.errors, run.low, run.high, run.invalid, run.asks) == (3, 1, 3, 4, 1, 1)
    assert (run.tokens, run.length) == (False, (5 + 18 + 10) / 3)


def test_lengths_are_in_tokens_where_there_are_some() -> None:
    row = TokenRow(
        ids=pack_array(range(8), "<i4"), step=pack_array([-1, -1, -1, 0, 0, -1, 1, 1], "<i2"),
        logprobs=pack_array([0.0] * 8, "<f4"), versions=pack_array([0] * 8, "<i4"),
    )  # fmt: skip
    run, _ = summarize(trajectory(Step(exchange_id="a", row=0), Step(exchange_id="b", row=0), rows=(row,)))
    assert (run.tokens, run.length) == (True, 2.0)


@pytest.mark.parametrize(
    ("name", "arguments", "wrong"),
    [
        ("book", '{"to": "Oslo", "seats": 2}', ""),
        ("find", '{"anything": [1]}', ""),
        ("find", "", ""),
        ("buy", "{}", "no such tool"),
        ("book", "{", "no JSON"),
        ("book", "[]", "no JSON object"),
        ("book", "{}", "do not fit"),
        ("book", '{"to": "Oslo", "seats": true}', "do not fit"),
        ("book", '{"to": "Oslo", "meal": 1}', "do not fit"),
    ],
)
def test_whether_a_call_fits_its_tool(name: str, arguments: str, wrong: str) -> None:
    found = fault(ToolCall(name, arguments), offered(TOOLS))
    assert wrong in found
    assert bool(wrong) == bool(found)


def test_tools_of_the_messages_dialect_have_their_schemas() -> None:
    tools = offered(json.dumps([{"name": "book", "input_schema": SCHEMA}]).encode())
    assert "do not fit" in fault(ToolCall("book", "{}"), tools)
    assert fault(ToolCall("book", '{"to": "Oslo"}'), tools) == ""


def test_any_name_will_do_where_no_tools_were_offered() -> None:
    assert fault(ToolCall("anything", "{}"), {}) == ""


def test_a_call_that_could_not_be_read_is_invalid_and_an_answer_is_not() -> None:
    assert invalid(Step(exchange_id="a", text='<tool_call>{"name": '), {})
    assert not invalid(Step(exchange_id="a", text="It is booked."), {})


def test_a_question_is_a_turn_that_asks_and_calls_nothing() -> None:
    assert asks(Step(exchange_id="a", text="Which day?**\n"))
    assert asks(Step(exchange_id="a", text="いつですか？"))
    assert not asks(Step(exchange_id="a", text="Which day? I take Monday."))
    assert not asks(Step(exchange_id="a", text="Which day?", tool_calls=(ToolCall("find", "{}"),)))


def test_circles_are_calls_and_phrases_that_come_again() -> None:
    call = Step(exchange_id="a", tool_calls=(ToolCall("find", "{}"),), observation="none")
    assert loops((call, call, call))
    assert not loops((call, call, Step(exchange_id="b", text="done"), call))
    assert not loops((call, Step(exchange_id="b", tool_calls=call.tool_calls, observation="one"), call))
    assert loops((Step(exchange_id="a", text="I will now look into it again. " * 12),))
    assert not loops((Step(exchange_id="a", text="a short answer a short answer a short answer"),))


ODD = (b"", b"{", b"\xff\xfe\xff", b"[" * 100_000, b'"text"', b'{"name": "book"}', b'[{"function": 3}]')


@pytest.mark.parametrize("tools", [*ODD, b'[{"function": {"name": 1}}]'])
def test_odd_tool_lists_have_no_names(tools: bytes) -> None:
    assert tool_names(tools) == ()
    assert tool_names(b'[{"name": "book"}, "find", null, 1, {}]') == ("book",), "what of one can be read counts"


def test_only_what_a_called_tool_answers_is_a_failed_call() -> None:
    call = (ToolCall("find", "{}"),)
    assert call_failed(Step(exchange_id="a", tool_calls=call, observation="Error: no such order"))
    assert not call_failed(Step(exchange_id="a", tool_calls=call, observation='{"error": null}'))
    assert not call_failed(Step(exchange_id="a", text="Done.", observation="Error: that is not what I meant"))


def test_lateness_grows_with_each_factor_of_four():
    hour = 3600.0
    assert [lateness(late) for late in (-5.0, 0.0, 900.0, 901.0, hour, 4 * hour, 5 * hour)] == [0, 0, 0, 1, 1, 2, 3]
