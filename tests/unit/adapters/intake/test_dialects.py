"""Streams of every dialect become what the plain call gives; tokens come from where the engine gives them."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Exchange, Hints, VersionSpan, floats_array, ids_array
from actors.messages.dialects import ENDINGS
from actors.messages.spool import RawExchange
from adapters.intake.dialects import DIALECTS, dialect_of
from adapters.intake.tap import exchange_from_raw

SSE = "text/event-stream"


def seen(path: str, answer: object, request: object = None, **fields: Any) -> Exchange:
    """The exchange of a call at `path`; a list is a stream of its events."""
    streamed = isinstance(answer, list)
    events = answer if streamed else []
    body = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
    values = {
        "id": "0" * 32, "path": path, "request": json.dumps(request or {}).encode(), "status": 200, "received": 1.0,
        "finished": 2.0, "content_type": SSE if streamed else "application/json",
        "response": body if streamed else json.dumps(answer).encode(),
    }  # fmt: skip
    return exchange_from_raw(RawExchange(**values | fields))


WHOLE = {
    "id": "resp_1",
    "status": "completed",
    "output": [
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "let me"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":2}'},
    ],
}
RESPONSES = [
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**WHOLE["output"][0], "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "let "},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "me"},
    {"type": "response.output_item.done", "output_index": 0, "item": WHOLE["output"][0]},
    {"type": "response.output_item.added", "output_index": 1, "item": {**WHOLE["output"][1], "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a"'},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ":2}"},
    {"type": "response.output_item.done", "output_index": 1, "item": WHOLE["output"][1]},
    {"type": "response.completed", "response": WHOLE},
]


def test_a_responses_stream_is_the_plain_response() -> None:
    streamed, plain = seen("/v1/responses", RESPONSES), seen("/v1/responses", WHOLE)
    assert json.loads(streamed.response) == json.loads(plain.response)
    assert (streamed.complete, streamed.error, streamed.response_id) == (True, "", "resp_1")


@pytest.mark.parametrize("length", range(1, len(RESPONSES)))
def test_a_responses_stream_that_was_cut_keeps_what_had_come(length: int) -> None:
    exchange = seen("/v1/responses", RESPONSES[:length])
    body = json.loads(exchange.response)
    assert (exchange.complete, exchange.response_id) == (False, "resp_1")
    texts = [part["text"] for item in body["output"] for part in item.get("content", ())]
    assert texts == ["let me"[: 4 * (length > 2) + 2 * (length > 3)]] * (length > 2)
    calls = [item["arguments"] for item in body["output"] if item["type"] == "function_call"]
    assert calls == ['{"a":2}'[: 4 * (length > 6) + 3 * (length > 7)]] * (length > 5)


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress"])
def test_a_response_that_did_not_end_is_not_complete(status: str) -> None:
    failed = {**WHOLE, "status": status, "error": {"message": "out of memory"} if status == "failed" else None}
    assert not seen("/v1/responses", failed).complete
    events = [*RESPONSES[:-1], {"type": f"response.{status}", "response": failed}]
    assert not seen("/v1/responses", events).complete


def test_a_response_cut_at_its_limit_is_complete() -> None:
    assert seen("/v1/responses", {**WHOLE, "status": "incomplete"}).complete


def test_an_error_event_of_the_responses_api_is_told() -> None:
    exchange = seen("/v1/responses", [*RESPONSES[:3], {"type": "error", "message": "engine died"}])
    assert (exchange.complete, exchange.error) == (False, "the engine broke off: engine died")


MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 9},
    "content": [
        {"type": "thinking", "thinking": "hm, add", "signature": "sig"},
        {"type": "text", "text": "let me"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
    ],
}  # fmt: skip
BLOCKS = [
    {"type": "message_start", "message": {
        **MESSAGE, "content": [], "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm, "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "add"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "let me"}},
    {"type": "content_block_start", "index": 2, "content_block": {**MESSAGE["content"][2], "input": {}}},
    {"type": "content_block_start", "index": 3, "content_block": MESSAGE["content"][3]},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": 2}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]  # fmt: skip


def test_a_messages_stream_is_the_plain_message() -> None:
    streamed, plain = seen("/v1/messages", BLOCKS), seen("/v1/messages", MESSAGE)
    assert json.loads(streamed.response) == json.loads(plain.response)
    assert (streamed.complete, streamed.error, streamed.response_id) == (True, "", "msg_1")


TOKENS = {
    "prompt_token_ids": [1, 2], "token_ids": [3, 4], "logprobs": [-0.5, -1.0],
    "weight_versions": [{"version": "7", "start": 0, "end": 2}],
}  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
def test_a_message_has_the_tokens_that_the_plug_in_tells_and_is_kept_without_them(streamed: bool) -> None:
    told = [*BLOCKS[:-1], {"type": "evolved_tokens", **TOKENS}, BLOCKS[-1]]
    answer = told if streamed else {**MESSAGE, "evolved_tokens": TOKENS}
    exchange = seen("/v1/messages", answer, tokens_requested=True)
    assert ids_array(exchange.prompt_ids).tolist() == [1, 2]
    assert ids_array(exchange.response_ids).tolist() == [3, 4]
    assert floats_array(exchange.logprobs).tolist() == [-0.5, -1.0]
    assert [(span.version, span.start, span.end) for span in exchange.versions] == [(7, 0, 2)]
    assert (exchange.why_no_tokens, exchange.complete) == ("", True)
    assert json.loads(exchange.response) == MESSAGE


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (None, "no token ids from /v1/messages"),
        ({**TOKENS, "logprobs": [-0.5]}, "token ids and log-probs differ in number"),
        ({"token_ids": [1]}, "token fields of an unknown form"),
        ("x", "token fields of an unknown form"),
    ],
    ids=str,
)
def test_a_message_without_readable_tokens_says_why(tokens: object, why: str) -> None:
    exchange = seen("/v1/messages", {**MESSAGE, "evolved_tokens": tokens})
    assert (exchange.response_ids, exchange.why_no_tokens) == (b"", why)


@pytest.mark.parametrize("length", range(1, len(BLOCKS)))
def test_a_messages_stream_that_was_cut_keeps_what_had_come(length: int) -> None:
    exchange = seen("/v1/messages", BLOCKS[:length])
    assert (exchange.complete, exchange.error, exchange.response_id) == (False, "", "msg_1")
    thoughts = [block["thinking"] for block in json.loads(exchange.response)["content"] if block["type"] == "thinking"]
    assert thoughts == ["hm, add"[: 4 * (length > 3) + 3 * (length > 4)]] * (length > 1)


def test_an_error_event_of_the_messages_api_is_told() -> None:
    over = {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}
    exchange = seen("/v1/messages", [*BLOCKS[:5], over])
    assert (exchange.complete, exchange.error) == (False, "the engine broke off: overloaded")


def test_one_bad_event_does_not_cost_the_others() -> None:
    body = b'data: {"id":"r","choices":[{"delta":{"content":"a"}}]}\n\ndata: {"id":"r","cho\n\n'
    exchange = seen("/v1/chat/completions", None, response=body, content_type=SSE)
    assert json.loads(exchange.response)["choices"][0]["message"]["content"] == "a"
    assert (exchange.complete, exchange.error) == (False, "1 events that are no JSON")


def test_every_dialect_of_the_table_is_read_under_its_name() -> None:
    assert [dialect_of("/v1" + ending) for ending in ENDINGS] == list(DIALECTS.values())
    assert [dialect.name for dialect in DIALECTS.values()] == list(DIALECTS)
    assert dialect_of("/v1/embeddings").name == "plain"


def test_embeddings_and_unknown_paths_are_kept_as_they_came() -> None:
    vectors = {"object": "list", "data": [{"embedding": [0.1, 0.2]}]}
    exchange = seen("/v1/embeddings", vectors, {"input": "x", "model": "e"})
    assert (json.loads(exchange.response), exchange.model, exchange.error) == (vectors, "e", "")
    assert (exchange.why_no_tokens, exchange.complete) == ("no conversation", True)


def completion(**choice: Any) -> dict:
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": " upon", "finish_reason": "stop", **choice}]}


TOLD = {"token_ids": [4, 5], "prompt_token_ids": [1, 2, 3], "logprobs": {"token_logprobs": [-0.5, -1.0], "tokens": []}}


def test_tokens_of_a_text_completion() -> None:
    exchange = seen("/v1/completions", completion(**TOLD), {"prompt": "once"}, tokens_requested=True)
    assert (ids_array(exchange.prompt_ids).tolist(), ids_array(exchange.response_ids).tolist()) == ([1, 2, 3], [4, 5])
    assert floats_array(exchange.logprobs).tolist() == [-0.5, -1.0]
    assert json.loads(exchange.response) == completion(logprobs=None)


def test_tokens_of_a_streamed_text_completion_are_those_of_the_plain_one() -> None:
    events = [
        completion(token_ids=[4], prompt_token_ids=[1, 2, 3], text=" up", finish_reason=None,
                   logprobs={"token_logprobs": [-0.5], "tokens": []}),
        completion(token_ids=[5], text="on", logprobs={"token_logprobs": [-1.0], "tokens": []}),
    ]  # fmt: skip
    streamed, plain = seen("/v1/completions", events), seen("/v1/completions", completion(**TOLD))
    assert (streamed.prompt_ids, streamed.response_ids, streamed.logprobs) == (
        plain.prompt_ids, plain.response_ids, plain.logprobs,
    )  # fmt: skip
    assert json.loads(streamed.response)["choices"] == json.loads(plain.response)["choices"]


def test_tokens_of_the_responses_api_are_taken_only_with_a_log_prob_for_each() -> None:
    """vLLM names ids under `enable_response_messages`; its plug-in lays log-probs and versions beside them."""
    said = {
        "type": "raw_message_tokens", "message": "hm", "tokens": [4, 5], "logprobs": [-0.5, -1.0],
        "weight_versions": [{"version": "7", "start": 0, "end": 2}],
    }  # fmt: skip
    asked = {"type": "raw_message_tokens", "message": "x", "tokens": [1, 2, 3]}
    body = {**WHOLE, "input_messages": [asked], "output_messages": [said]}
    exchange = seen("/v1/responses", body)
    assert (ids_array(exchange.prompt_ids).tolist(), ids_array(exchange.response_ids).tolist()) == ([1, 2, 3], [4, 5])
    assert (exchange.logprobs, exchange.versions) == (struct.pack("<2f", -0.5, -1.0), (VersionSpan(7, 0, 2),))

    def why(*pieces: dict[str, object]) -> str:
        exchange = seen("/v1/responses", {**body, "output_messages": pieces})
        assert exchange.response_ids == b""
        return exchange.why_no_tokens

    assert why(said | {"tokens": [4, 5, 6]}) == "token ids and log-probs differ in number"
    assert why(said | {"logprobs": None}) == "no log-probs from /v1/responses"
    assert why(said, said) == "several rounds in one call of /v1/responses"
    assert why({"role": "assistant", "content": "of harmony"}) == "no token ids from /v1/responses"


@pytest.mark.parametrize(
    ("path", "response"),
    [
        ("/v1/chat/completions", {"choices": [{"message": {"content": "x"}}]}),
        ("/v1/completions", completion()),
        ("/v1/responses", WHOLE),
        ("/v1/messages", MESSAGE),
    ],
)
def test_who_gives_no_token_ids_is_named(path: str, response: dict) -> None:
    exchange = seen(path, response)
    assert (exchange.response_ids, exchange.why_no_tokens) == (b"", f"no token ids from {path}")


def test_log_probs_that_are_missing_or_not_finite_are_told() -> None:
    missing = completion(**TOLD | {"logprobs": None})
    assert seen("/v1/completions", missing).why_no_tokens == "no log-probs from /v1/completions"
    echoed = completion(**TOLD | {"logprobs": {"token_logprobs": [None, -1.0]}})
    assert seen("/v1/completions", echoed).why_no_tokens == "no log-probs from /v1/completions"
    low = completion(**TOLD | {"logprobs": {"token_logprobs": [-1e39, -1.0]}})
    assert seen("/v1/completions", low).why_no_tokens == "log-probs that are not finite"
    strange = completion(**TOLD | {"token_ids": ["a"]})
    assert seen("/v1/completions", strange).why_no_tokens == "token fields of an unknown form"


@pytest.mark.parametrize("part", ["prompt", "response"])
def test_redacted_parts_leave_no_tokens(part: str) -> None:
    exchange = seen("/v1/completions", completion(**TOLD), redacted=(part,), finds={"email": 1})
    assert (exchange.prompt_ids, exchange.response_ids, exchange.logprobs) == (b"", b"", b"")
    assert (exchange.why_no_tokens, exchange.finds) == (f"redacted {part}", {"email": 1})


def test_a_mirrored_request_has_no_response_and_nothing_is_wrong_with_it() -> None:
    exchange = seen("/v1/messages", None, {"model": "m"}, response=b"", status=0, source="mirror", content_type="")
    assert (exchange.source, exchange.status, exchange.response, exchange.error) == ("mirror", 0, b"", "")
    assert (exchange.complete, exchange.model) == (True, "m")


def test_the_headers_id_of_a_call_goes_before_the_bodys() -> None:
    asked = {"metadata": {"evolved_id": "body"}, "conversation": "conv_1"}
    assert seen("/v1/responses", WHOLE, asked).hints == Hints(custom_id="body", conversation="conv_1")
    assert seen("/v1/responses", WHOLE, asked, hints=Hints(custom_id="header")).hints.custom_id == "header"


names = st.sampled_from(
    ["type", "response", "item", "output_index", "delta", "output", "content", "message", "content_block", "index",
     "choices", "error", "usage", "status", "id", "logprobs", "tokens", "output_messages", "input_messages"]
)  # fmt: skip
words = st.sampled_from(
    ["response.created", "response.completed", "response.output_item.added", "response.output_text.delta", "error",
     "message_start", "content_block_start", "content_block_delta", "message_delta", "text_delta", "input_json_delta"]
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=15,
)


@given(
    events=st.lists(anything, max_size=6),
    path=st.sampled_from(["/v1/responses", "/v1/messages", "/v1/completions", "/v1/embeddings", "/x"]),
)
def test_no_stream_is_too_strange(events: list[object], path: str) -> None:
    for response in (events, {"output": events}, events[0] if events else {}):
        exchange = seen(path, response)
        assert len(exchange.response_ids) == len(exchange.logprobs)
