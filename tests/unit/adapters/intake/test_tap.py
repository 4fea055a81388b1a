"""Raw bytes become the exchange that the agent saw; what cannot be read is kept and says so."""

import gzip
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Hints, Sampling, VersionSpan, decode, encode, floats_array, ids_array
from actors.messages.spool import RawExchange
from adapters.intake.tap import exchange_from_raw
from tests.support.engine import completion, stream_pieces

SSE = "text/event-stream; charset=utf-8"
FORCED = Sampling(forced=True, bent_by="forced tool choice")
SHAPED = Sampling(forced=True, bent_by="structured output")
STRICT = Sampling(forced=True, bent_by="strict tools")


def raw(request: object = None, response: object = None, **fields: object) -> RawExchange:
    asked = {"model": "desk", "messages": []} if request is None else request
    answered = completion(tokens=True) if response is None else response
    values = {
        "id": "0" * 32,
        "engine": "serving",
        "path": "/v1/chat/completions",
        "request": asked if isinstance(asked, bytes) else json.dumps(asked).encode(),
        "response": answered if isinstance(answered, bytes) else json.dumps(answered).encode(),
        "status": 200,
        "content_type": "application/json",
        "received": 10.0,
        "finished": 12.5,
        "tokens_requested": True,
    }
    return RawExchange(**values | fields)


def stream(*events: object, done: bool = True) -> bytes:
    pieces = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return b"".join(pieces) + (b"data: [DONE]\n\n" if done else b"")


def delta(finish: str | None = None, index: int = 0, **parts: object) -> dict:
    return {"id": "r", "choices": [{"index": index, "delta": parts, "finish_reason": finish}]}


def body_of(*events: object, **fields: object) -> dict:
    return json.loads(exchange_from_raw(raw(response=stream(*events), content_type=SSE, **fields)).response)


def test_a_plain_response() -> None:
    exchange = exchange_from_raw(raw())
    assert (exchange.id, exchange.response_id, exchange.model) == ("0" * 32, "chatcmpl-plain", "desk")
    assert (exchange.started, exchange.duration, exchange.status) == (10.0, 2.5, 200)
    assert (exchange.engine, exchange.endpoint, exchange.tenant) == ("serving", "/v1/chat/completions", "default")
    assert (exchange.streamed, exchange.complete, exchange.error) == (False, True, "")


def test_token_ids_log_probs_and_versions() -> None:
    exchange = exchange_from_raw(raw())
    assert ids_array(exchange.prompt_ids).tolist() == [7, 8, 9]
    assert ids_array(exchange.response_ids).tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(floats_array(exchange.logprobs), [0, -0.5, -1, -1.5, -2, -2.5])
    assert exchange.versions == (VersionSpan(3, 0, 2), VersionSpan(4, 2, 6))


def test_a_stream_gives_the_same_as_the_plain_response() -> None:
    plain = exchange_from_raw(raw())
    streamed = exchange_from_raw(raw(response=b"".join(stream_pieces(tokens=True)), content_type=SSE))
    assert streamed.streamed
    assert (streamed.complete, streamed.error) == (True, "")
    assert json.loads(streamed.response)["choices"] == json.loads(plain.response)["choices"]
    assert (streamed.prompt_ids, streamed.response_ids, streamed.logprobs) == (
        plain.prompt_ids, plain.response_ids, plain.logprobs,
    )  # fmt: skip
    assert streamed.versions == (VersionSpan(3, 0, 6),)


def test_what_only_the_tap_asked_for_is_not_kept_twice() -> None:
    body = json.loads(exchange_from_raw(raw()).response)
    assert "prompt_token_ids" not in body
    assert body["choices"][0].keys() == {"index", "message", "finish_reason", "logprobs"}
    assert body["choices"][0]["logprobs"] is None


def test_what_the_client_asked_for_is_kept() -> None:
    asked = {"messages": [], "logprobs": True, "return_token_ids": True}
    body = json.loads(exchange_from_raw(raw(asked)).response)
    assert body["prompt_token_ids"] == [7, 8, 9]
    assert body["choices"][0]["token_ids"] == [0, 1, 2, 3, 4, 5]
    assert len(body["choices"][0]["logprobs"]["content"]) == 6


def test_tool_call_deltas_are_put_together() -> None:
    body = body_of(
        delta(role="assistant", content=""),
        delta(
            tool_calls=[{"index": 0, "id": "c0", "type": "function", "function": {"name": "search", "arguments": ""}}]
        ),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city":'}}]),
        delta(tool_calls=[{"index": 1, "id": "c1", "function": {"name": "book", "arguments": "{}"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ' "Oslo"}'}}]),
        delta(finish="tool_calls"),
    )
    message = body["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "c0", "type": "function", "function": {"name": "search", "arguments": '{"city": "Oslo"}'}},
        {"id": "c1", "type": "function", "function": {"name": "book", "arguments": "{}"}},
    ]


def test_choices_of_a_stream_are_kept_apart() -> None:
    body = body_of(
        delta(index=0, content="a"), delta(index=1, content="x"), delta(index=0, content="b", finish="stop"),
        delta(index=1, finish="stop"),
    )  # fmt: skip
    assert [choice["message"]["content"] for choice in body["choices"]] == ["ab", "x"]


def test_usage_of_a_stream_comes_from_its_last_event() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    body = body_of(delta(content="a", finish="stop"), {"id": "r", "choices": [], "usage": usage})
    assert body["usage"] == usage


def test_a_text_completion_is_merged_too() -> None:
    body = body_of(
        {"id": "r", "choices": [{"index": 0, "text": "a", "finish_reason": None}]},
        {"id": "r", "choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]},
        path="/v1/completions",
    )
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", "ab")


def test_a_responses_stream_repeats_itself_at_its_end() -> None:
    exchange = exchange_from_raw(
        raw(
            response=stream(
                {"type": "response.created", "response": {"id": "resp_1"}},
                {"type": "response.completed", "response": {"id": "resp_1", "output": [1]}},
                done=False,
            ),
            content_type=SSE,
            path="/v1/responses",
        )
    )
    assert json.loads(exchange.response) == {"id": "resp_1", "output": [1]}
    assert (exchange.response_id, exchange.complete) == ("resp_1", True)


def test_a_stream_without_its_end_is_not_complete() -> None:
    cut = b"".join(stream_pieces(tokens=True)[:3])
    exchange = exchange_from_raw(raw(response=cut, content_type=SSE, complete=False, problem="client_left"))
    assert not exchange.complete
    assert exchange.response_id == "chatcmpl-stream"
    assert ids_array(exchange.response_ids).tolist() == [0, 1]


def test_a_client_that_leaves_at_the_end_mark_had_it_all() -> None:
    body = b"".join(stream_pieces(tokens=True))
    left = raw(response=body, content_type=SSE, complete=False, problem="client_left")
    assert exchange_from_raw(left).complete
    broke = raw(response=body, content_type=SSE, complete=False, problem="upstream_broke")
    assert not exchange_from_raw(broke).complete


@pytest.mark.parametrize("finish", ["abort", "error"])
def test_an_answer_that_the_engine_aborted_is_not_complete(finish: str) -> None:
    body = completion(tokens=True)
    body["choices"][0]["finish_reason"] = finish
    assert not exchange_from_raw(raw(response=body)).complete


def test_an_error_event_in_a_stream_is_told() -> None:
    exchange = exchange_from_raw(
        raw(response=stream(delta(content="a"), {"error": {"message": "engine died"}}), content_type=SSE)
    )
    assert not exchange.complete
    assert exchange.error == "the engine broke off: engine died"


def test_more_than_one_choice_has_no_tokens() -> None:
    body = completion(tokens=True)
    body["choices"] *= 2
    assert exchange_from_raw(raw(response=body)).response_ids == b""


@pytest.mark.parametrize("missing", ["token_ids", "logprobs"])
def test_tokens_without_log_probs_or_the_other_way_round_are_none(missing: str) -> None:
    body = completion(tokens=True)
    body["choices"][0][missing] = None
    exchange = exchange_from_raw(raw(response=body))
    assert (exchange.prompt_ids, exchange.response_ids, exchange.logprobs) == (b"", b"", b"")


def test_lengths_that_differ_are_told_and_give_no_tokens() -> None:
    body = completion(tokens=True)
    body["choices"][0]["token_ids"].append(6)
    exchange = exchange_from_raw(raw(response=body))
    assert exchange.response_ids == b""
    assert (exchange.error, exchange.why_no_tokens) == ("", "token ids and log-probs differ in number")


def test_a_label_that_is_no_version_of_ours_is_minus_one() -> None:
    body = completion(tokens=True)
    body["choices"][0]["weight_versions"] = [{"version": "default", "start": 0, "end": 99}]
    assert exchange_from_raw(raw(response=body)).versions == (VersionSpan(-1, 0, 6),)


def test_hints_come_from_headers_and_bodies() -> None:
    metadata = {"trajectory_id": "body", "evolved_id": "mine"}
    asked = {"metadata": metadata, "previous_response_id": "resp_0", "conversation": {"id": "conv_1"}}
    assert exchange_from_raw(raw(asked)).hints == Hints(
        trajectory_id="body", custom_id="mine", previous_response_id="resp_0", conversation="conv_1"
    )
    header = Hints(trajectory_id="header")
    assert exchange_from_raw(raw(asked, hints=header)).hints.trajectory_id == "header"


@pytest.mark.parametrize(
    ("asked", "sampling"),
    [
        ({}, Sampling()),
        ({"temperature": 0, "top_p": 0.9}, Sampling(temperature=0.0, top_p=0.9)),
        ({"temperature": None, "tool_choice": "auto", "top_k": -1, "presence_penalty": 0}, Sampling()),
        ({"tool_choice": "required"}, FORCED),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, FORCED),
        ({"tool_choice": {"type": "any"}}, FORCED),
        ({"tool_choice": {"type": "auto"}}, Sampling()),
        ({"response_format": {"type": "json_object"}}, SHAPED),
        ({"text": {"format": {"type": "json_schema"}}}, SHAPED),
        ({"text": {"format": {"type": "text"}}}, Sampling()),
        ({"response_format": {"type": "text"}}, Sampling()),
        ({"guided_regex": "a+"}, SHAPED),
        ({"top_k": 20, "min_p": 0.1}, Sampling(top_k=20, min_p=0.1)),
        ({"repetition_penalty": 1.1, "top_p": True}, Sampling(repetition_penalty=1.1)),
        ({"presence_penalty": 0.5, "frequency_penalty": 0.2}, Sampling(presence_penalty=0.5, frequency_penalty=0.2)),
        ({"temperature": "0.7", "top_k": "20", "top_p": "all"}, Sampling(temperature=0.7, top_k=20)),
        ({"logit_bias": {}}, Sampling()),
        ({"logit_bias": {"5": 3}, "tool_choice": "required"}, Sampling(forced=True, bent_by="logit_bias")),
        ({"watermarking": True}, Sampling(forced=True, bent_by="watermarking")),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, STRICT),
        ({"tools": [{"type": "function", "name": "f", "strict": True}], "tool_choice": "auto"}, STRICT),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}], "tool_choice": "none"},
            Sampling(),
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": False}}, 3]}, Sampling()),
    ],
)
def test_how_it_was_sampled(asked: dict, sampling: Sampling) -> None:
    found = exchange_from_raw(raw(asked)).sampling
    assert msgspec.structs.replace(found, unsaid=()) == sampling


def test_numbers_that_no_engine_takes_lose_no_record() -> None:
    for asked in ({"top_k": 10**300}, {"top_k": 1e300, "temperature": -1e308}, {"min_p": -(10**400)}):
        found = exchange_from_raw(raw(asked, status=400))
        assert decode(encode(found)) == found


def test_what_the_request_leaves_to_the_engine_is_named() -> None:
    found = exchange_from_raw(raw({"temperature": 0.7, "top_p": None, "min_p": 0, "presence_penalty": 0.0})).sampling
    assert found.unsaid == ("top_p", "top_k", "repetition_penalty", "frequency_penalty")


def test_a_compressed_response_is_read() -> None:
    packed = gzip.compress(json.dumps(completion(tokens=True)).encode())
    assert exchange_from_raw(raw(response=packed, content_encoding="gzip")).response_id == "chatcmpl-plain"


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_a_response_that_cannot_be_unpacked_is_kept_with_an_error(encoding: str) -> None:
    exchange = exchange_from_raw(raw(response=b"\x00\x01", content_encoding=encoding))
    assert "decompressed" in exchange.error


def test_a_response_that_is_no_json_is_kept_as_text() -> None:
    exchange = exchange_from_raw(raw(response=b"<html>bad gateway</html>", status=502))
    assert json.loads(exchange.response) == "<html>bad gateway</html>"
    assert exchange.error.startswith("response is no JSON")


def test_the_engines_own_error_is_readable() -> None:
    exchange = exchange_from_raw(raw(b"{", {"error": {"message": "no"}}, status=400))
    assert (exchange.error, exchange.status, exchange.request, exchange.model) == ("", 400, b"{", "")


def test_a_call_without_an_answer_says_why() -> None:
    exchange = exchange_from_raw(raw(response=b"", status=0, complete=False, problem="client_left"))
    assert (exchange.complete, exchange.error, exchange.response) == (False, "client_left", b"")


names = st.sampled_from(
    [
        "id", "model", "choices", "index", "delta", "message", "content", "tool_calls", "function", "name", "arguments",
        "token_ids", "prompt_token_ids", "logprobs", "logprob", "weight_versions", "version", "start", "end", "usage",
        "finish_reason", "error", "type", "response", "messages", "metadata", "trajectory_id", "role", "tool_call_id",
        "text", "tool_choice", "response_format", "temperature", "top_k", "function_call",
    ]
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
bodies = st.binary(max_size=40) | anything.map(lambda value: json.dumps(value).encode())


@given(request=bodies, response=bodies, plain=st.booleans(), encoding=st.sampled_from(["", "gzip", "br"]))
def test_no_body_is_too_strange(request: bytes, response: bytes, plain: bool, encoding: str) -> None:
    kind = "application/json" if plain else SSE
    exchange = exchange_from_raw(raw(request, response, content_type=kind, content_encoding=encoding))
    assert exchange.id == "0" * 32
    assert len(exchange.response_ids) == len(exchange.logprobs)


@given(events=st.lists(anything | st.lists(anything, max_size=2).map(lambda c: {"choices": c}), max_size=5))
def test_no_stream_is_too_strange(events: list[object]) -> None:
    exchange = exchange_from_raw(raw(response=stream(*events), content_type=SSE))
    assert json.loads(exchange.response or b"null") is not ...
