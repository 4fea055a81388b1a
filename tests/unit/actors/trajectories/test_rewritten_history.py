"""Clients rewrite what they send back: each way that was seen is stitched, and says how sure it is."""

import json
from typing import Any

import msgspec
import pytest

from actors.messages import Exchange, Trajectory
from actors.trajectories.builder import build_all
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Limits, Stitcher

LIMITS = Limits()
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
OPENING = [{"role": "system", "content": "desk"}, {"role": "user", "content": "add 2 and 2"}]
CALL = {"id": "call_9fk2mz81qp", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2.0}'}}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def call(
    name: str, messages: list[dict], reply: dict, *, at: float, tools: bool = True, caller: str = "", **fields: Any
) -> Exchange:
    """A chat call."""
    request = {"messages": messages} | ({"tools": TOOLS} if tools else {})
    replies = reply if isinstance(reply, list) else [reply]
    response = {"choices": [{"index": n, "message": message} for n, message in enumerate(replies)]}
    values: dict[str, Any] = {
        "id": name, "endpoint": "/v1/chat/completions", "started": at, "duration": 1.0, "status": 200,
        "request": json.dumps(request).encode(), "response": json.dumps(response).encode(),
        "response_id": f"r-{name}", "caller": caller,
    }  # fmt: skip
    return Exchange(**{**values, **fields})


def closed(*exchanges: Exchange) -> list[Trajectory]:
    """All that comes of them, by start."""
    stitcher = Stitcher(LIMITS)
    for exchange in exchanges:
        stitcher.add(read_turn(exchange), 0.0)
    built = [built.run for closing in stitcher.close_due(10_000.0) for built in build_all(closing)]
    return sorted(built, key=lambda run: (run.started, run.id))


def without_ids(message: dict) -> dict:
    calls = [{key: value for key, value in call.items() if key != "id"} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def text(said: str) -> dict:
    return {"role": "assistant", "content": said}


def follow_up(echo: list[dict]) -> list[Trajectory]:
    first = call("x1", OPENING, ANSWER, at=1.0)
    return closed(first, call("x2", [*OPENING, *echo], text("4"), at=3.0))


RESULT = {"role": "tool", "tool_call_id": "", "content": "4"}
SMOLAGENTS = [
    text("Calling tools:\n" + str([{**CALL, "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}])),
    {"role": "user", "content": "Observation:\n4"},
]


@pytest.mark.parametrize(
    "echo",
    [
        [without_ids({**ANSWER, "content": ""}), RESULT],
        [without_ids({"role": "assistant", "tool_calls": [CALL], "refusal": None, "annotations": []}), RESULT],
        [without_ids({**ANSWER, "tool_calls": [{**CALL, "function": {"name": "add", "arguments": '{"b":2,"a":2}'}}]})],
        [without_ids({**ANSWER, "content": [{"type": "text", "text": "  "}]}), RESULT],
        [without_ids({**ANSWER, "content": "<think>two and two</think>\n"}), RESULT],
    ],
    ids=["blank for null", "extras", "arguments again", "parts", "thoughts"],
)
def test_an_echo_without_ids_is_known_by_what_it_says(echo: list[dict]) -> None:
    (run,) = follow_up(echo)
    assert (len(run.steps), run.confidence) == (2, 0.8)


def test_tool_calls_flattened_to_text_are_read_back_with_their_ids() -> None:
    (run,) = follow_up(SMOLAGENTS)
    assert (len(run.steps), run.confidence) == (2, 1.0)
    assert run.steps[0].observation == "Observation:\n4"


def test_a_call_that_the_client_made_up_beside_the_text_does_not_hide_the_text() -> None:
    """smolagents' code agents write a call of their own making under the model's words."""
    said = "Thought: add.\n<code>2 + 2</code>"
    function = {"name": "python_interpreter", "arguments": "2 + 2"}
    echo = text(said + "\nCalling tools:\n" + str([{"id": "call_1", "type": "function", "function": function}]))
    first = call("x1", OPENING, text(said), at=1.0, tools=False)
    (run,) = closed(first, call("x2", [*OPENING, echo, SMOLAGENTS[1]], text("4"), at=3.0, tools=False))
    assert (len(run.steps), run.confidence) == (2, 0.6)


def test_a_system_prompt_that_changes_between_calls_is_overlooked_and_lowers_the_confidence() -> None:
    later = [{"role": "system", "content": "desk, at 10:01"}, OPENING[1], text("which numbers?")]
    first = call("x1", OPENING, text("which numbers?"), at=1.0)
    (run,) = closed(first, call("x2", [*later, {"role": "user", "content": "2"}], text("4"), at=3.0))
    assert (len(run.steps), run.confidence) == (2, 0.6)


@pytest.mark.parametrize("flat", ["Calling tools:\n[", "Calling tools:\n[1]", "Calling tools:\n[{'function': 3}]"])
def test_text_that_only_looks_flattened_stays_text(flat: str) -> None:
    first = call("x1", OPENING, text(flat), at=1.0)
    (run,) = closed(first, call("x2", [*OPENING, text(flat), {"role": "user", "content": "?"}], text("4"), at=3.0))
    assert run.steps[0].text == flat


def test_parallel_tool_calls_answered_in_another_order_are_one_step() -> None:
    calls = [{**CALL, "id": f"call_parallel_{n}"} for n in "abc"]
    results = [{"role": "tool", "tool_call_id": f"call_parallel_{n}", "content": n} for n in "cab"]
    first = call("x1", OPENING, {"role": "assistant", "content": None, "tool_calls": calls}, at=1.0)
    echo = {"role": "assistant", "content": None, "tool_calls": calls}
    (run,) = closed(first, call("x2", [*OPENING, echo, *results], text("done"), at=3.0))
    assert [len(step.tool_calls) for step in run.steps] == [3, 0]
    assert (run.steps[0].observation, run.confidence) == ("c\na\nb", 1.0)


def test_of_several_choices_the_one_that_was_gone_on_with_is_the_step() -> None:
    first = call("x1", OPENING, [text("three"), text("four"), text("five")], at=1.0)
    (run,) = closed(
        first, call("x2", [*OPENING, text("four"), {"role": "user", "content": "sure?"}], text("yes"), at=3.0)
    )
    assert [step.text for step in run.steps] == ["four", "yes"]
    assert (run.trainable, run.why_not) == (False, "several choices")
    assert [step.why_not for step in run.steps] == ["several choices", "no token ids"]


def test_twins_without_ids_are_never_one_trajectory() -> None:
    """Two users say the same and are answered the same: nobody can tell whose next call it is."""
    twins = [call(f"x1-{user}", OPENING, text("which?"), at=1.0) for user in "ab"]
    later = [*OPENING, text("which?"), {"role": "user", "content": "2"}]
    runs = closed(*twins, *(call(f"x2-{user}", later, text("4"), at=3.0) for user in "ab"))
    assert [len(run.steps) for run in runs] == [1, 1, 1, 1]
    assert [run.confidence for run in runs] == [1.0, 1.0, 0.5, 0.5]


def test_twins_whose_answers_differ_are_told_apart_at_less_than_certainty() -> None:
    twins = [call(f"x1-{user}", OPENING, text(f"which, {user}?"), at=1.0) for user in "ab"]
    later = [
        call(f"x2-{user}", [*OPENING, text(f"which, {user}?"), {"role": "user", "content": "2"}], text("4"), at=3.0)
        for user in "ab"
    ]
    runs = closed(*twins, *later)
    assert sorted(tuple(step.exchange_id for step in run.steps) for run in runs) == [("x1-a", "x2-a"), ("x1-b", "x2-b")]
    assert {run.confidence for run in runs} == {0.8}


def test_callers_with_other_keys_never_share_a_trajectory_by_what_they_said() -> None:
    first = call("x1", OPENING, text("which?"), at=1.0, caller="alice")
    later = [*OPENING, text("which?"), {"role": "user", "content": "2"}]
    assert len(closed(first, call("x2", later, text("4"), at=3.0, caller="bob"))) == 2


def test_an_id_that_engines_repeat_is_never_certain_even_when_it_was_seen_once() -> None:
    repeats = {**ANSWER, "tool_calls": [{**CALL, "id": "call_0"}]}
    echo = [repeats, {"role": "tool", "tool_call_id": "call_0", "content": "4"}]
    (run,) = closed(call("x1", OPENING, repeats, at=1.0), call("x2", [*OPENING, *echo], text("4"), at=3.0))
    assert (len(run.steps), run.confidence) == (2, 0.8)


def test_an_id_of_a_closed_trajectory_that_comes_again_is_one_that_the_engine_repeats() -> None:
    repeats = {**ANSWER, "tool_calls": [{**CALL, "id": "functions.add:zero"}]}
    stitcher = Stitcher(LIMITS)
    stitcher.add(read_turn(call("x1", OPENING, repeats, at=1.0)), 0.0)
    (old,) = stitcher.close_due(900.0)
    stitcher.remember(old.turns, "t1")
    other = [OPENING[0], {"role": "user", "content": "add 3 and 3"}]
    stitcher.add(read_turn(call("y1", other, repeats, at=2000.0)), 1000.0)
    echo = [repeats, {"role": "tool", "tool_call_id": "functions.add:zero", "content": "6"}]
    stitcher.add(read_turn(call("y2", [*other, *echo], text("6"), at=2002.0)), 1002.0)
    (closing,) = stitcher.close_due(9000.0)
    assert (len(closing.turns), closing.links["y2"].signal, closing.continues) == (2, "prefix", "")


def mirrored(name: str, messages: list[dict], *, at: float) -> Exchange:
    return msgspec.structs.replace(
        call(name, messages, text(""), at=at), source="mirror", status=0, response=b"", response_id=""
    )


def test_mirrored_requests_give_the_answers_that_the_next_one_repeats() -> None:
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": "4"}
    second = [*OPENING, ANSWER, result]
    third = [*second, text("four"), {"role": "user", "content": "sure?"}]
    requests = [OPENING, second, third]
    (run,) = closed(*(mirrored(f"x{n}", messages, at=float(n)) for n, messages in enumerate(requests)))
    assert [step.text for step in run.steps] == ["", "four", ""]
    assert [len(step.tool_calls) for step in run.steps] == [1, 0, 0]
    assert [step.observation for step in run.steps] == ["4", "sure?", ""]
    assert (run.trainable, run.why_not, run.confidence) == (False, "mirrored", 0.6)


def test_mirrored_twins_are_kept_apart_by_the_ids_of_their_tool_calls() -> None:
    requests: list[Exchange] = []
    for user in "ab":
        answer = {**ANSWER, "tool_calls": [{**CALL, "id": f"call_of_user_{user}"}]}
        second = [*OPENING, answer, {"role": "tool", "tool_call_id": f"call_of_user_{user}", "content": "4"}]
        third = [*second, text("four"), {"role": "user", "content": "sure?"}]
        requests += [
            mirrored(f"{user}{n}", messages, at=float(n)) for n, messages in enumerate((OPENING, second, third))
        ]
    runs = [[step.exchange_id for step in run.steps] for run in closed(*requests)]
    assert sorted(runs) == [["a0"], ["a1", "a2"], ["b0"], ["b1", "b2"]]


def test_a_user_who_comes_back_after_the_end_continues_the_conversation() -> None:
    stitcher = Stitcher(LIMITS)
    stitcher.add(read_turn(call("x1", OPENING, text("which?"), at=1.0)), 0.0)
    (first,) = stitcher.close_due(900.0)
    stitcher.remember(first.turns, "t1")
    talk = [*OPENING, text("which?"), {"role": "user", "content": "2"}]
    stitcher.add(read_turn(call("x2", talk, text("sure?"), at=2000.0)), 2000.0)
    stitcher.add(
        read_turn(call("x3", [*talk, text("sure?"), {"role": "user", "content": "yes"}], text("4"), at=2002.0)), 2002.0
    )
    (second,) = stitcher.close_due(9000.0)
    assert [turn.id for turn in second.turns] == ["x2", "x3"]
    (run,) = [built.run for built in build_all(second)]
    assert (run.continues, run.confidence) == ("t1", 0.8)
    assert run.resumed_with == "2", "what they said is evidence of how the first run went"


@pytest.mark.parametrize("said", ["", None])
def test_an_empty_answer_that_the_client_leaves_out_does_not_break_the_run(said: str | None) -> None:
    """As unmodified clients do: an answer without a word is no message of the next request."""
    again = {"role": "user", "content": "You said nothing."}
    first = call("x1", OPENING, {"role": "assistant", "content": said}, at=1.0)
    second = call("x2", [*OPENING, again], text("four"), at=3.0)
    (run,) = closed(first, second, call("x3", [*OPENING, again, text("four"), again], text("4"), at=5.0))
    assert [step.exchange_id for step in run.steps] == ["x1", "x2", "x3"]
    assert run.confidence == 0.6


def test_an_empty_answer_later_in_a_run_is_on_its_main_line() -> None:
    again = {"role": "user", "content": "Go on."}
    began = [*OPENING, text("let me see"), again]
    first = call("x1", OPENING, text("let me see"), at=1.0)
    second = call("x2", began, text(""), at=3.0)
    (run,) = closed(first, second, call("x3", [*began, again], text("4"), at=5.0))
    assert [step.exchange_id for step in run.steps] == ["x1", "x2", "x3"]


def test_an_opening_of_two_messages_is_no_sequel_to_what_was_answered() -> None:
    first = call("x1", OPENING, text("four"), at=1.0)
    runs = closed(first, call("x2", [*OPENING, {"role": "user", "content": "?"}], text("4"), at=3.0))
    assert [len(run.steps) for run in runs] == [1, 1]
