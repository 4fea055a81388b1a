"""Exports of real instrumentations become the calls that an agent made; both encodings say the same, and what is no
export is refused with a reason."""

import gzip
import json
from typing import Any

import msgspec
import pytest

from actors.messages import Exchange
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.otlp import wire
from adapters.intake.otlp.wire import JSON, PROTOBUF, Refused, Span, decode
from tests.support.otlp import as_json, calls_of, export, recorded

KEY = (b"t" * 16, b"s" * 8)
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "desk"}
SAID = {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "x"}]}]'}


def messages(call: Exchange) -> list[dict]:
    return json.loads(call.request)["messages"]


def span(attributes: dict[str, Any] | None = None, *, chat: bool = True, **fields: Any) -> list[Span]:
    """A chat that said something, and `attributes`."""
    told = {**(CHAT | SAID if chat else {}), **(attributes or {})}
    return [Span(**{"key": KEY, "started": 100.0, "ended": 101.5, "attributes": told} | fields)]


@pytest.mark.parametrize("mode", ["span", "openinference"])
def test_a_recorded_run_is_three_calls_that_follow_each_other(mode: str) -> None:
    calls = [call for call in calls_of(export(mode)) if call.endpoint == "/v1/chat/completions"]
    first, second, third = turns = [read_turn(call) for call in calls]
    assert [turn.goal for turn in turns] == ["2+2 and 3+3?"] * 3
    assert [turn.response_id for turn in turns] == ["chatcmpl-1", "chatcmpl-2", "chatcmpl-3"]
    asked = {call.id: (call.name, json.loads(call.arguments)) for call in first.answers[0].calls}
    assert asked == {"call_a": ("add", {"a": 2, "b": 2}), "call_b": ("add", {"a": 3, "b": 3})}
    assert (second.observation, second.answers[0].text) == ("4\n6", "4 and 6")
    assert (third.observation, third.answers[0].text) == ("thanks", "all done")
    assert (first.answers[0].future, second.answers[0].future) == (second.history, third.history)
    assert {turn.why_not for turn in turns} == {"no token ids in spans"}
    call = calls[0]
    assert (call.model, call.sampling.temperature, call.status, call.source) == ("desk", 0.5, 200, "otlp")
    assert call.started > 1.7e9
    assert 0 < call.duration < 1
    assert call.complete
    assert len({call.hints.trajectory_id for call in calls}) == 1, "the trace's"
    assert len({call.id for call in calls}) == 3
    apart = calls_of(export(mode), trace_is_run=False)
    assert {call.hints.trajectory_id for call in apart} == {""}


def test_openinference_is_read_from_attributes_where_bodies_are_cut() -> None:
    whole = export("openinference")
    cut = [msgspec.structs.replace(one, attributes={**one.attributes, "input.value": '{"mo'}) for one in whole]
    for traces in (whole, cut):
        first, second, _, other = calls_of(traces)
        assert [tool["function"]["name"] for tool in json.loads(first.request)["tools"]] == ["add"]
        assert json.loads(first.request)["temperature"] == 0.5
        assert [message["role"] for message in messages(second)] == ["system", "user", "assistant", "tool", "tool"]
        call = messages(second)[2]["tool_calls"][1]["function"]
        assert (call["name"], json.loads(call["arguments"])) == ("add", {"a": 3, "b": 3})
        assert messages(second)[4] == {"role": "tool", "content": "6", "tool_call_id": "call_b"}
        assert read_turn(other).answers[0].text == "hello"
    *_, streamed, other = calls_of(whole)
    assert streamed.streamed
    assert (other.endpoint, read_turn(other).goal) == ("/v1/responses", "hi")


def test_what_is_no_call_gives_none() -> None:
    assert calls_of(export("silent")) == []
    for operation in ("invoke_agent", "execute_tool", "embeddings", "create_agent"):
        assert calls_of(span({"gen_ai.operation.name": operation})) == []
    assert calls_of(span({"http.request.method": "POST"}, chat=False)) == []
    assert calls_of(span({"evolved.opt_out": True})) == []


PARTS = [
    {"type": "reasoning", "content": "hm"},
    {"type": "text", "content": "look"},
    {"type": "blob", "mime_type": "image/png", "data": "iVBOR"},
    {"type": "tool_call", "id": "c1", "name": "see", "arguments": '{"x": 1}'},
]
RESULTS = [
    {"type": "tool_call_response", "id": "c1", "response": {"ok": True}},
    {"type": "tool_call_response", "id": "c2", "result": "done"},
]


def test_parts_of_every_kind_become_a_chat_message() -> None:
    said = [
        {"role": "user", "parts": [{"type": "text", "content": "go"}]},
        {"role": "assistant", "parts": PARTS},
        {"role": "user", "parts": RESULTS},
    ]
    tool = {"name": "see", "parameters": {"type": "object"}}
    attributes = {
        "gen_ai.system_instructions": '[{"type": "text", "content": "be brief"}]',
        "gen_ai.input.messages": json.dumps(said),
        "gen_ai.tool.definitions": json.dumps([{"type": "function", **tool}]),
        "gen_ai.request.max_tokens": 7,
    }
    (call,) = calls_of(span(attributes))
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
    assert request["tools"] == [{"type": "function", "function": {"description": "", **tool}}]
    older = [{"role": "user", "content": "x"}, {"role": "tool", "content": {"a": 1}, "id": "c1"}]
    (call,) = calls_of(span({"gen_ai.input.messages": json.dumps(older)}))
    assert messages(call) == [older[0], {"role": "tool", "content": '{"a":1}', "tool_call_id": "c1"}]


@pytest.mark.parametrize(
    ("attributes", "failed", "told"),
    [
        ({"error.type": "429"}, True, (429, False, "429")),
        ({"error.type": "APITimeoutError"}, True, (500, False, "APITimeoutError")),
        ({}, False, (200, False, "")),  # the answer was not captured
    ],
)
def test_a_call_that_failed_keeps_its_question_and_its_status(attributes: dict, failed: bool, told: tuple) -> None:
    (call,) = calls_of(span(attributes, failed=failed))
    assert (call.status, call.complete, call.error) == told
    assert (call.response, messages(call)) == (b"", [{"role": "user", "content": "x"}])


def test_the_conversation_names_the_trajectory_before_session_and_trace() -> None:
    for attributes, wanted in (
        ({"gen_ai.conversation.id": "c", "session.id": "s"}, "c"), ({"session.id": "s"}, "s"), ({}, KEY[0].hex()),
    ):  # fmt: skip
        (call,) = calls_of(span({"evolved.id": "mine", **attributes}))
        assert (call.hints.trajectory_id, call.hints.custom_id) == (wanted, "mine")


def test_attributes_of_another_form_are_no_content_and_no_crash() -> None:
    for junk in (
        '{"role": "user"}', "[[]]", "[1]", '[{"role": 1, "parts": 2}]', '[{"parts": [{"type": []}]}]', "nonsense", 7,
        None, [{"role": "user", "parts": [{"type": "tool_call", "arguments": [1]}]}], "[" * 5000,
    ):  # fmt: skip
        assert calls_of(span({"gen_ai.input.messages": junk, "gen_ai.output.messages": junk})) == []
        flat = {"openinference.span.kind": "LLM", "input.value": junk, "llm.input_messages.0": junk}
        flat |= {"llm.input_messages.0.message.tool_calls.x.y": junk, "llm.tools.0.tool.json_schema": junk}
        assert calls_of(span(flat, chat=False)) == []


# On the wire


def test_json_and_protobuf_say_the_same() -> None:
    for mode in ("span", "silent", "openinference"):
        assert decode(JSON, as_json(recorded(mode))) == decode(PROTOBUF, recorded(mode))


def test_records_with_ids_that_are_none_are_refused_and_the_others_taken() -> None:
    good = {"traceId": "ab" * 16, "spanId": "cd" * 8, "startTimeUnixNano": "1500000000", "newField": {"x": 1}}
    spans = [good, {**good, "traceId": ""}, {**good, "spanId": "zz"}, {**good, "traceId": "00" * 16}]
    body = {"resourceSpans": [{"resource": None, "scopeSpans": [{"spans": spans}]}]}
    found, refused = decode(JSON, json.dumps(body).encode())
    assert ([one.started for one in found], refused) == ([1.5], 3)


def test_a_body_that_is_no_export_is_refused() -> None:
    deep: dict = {"stringValue": "x"}
    for _ in range(60):
        deep = {"arrayValue": {"values": [deep]}}
    nested = {"traceId": "ab" * 16, "spanId": "cd" * 8, "attributes": [{"key": "x", "value": deep}]}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [nested]}]}]}).encode()
    for media in (JSON, PROTOBUF):
        for data in (b"\xff\xff", b"[" * 9000, b'{"resourceSpans": 3}', b"\x0a\x05x", body):
            with pytest.raises(Refused, match="no traces export"):
                decode(media, data)
    with pytest.raises(Refused, match="cut off"):
        wire.inflated(gzip.compress(b"x" * 100)[:-5], "gzip", 100)


def test_a_refusal_is_told_as_the_protocol_has_it() -> None:
    # As protobuf writes a google.rpc.Status: field 2, the message with its length.
    assert wire.complaint(PROTOBUF, "later, é") == b"\x12\x09later, \xc3\xa9"
    assert wire.complaint(PROTOBUF, "x" * 3000) == b"\x12\xe8\x07" + b"x" * 1000
    assert json.loads(wire.complaint(JSON, "bad")) == {"message": "bad"}
