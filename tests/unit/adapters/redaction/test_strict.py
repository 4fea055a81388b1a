"""Strict mode: of what a stranger can write nothing is kept, and what joins and counts calls is."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.messages import Exchange, Feedback
from actors.messages.traffic import Hints
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.tap import read_call
from adapters.redaction import RedactionSettings, Redactor
from tests.support.byte_engine import PATHS, Case, answers_of, request_of
from tests.unit.adapters.redaction.made import answered, raw, recorded, tool_call

pytestmark = pytest.mark.promise
SECRET = "Pinkelephant 4711"
ODD = "Pinkelephant_k3y9x8w7v6u5t4"
"""A name's form, and a key's."""


@pytest.fixture
def strict(tmp_path: Path) -> Redactor:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    return Redactor(RedactionSettings(strict=True, key_file=str(key)))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_no_word_of_a_call_is_left_and_its_turns_are(strict: Redactor, dialect: str, stream: bool) -> None:
    case = Case(7, dialect, stream, "answer" if dialect == "completions" else "call", SECRET, SECRET)
    events, whole = answers_of(case, [1, 2, 3], tokens=True)
    before = raw(request_of(case), events if stream else whole, endpoint=PATHS[dialect])
    after = recorded(before, strict)
    data = msgspec.msgpack.encode(after)
    for word in (b"Pinkelephant", b"4711", b"You help", b"what now", b"all is well", b"case-", b"token_ids"):
        assert word not in data, word
    one, two = read_call(before), after
    plain, stripped = read_turn(one), read_turn(two)
    assert (stripped.depth, len(stripped.answers)) == (plain.depth, len(plain.answers))
    for was, left in zip(plain.answers, stripped.answers, strict=True):
        assert [call.name for call in left.calls] == [call.name for call in was.calls]
        assert bool(left.text) == bool(was.text)
    assert (two.complete, two.model) == (one.complete, "bytes")
    assert stripped.why_not.startswith("redacted")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_calls_of_a_run_are_still_told_by_their_beginnings(strict: Redactor, dialect: str, stream: bool) -> None:
    case = Case(7, dialect, stream, "call", "look", "look")
    first, (events, whole) = request_of(case), answers_of(case, [1], tokens=True)
    said = {"role": "assistant", "content": whole["content"]} if dialect == "messages" else whole["choices"][0]
    turn = said.get("message", said)
    second = first | {"messages": [*first["messages"], turn, {"role": "user", "content": "go on"}]}
    other = first | {"messages": [{"role": "user", "content": "another goal"}, *first["messages"][1:], turn]}
    calls = [raw(first, events if stream else whole, endpoint=PATHS[dialect])]
    calls += [raw(request, endpoint=PATHS[dialect]) for request in (second, other)]
    one, two, three = (read_turn(recorded(call, strict)) for call in calls)
    assert two.history == one.answers[0].future != three.history


def test_whatever_field_a_stranger_fills_says_nothing_afterwards(strict: Redactor) -> None:
    request: dict[str, Any] = {
        "model": ODD,
        "user": SECRET,
        "stop": [SECRET],
        SECRET: 1,
        "seed": 4111111111111111,
        "metadata": {SECRET: SECRET, "trajectory_id": "run-7", "evolved_id": f"{SECRET}!"},
        "response_format": {"type": "json_schema", "json_schema": {"name": SECRET, "schema": {SECRET: {}}}},
        "tool_choice": {"type": "function", "function": {"name": f"{ODD}"}},
        "tools": [
            {"type": "function", "function": {"name": "a" * 65 + ODD, "parameters": {"properties": {SECRET: {}}}}},
            {"type": SECRET, "function": {"name": "book_train", "description": SECRET}},
        ],
        "messages": [
            {"role": SECRET, "content": [{"type": "image_url", "image_url": {"url": SECRET}}], "name": SECRET},
            {"role": "assistant", "tool_calls": [{"id": SECRET, "function": {"name": ODD, "arguments": SECRET}}]},
            {"role": "tool", "tool_call_id": SECRET, "content": [SECRET, {"type": "text", "text": SECRET}]},
        ],
        "prompt": [80, 105, 110, 107],
    }
    record = raw(
        request, {"error": {"message": SECRET, "type": SECRET, "code": SECRET}, "id": SECRET},
        endpoint=f"/{ODD}/v1/chat/completions",
        hints=Hints(trajectory_id="run-7", custom_id=SECRET, conversation=SECRET, previous_response_id=SECRET),
    )  # fmt: skip
    after = recorded(record, strict)
    seen = msgspec.msgpack.encode(after)
    for word in (b"Pinkelephant", b"elephant", b"4711", b"4111111111111111", b"k3y9x8", b"[80,105"):
        assert word not in seen, word
    body = json.loads(after.request)
    assert after.endpoint == "/v1/chat/completions"
    assert after.hints.trajectory_id == body["metadata"]["trajectory_id"] == "run-7"
    assert body["tools"][1]["function"]["name"] == "book_train"
    call, result = body["messages"][1]["tool_calls"][0], body["messages"][2]
    assert call["id"] == result["tool_call_id"]
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(call["function"]["arguments"])  # it was malformed, and is seen to have been
    unknown = recorded(raw({"model": "ann-of-hull", "messages": []}, status=404), strict)
    assert b"ann" not in msgspec.msgpack.encode(unknown), "a model that the engine did not know is no name"


def test_counts_times_and_names_stay(strict: Redactor) -> None:
    kept = {
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
        "model": "Qwen/Qwen2.5-7B-Instruct", "created": 1789000000,
    }  # fmt: skip
    answer = answered("yes", finish_reason="tool_calls") | kept
    after = recorded(raw({"model": "Qwen/Qwen2.5-7B-Instruct", "temperature": 0.7}, answer), strict)
    body = json.loads(after.response)
    assert {name: body[name] for name in kept} == kept
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(after.request)["temperature"] == 0.7
    assert (after.started, after.duration, after.status) == (1.0, 1.0, 200)


def test_arguments_keep_whether_they_are_the_same_and_not_their_keys(strict: Redactor) -> None:
    def told(text: str) -> str:
        after = recorded(raw({"messages": [{"role": "assistant", "tool_calls": [tool_call(text)]}]}), strict)
        return json.loads(after.request)["messages"][0]["tool_calls"][0]["function"]["arguments"]

    assert told('{"a": 1, "ann@hull.com": 2}') == told('{"ann@hull.com":2,"a":1}') != told('{"a": 2}')
    assert list(json.loads(told('{"a": 1}'))) == ["redacted"]
    assert told("{}") == "{}"


def test_feedback_meets_its_call_without_its_words(strict: Redactor) -> None:
    call = recorded(raw({}, {"id": "chatcmpl-1", "choices": []}), strict)
    told = strict.feedback(
        Feedback(id="1" * 32, received=1.0, response_id="chatcmpl-1", outcome=0.0, text=SECRET, custom_id=SECRET)
    )
    assert told.response_id == call.response_id != ""
    assert (told.outcome, "Pinkelephant" in str(told)) == (0.0, False)


def test_what_comes_in_by_spans_and_files_is_stripped_too(strict: Redactor) -> None:
    before = Exchange(
        id="0" * 32, endpoint="/v1/chat/completions", started=1.0, duration=1.0, status=200, model="m", error=SECRET,
        request=json.dumps({"messages": [{"role": "user", "content": SECRET}]}).encode(), response=SECRET.encode(),
        prompt_ids=b"1234", response_ids=b"1234", logprobs=b"1234", response_id="chatcmpl-1",
    )  # fmt: skip
    after = strict.message(before)
    assert b"Pinkelephant" not in msgspec.msgpack.encode(after)
    assert (after.prompt_ids, after.response_ids, after.logprobs) == (b"", b"", b"")
    assert after.redacted == ("prompt", "response")


def test_what_is_no_object_is_not_kept(strict: Redactor) -> None:
    for body in (b"", b"Pinkelephant", b"[1,2]", b'"Pinkelephant"', b"\x1f\x8bPinkelephant", b"[" * 9999):
        for streamed in (False, True):
            after = recorded(raw(body, body, streamed=streamed), strict)
            assert b"Pinkelephant" not in msgspec.msgpack.encode(after)
