"""The two shapes in which instrumentations tell of a call, from recordings of real ones, read as the same run."""

import json

import msgspec
import pytest

from actors.messages import Exchange
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.otlp.calls import SpanSettings, exchange_from
from adapters.intake.otlp.wire import Export, Span
from tests.support.otlp import calls_of, export

KEY = (b"t" * 16, b"s" * 8)
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "desk"}
SAID = {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "x"}]}]'}
MODES = ("span", "openinference")


def chats(mode: str) -> list[Exchange]:
    return [call for call in calls_of(export(mode)) if call.endpoint == "/v1/chat/completions"]


def messages(call: Exchange) -> list[dict]:
    return json.loads(call.request)["messages"]


def span(attributes: dict, **fields) -> Export:
    return Export(spans=(Span(key=KEY, started=100.0, ended=101.5, attributes=attributes, **fields),))


@pytest.mark.parametrize("mode", MODES)
def test_a_recorded_run_is_three_calls_that_follow_each_other(mode: str) -> None:
    first, second, third = turns = [read_turn(call) for call in chats(mode)]
    assert [turn.goal for turn in turns] == ["2+2 and 3+3?"] * 3
    assert [turn.response_id for turn in turns] == ["chatcmpl-1", "chatcmpl-2", "chatcmpl-3"]
    calls = first.answers[0].tool_calls
    assert [(call.id, call.name, json.loads(call.arguments)) for call in calls] == [
        ("call_a", "add", {"a": 2, "b": 2}),
        ("call_b", "add", {"a": 3, "b": 3}),
    ]
    assert (second.observation, second.answers[0].text) == ("4\n6", "4 and 6")
    assert (third.observation, third.answers[0].text) == ("thanks", "all done")
    assert first.answers[0].future == second.history
    assert second.answers[0].future == third.history
    assert {turn.why_not for turn in turns} == {"no token ids in spans"}


@pytest.mark.parametrize("mode", MODES)
def test_a_recorded_call_keeps_model_sampling_and_times(mode: str) -> None:
    first = chats(mode)[0]
    assert (first.model, first.sampling.temperature, first.status, first.source) == ("desk", 0.5, 200, "otlp")
    assert first.started > 1.7e9
    assert 0 < first.duration < 1
    assert first.complete


@pytest.mark.parametrize("mode", MODES)
def test_calls_of_one_trace_are_one_trajectory(mode: str) -> None:
    calls = chats(mode)
    assert len({call.hints.trajectory_id for call in calls}) == 1
    assert len({call.id for call in calls}) == 3
    apart = calls_of(export(mode), SpanSettings(trace_is_trajectory=False))
    assert {call.hints.trajectory_id for call in apart} == {""}


def test_openinference_brings_the_tools_and_the_responses_endpoint() -> None:
    *chat, other = calls_of(export("openinference"))
    assert [tool["function"]["name"] for tool in json.loads(chat[0].request)["tools"]] == ["add"]
    assert chat[2].streamed
    turn = read_turn(other)
    assert (other.endpoint, turn.goal, turn.answers[0].text) == ("/v1/responses", "hi", "hello")


def test_openinference_is_read_from_flattened_attributes_where_the_bodies_are_cut() -> None:
    traces = export("openinference")
    cut = [msgspec.structs.replace(s, attributes={**s.attributes, "input.value": '{"mo'}) for s in traces.spans]
    first, second, _, other = calls_of(Export(spans=tuple(cut)))
    assert [message["role"] for message in messages(second)] == ["system", "user", "assistant", "tool", "tool"]
    assert messages(second)[2]["tool_calls"][1]["function"] == {"name": "add", "arguments": '{"a": 3, "b": 3}'}
    assert messages(second)[4] == {"role": "tool", "content": "6", "tool_call_id": "call_b"}
    assert json.loads(first.request)["tools"][0]["function"]["name"] == "add"
    assert json.loads(first.request)["temperature"] == 0.5
    assert (messages(other), read_turn(other).answers[0].text) == ([{"role": "user", "content": "hi"}], "hello")


def test_a_run_without_captured_content_gives_no_calls() -> None:
    assert calls_of(export("silent")) == []


def test_spans_of_agents_tools_and_embeddings_are_no_calls() -> None:
    for operation in ("invoke_agent", "execute_tool", "embeddings", "create_agent"):
        assert calls_of(span({**CHAT, **SAID, "gen_ai.operation.name": operation})) == []
    assert calls_of(span({"http.request.method": "POST"})) == []


def test_parts_of_every_kind_become_a_chat_message() -> None:
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "text", "content": "look"},
        {"type": "blob", "mime_type": "image/png", "data": "iVBOR"},
        {"type": "tool_call", "id": "c1", "name": "see", "arguments": '{"x": 1}'},
    ]
    results = [
        {"type": "tool_call_response", "id": "c1", "response": {"ok": True}},
        {"type": "tool_call_response", "id": "c2", "result": "done"},
    ]
    said = [
        {"role": "user", "parts": [{"type": "text", "content": "go"}]},
        {"role": "assistant", "parts": parts},
        {"role": "user", "parts": results},
    ]
    tools = [{"type": "function", "name": "see", "parameters": {"type": "object"}}]
    attributes = {
        "gen_ai.system_instructions": '[{"type": "text", "content": "be brief"}]',
        "gen_ai.input.messages": json.dumps(said),
        "gen_ai.tool.definitions": json.dumps(tools),
        "gen_ai.request.max_tokens": 7,
    }
    (call,) = calls_of(span({**CHAT, **attributes}))
    request = json.loads(call.request)
    assert request["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "look"}, {"type": "blob", "mime_type": "image/png"}],
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "see", "arguments": '{"x": 1}'}}],
            "reasoning_content": "hm",
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"ok":true}'},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ]
    assert request["max_tokens"] == 7
    assert request["tools"] == [
        {"type": "function", "function": {"name": "see", "description": "", "parameters": {"type": "object"}}}
    ]


def test_a_call_that_failed_keeps_its_question_and_its_status() -> None:
    (call,) = calls_of(span({**CHAT, **SAID, "error.type": "429"}, failed=True))
    assert (call.status, call.complete, call.response, call.error) == (429, False, b"", "429")
    (call,) = calls_of(span({**CHAT, **SAID, "error.type": "APITimeoutError"}, failed=True))
    assert (call.status, call.error) == (500, "APITimeoutError")


def test_a_call_whose_answer_was_not_captured_is_not_complete() -> None:
    (call,) = calls_of(span({**CHAT, **SAID}))
    assert (call.status, call.complete) == (200, False)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"gen_ai.conversation.id": "c", "session.id": "s"}, "c"),
        ({"session.id": "s"}, "s"),
        ({}, KEY[0].hex()),
    ],
)
def test_the_conversation_names_the_trajectory_before_session_and_trace(attributes: dict, wanted: str) -> None:
    (call,) = calls_of(span({**CHAT, **SAID, **attributes}))
    assert call.hints.trajectory_id == wanted


def test_a_call_may_have_an_id_of_its_own_and_may_opt_out() -> None:
    (call,) = calls_of(span({**CHAT, **SAID, "evolved.id": "mine"}))
    assert call.hints.custom_id == "mine"
    assert calls_of(span({**CHAT, **SAID, "evolved.opt_out": True})) == []


def test_whose_it_is_the_key_says_before_the_resource_and_the_settings() -> None:
    settings = SpanSettings(tenant_attribute="service.namespace")
    one = span({**CHAT, **SAID}, resource={"service.namespace": "acme"}).spans[0]
    found = [exchange_from(one, settings), exchange_from(one, SpanSettings()), exchange_from(one, settings, tenant="k")]
    calls = [call for call in found if call is not None]
    assert [call.tenant for call in calls] == ["acme", "default", "k"]
    assert len({call.id for call in calls}) == 3


def test_messages_of_the_older_form_are_read_in_a_span_too() -> None:
    said = [{"role": "user", "content": "x"}, {"role": "tool", "content": {"a": 1}, "id": "c1"}]
    (call,) = calls_of(span({**CHAT, "gen_ai.input.messages": json.dumps(said)}))
    assert messages(call) == [
        {"role": "user", "content": "x"},
        {"role": "tool", "content": '{"a":1}', "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize(
    "junk",
    [
        '{"role": "user"}', "[[]]", "[1]", '[{"role": 1, "parts": 2}]', '[{"parts": [{"type": []}]}]', "nonsense", 7,
        None, [{"role": "user", "parts": [{"type": "tool_call", "arguments": [1]}]}], "[" * 5000,
    ],
)  # fmt: skip
def test_attributes_of_another_form_are_no_content_and_no_crash(junk: object) -> None:
    assert calls_of(span({**CHAT, "gen_ai.input.messages": junk, "gen_ai.output.messages": junk})) == []
    flat = {"openinference.span.kind": "LLM", "input.value": junk, "llm.input_messages.0": junk}
    flat |= {"llm.input_messages.0.message.tool_calls.x.y": junk, "llm.tools.0.tool.json_schema": junk}
    assert calls_of(span(flat)) == []
