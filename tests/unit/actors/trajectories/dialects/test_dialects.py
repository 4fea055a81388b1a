"""The same conversation in every dialect is the same conversation."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import Exchange, ToolCall
from actors.messages.dialects import ENDINGS, dialect_at
from actors.trajectories.dialects import READERS, read_conversation
from actors.trajectories.dialects.conversation import Conversation, Item
from actors.trajectories.parsed_exchange import read_turn
from tests.support.traffic import SPOKEN, exchange


def read(endpoint: str, request: object, response: object = None) -> Conversation:
    return read_conversation(
        Exchange(
            id="x", endpoint=endpoint, started=0.0, duration=0.0, status=200, request=json.dumps(request).encode(),
            response=json.dumps(response).encode(),
        )
    )  # fmt: skip


@pytest.mark.parametrize("dialect", ["responses", "anthropic"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_turn_is_the_same_in_every_dialect(dialect: str, number: int) -> None:
    chat, other = (read_turn(exchange("a", number, dialect=name)) for name in ("chat", dialect))
    assert (other.history, other.depth, other.goal, other.observation) == (
        chat.history, chat.depth, chat.goal, chat.observation,
    )  # fmt: skip
    assert other.answered == chat.answered
    (one,), (two,) = chat.answers, other.answers
    assert (one.future, one.outline) == (two.future, two.outline)
    assert [(call.id, call.name, json.loads(call.arguments)) for call in two.tool_calls] == [
        (call.id, call.name, json.loads(call.arguments)) for call in one.tool_calls
    ]


def test_only_endpoints_with_a_conversation_are_read() -> None:
    assert [READERS[dialect] for dialect in ENDINGS.values()] == list(READERS.values())
    assert not any(dialect_at(path) for path in ("/v1/embeddings", "/v1/models", "/v1/audio/speech", ""))
    assert read("/v1/embeddings", {"input": "x"}) == Conversation(items=())


def test_a_refusal_is_what_the_model_said() -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I must not."}
    assert read("/v1/chat/completions", {}, {"choices": [{"message": refused}]}).answers[0].text == "I must not."
    part = {"type": "refusal", "refusal": "I must not."}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    assert read("/v1/responses", {}, {"output": output}).answers[0].text == "I must not."


@pytest.mark.parametrize(
    ("endpoint", "whole", "ending", "cut"),
    [
        ("/v1/chat/completions", {"choices": [{"message": {"role": "assistant", "content": "a"}}]}, "choice", "length"),
        ("/v1/completions", {"choices": [{"text": "a"}]}, "choice", "length"),
        ("/v1/messages", {"content": [{"type": "text", "text": "a"}]}, "stop_reason", "max_tokens"),
        ("/v1/messages", {"content": [{"type": "text", "text": "a"}]}, "stop_reason", "model_context_window_exceeded"),
        (
            "/v1/responses",
            {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]},
            "incomplete_details", {"reason": "max_output_tokens"},
        ),
    ],
)  # fmt: skip
def test_an_answer_that_ended_at_a_limit_of_tokens_says_so(
    endpoint: str, whole: dict[str, object], ending: str, cut: object
) -> None:
    def answered(why: object) -> dict[str, object]:
        choices = [{**choice, "finish_reason": why} for choice in whole.get("choices", [])]
        return {**whole, "choices": choices} if ending == "choice" else {**whole, ending: why}

    for why, wanted in ((cut, True), ("stop", False), (None, False), ({}, False)):
        (said,) = read(endpoint, {}, answered(why)).answers
        assert (said.text, said.cut) == ("a", wanted)


@pytest.mark.parametrize("output", [[], [{"type": "reasoning", "id": "rs_1", "summary": []}]], ids=["empty", "thought"])
def test_a_response_without_a_word_is_an_answer(output: list[dict[str, object]]) -> None:
    assert read("/v1/responses", {"input": "hi"}, {"output": output}).answers == [Item("assistant")]
    assert not read("/v1/responses", {"input": "hi"}, {"error": "no"}).answers


def test_the_old_function_call_is_a_tool_call() -> None:
    message = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}}
    said = read("/v1/chat/completions", {"messages": [message, {"role": "function", "name": "add", "content": "4"}]})
    assert said.items == [Item("assistant", "", (ToolCall("add", "{}", ""),)), Item("tool", "4")]


def test_items_of_the_responses_api() -> None:
    said = read(
        "/v1/responses",
        {
            "instructions": "desk",
            "input": [
                {"role": "user", "content": "hello"},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {
                    "type": "message",
                    "role": "assistant",
                    "id": "msg_1",
                    "content": [{"type": "output_text", "text": "hm"}],
                },
                {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{}"},
                {"type": "item_reference", "id": "fc_2"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "output_text", "text": "4"}]},
                {"type": "custom_tool_call", "call_id": "c3", "name": "run", "input": "ls"},
                {"type": "something_new", "x": 1},
            ],
        },
    )
    assert said.items == [
        Item("system", "desk"),
        Item("user", "hello"),
        Item("assistant", "hm", (ToolCall("add", "{}", "c1"),), "", ("msg_1", "fc_1", "fc_2")),
        Item("tool", "4", (), "c1"),
        Item("assistant", "", (ToolCall("run", "ls", "c3"),)),
    ]


def test_blocks_of_anthropics_api() -> None:
    said = read(
        "/v1/messages",
        {
            "system": "desk",
            "messages": [
                {"role": "user", "content": "hello"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm"},
                        {"type": "text", "text": "let me see"},
                        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
                        {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "4"}]},
                        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "0", "is_error": True},
                        {"type": "text", "text": "and?"},
                    ],
                },
            ],
        },
        {"type": "message", "content": [{"type": "text", "text": "4"}]},
    )
    calls = (ToolCall("add", '{"a":2}', "toolu_1"), ToolCall("add", "{}", "toolu_2"))
    assert said.items == [
        Item("system", "desk"), Item("user", "hello"), Item("assistant", "let me see", calls),
        Item("tool", "4", (), "toolu_1"), Item("tool", "[the call failed] 0", (), "toolu_2"), Item("user", "and?"),
    ]  # fmt: skip
    assert said.answers == [Item("assistant", "4")]


def test_a_text_completion_is_one_question_and_its_answers() -> None:
    said = read("/v1/completions", {"prompt": "once"}, {"choices": [{"text": " upon"}, {"text": " more"}]})
    assert (said.items, [answer.text for answer in said.answers]) == ([Item("user", "once")], [" upon", " more"])


names = st.sampled_from(
    ["messages", "role", "content", "tool_calls", "function", "choices", "message", "tools", "input", "output", "type",
     "call_id", "arguments", "name", "id", "text", "prompt", "system", "instructions", "refusal", "function_call"]
)  # fmt: skip
words = st.sampled_from(["assistant", "user", "tool", "message", "tool_use", "tool_result", "function_call", "x"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=150)
@given(request=anything, response=anything, ending=st.sampled_from(sorted(ENDINGS)))
def test_no_json_is_too_strange(request: object, response: object, ending: str) -> None:
    fields = {"request": json.dumps(request).encode(), "response": json.dumps(response).encode()}
    assert read_turn(exchange("a", 0, endpoint=f"/v1{ending}", **fields)).id == "x-default-a-0"


def test_all_dialects_have_a_writer_here() -> None:
    endpoints = {speak("r", [], {"role": "assistant", "content": "x"})[0] for speak in SPOKEN.values()}
    assert endpoints | {"/v1/completions"} == {f"/v1{ending}" for ending in ENDINGS}
