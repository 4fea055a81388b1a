"""Raw bytes become the exchange that the agent saw: streams of every dialect are what the plain call gives, tokens come
from where the engine gives them, and what cannot be read is kept and says so."""

import copy
import gzip
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from actors.messages import Exchange, Hints, Sampling, VersionSpan, decode, encode, floats_array, ids_array
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.tap import read_call
from adapters.redaction import RedactionSettings, Redactor
from tests.support.engine import completion, stream_pieces

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
SPANS = [{"version": "7", "start": 0, "end": 2}]


def seen(path: str, answer: object, request: object = None, **fields: Any) -> Exchange:
    """What the recorder reads in a call, as `raw` has it."""
    encoding = fields.pop("encoding", "")
    return read_call(raw(path, answer, request, **fields), encoding=encoding)


def raw(path: str, answer: object, request: object = None, **fields: Any) -> Exchange:
    """A call at `path`; a list is a stream of its events, bytes are the body as it came."""
    streamed = isinstance(answer, list)
    events = answer if streamed else []
    body = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
    values = {
        "id": "0" * 32, "endpoint": path, "engine": "serving", "status": 200, "started": 10.0, "duration": 2.5,
        "request": request if isinstance(request, bytes) else json.dumps(request or {}).encode(),
        "streamed": streamed,
        "response": answer if isinstance(answer, bytes) else body if streamed else json.dumps(answer).encode(),
    }  # fmt: skip
    return Exchange(**values | fields)


def tokens(exchange: Exchange) -> tuple[Any, ...]:
    """Prompt, answer and log-probs, and why there are none."""
    arrays = ids_array(exchange.prompt_ids), ids_array(exchange.response_ids), floats_array(exchange.logprobs)
    return (*(array.tolist() for array in arrays), exchange.why_no_tokens)


def chosen(finish: str | None = None, index: int = 0, **delta: object) -> dict:
    return {"id": "chat_1", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def tool(key: str, name: str, arguments: str) -> dict:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
CHATTED = {
    "id": "chat_1", "object": "chat.completion", "usage": USAGE,
    "choices": [
        {"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": {
            "role": "assistant", "content": None,
            "tool_calls": [tool("c0", "search", '{"city": "Oslo"}'), tool("c1", "book", "{}")]}},
        {"index": 1, "finish_reason": "stop", "logprobs": None, "message": {"role": "assistant", "content": "ab"}},
    ],
}  # fmt: skip
CHUNKS = [
    chosen(role="assistant", content=""),
    chosen(tool_calls=[{"index": 0, **tool("c0", "search", "")}]),
    chosen(tool_calls=[{"index": 0, "function": {"arguments": '{"city":'}}]),
    chosen(index=1, content="a"),
    chosen(tool_calls=[{"index": 1, **tool("c1", "book", "{}")}]),
    chosen(tool_calls=[{"index": 0, "function": {"arguments": ' "Oslo"}'}}]),
    chosen(finish="tool_calls"),
    chosen(index=1, content="b", finish="stop"),
    {"id": "chat_1", "choices": [], "usage": USAGE},
]
WHOLE: dict[str, Any] = {
    "id": "resp_1",
    "status": "completed",
    "output": [
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "let me"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":2}'},
    ],
}
ITEMS = [
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
MESSAGE: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 9},
    "content": [
        {"type": "thinking", "thinking": "hm, add", "signature": "sig"},
        {"type": "text", "text": "let me"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
    ],
}  # fmt: skip


def block(index: int, **delta: str) -> dict:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def opened(index: int, content: dict) -> dict:
    return {"type": "content_block_start", "index": index, "content_block": content}


BLOCKS = [
    {"type": "message_start", "message": {
        **MESSAGE, "content": [], "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 1}}},
    opened(0, {"type": "thinking", "thinking": "", "signature": ""}),
    {"type": "ping"},
    block(0, type="thinking_delta", thinking="hm, "),
    block(0, type="thinking_delta", thinking="add"),
    block(0, type="signature_delta", signature="sig"),
    {"type": "content_block_stop", "index": 0},
    opened(1, {"type": "text", "text": ""}),
    block(1, type="text_delta", text="let me"),
    opened(2, {**MESSAGE["content"][2], "input": {}}),
    opened(3, MESSAGE["content"][3]),
    block(2, type="input_json_delta", partial_json='{"a"'),
    block(3, type="input_json_delta", partial_json=""),
    block(2, type="input_json_delta", partial_json=": 2}"),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]  # fmt: skip
STREAMS: dict[str, tuple[list, dict]] = {
    CHAT: (CHUNKS, CHATTED), RESPONSES: (ITEMS, WHOLE), MESSAGES: (BLOCKS, MESSAGE),
}  # fmt: skip


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_is_the_plain_response(path: str) -> None:
    events, whole = STREAMS[path]
    exchange = seen(path, events)
    assert json.loads(exchange.response) == whole
    assert (exchange.complete, exchange.error, exchange.response_id) == (True, "", whole["id"])


@pytest.mark.parametrize("length", range(1, len(ITEMS)))
def test_a_responses_stream_that_was_cut_keeps_what_had_come(length: int) -> None:
    exchange = seen(RESPONSES, ITEMS[:length])
    output = json.loads(exchange.response)["output"]
    assert (exchange.complete, exchange.response_id) == (False, "resp_1")
    texts = [part["text"] for item in output for part in item.get("content", ())]
    assert texts == ["let me"[: 4 * (length > 2) + 2 * (length > 3)]] * (length > 2)
    calls = [item["arguments"] for item in output if item["type"] == "function_call"]
    assert calls == ['{"a":2}'[: 4 * (length > 6) + 3 * (length > 7)]] * (length > 5)


def test_an_event_of_an_unknown_form_costs_nothing_of_a_response_that_ended() -> None:
    exchange = seen(RESPONSES, [*ITEMS[:4], {"type": "response.novel", "item": [3]}, *ITEMS[4:]])
    assert (json.loads(exchange.response), exchange.complete, exchange.error) == (WHOLE, True, "")


@pytest.mark.parametrize("length", range(1, len(BLOCKS)))
def test_a_messages_stream_that_was_cut_keeps_what_had_come(length: int) -> None:
    exchange = seen(MESSAGES, BLOCKS[:length])
    assert (exchange.complete, exchange.error, exchange.response_id) == (False, "", "msg_1")
    thoughts = [part["thinking"] for part in json.loads(exchange.response)["content"] if part["type"] == "thinking"]
    assert thoughts == ["hm, add"[: 4 * (length > 3) + 3 * (length > 4)]] * (length > 1)


@pytest.mark.parametrize(
    ("path", "events", "told"),
    [
        (CHAT, [chosen(content="a"), {"error": {"message": "engine died"}}], "the engine broke off: engine died"),
        (RESPONSES, [*ITEMS[:3], {"type": "error", "message": "engine died"}], "the engine broke off: engine died"),
        (MESSAGES, [*BLOCKS[:5], {"type": "error", "error": {"message": "overloaded"}}],
         "the engine broke off: overloaded"),
    ],
)  # fmt: skip
def test_an_error_event_is_told(path: str, events: list, told: str) -> None:
    exchange = seen(path, events)
    assert (exchange.complete, exchange.error) == (False, told)


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress", "incomplete"])
def test_a_response_is_complete_only_if_it_ended_or_reached_its_limit(status: str) -> None:
    ended = {**WHOLE, "status": status, "error": {"message": "out of memory"} if status == "failed" else None}
    assert seen(RESPONSES, ended).complete == (status == "incomplete")
    streamed = seen(RESPONSES, [*ITEMS[:-1], {"type": f"response.{status}", "response": ended}])
    assert streamed.complete == (status == "incomplete")


def test_a_chat_stream_without_its_end_is_not_complete() -> None:
    pieces = stream_pieces(tokens=True)
    assert seen(CHAT, b"".join(pieces), streamed=True, complete=False, error="client_left").complete, "all was out"
    assert not seen(CHAT, b"".join(pieces), streamed=True, complete=False, error="upstream_broke").complete
    cut = seen(CHAT, b"".join(pieces[:3]), streamed=True, complete=False, error="client_left")
    assert (cut.complete, cut.response_id, ids_array(cut.response_ids).tolist()) == (False, "chatcmpl-stream", [0, 1])
    for finish in ("abort", "error"):
        body = completion(tokens=True)
        body["choices"][0]["finish_reason"] = finish
        assert not seen(CHAT, body).complete


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every dict or list in `value`, with every key and index of it."""
    if isinstance(value, dict | list):
        for key in range(len(value)) if isinstance(value, list) else [*value]:
            yield value, key
            yield from places(value[key])


ASKED = {
    "messages": [CHATTED["choices"][0]["message"], MESSAGE], "input": WHOLE["output"], "prompt": ["x"], "system": "x",
    "tools": [tool("c0", "search", "{}")], "metadata": {"trajectory_id": "t"}, "conversation": {"id": "c"},
}  # fmt: skip
"""What a call of any dialect may ask."""


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [3], {"a": {}}], ids=repr)
@pytest.mark.parametrize("path", STREAMS)
def test_whatever_stands_in_one_place_the_call_is_kept_and_read(path: str, junk: object) -> None:
    asked, (events, whole) = copy.deepcopy((ASKED, STREAMS[path]))
    for holder, key in [*places(asked), *places(whole), *places(events)]:
        holder[key], kept = junk, holder[key]
        for answer in (events, whole):
            exchange = seen(path, answer, asked)
            assert exchange.response
            assert read_turn(exchange).id == exchange.id
        holder[key] = kept


def test_one_bad_event_does_not_cost_the_others() -> None:
    body = b'data: {"id":"r","choices":[{"delta":{"content":"a"}}]}\n\ndata: {"id":"r","cho\n\n'
    exchange = seen(CHAT, body, streamed=True)
    assert json.loads(exchange.response)["choices"][0]["message"]["content"] == "a"
    assert (exchange.complete, exchange.error) == (False, "1 events that are no JSON")


def test_other_endpoints_are_kept_as_they_came() -> None:
    vectors = {"object": "list", "data": [{"embedding": [0.1, 0.2]}]}
    exchange = seen("/v1/embeddings", vectors, {"input": "x", "model": "e"})
    assert (json.loads(exchange.response), exchange.model, exchange.error) == (vectors, "e", "")
    assert (exchange.why_no_tokens, exchange.complete) == ("no conversation", True)
    assert (exchange.id, exchange.engine, exchange.endpoint) == ("0" * 32, "serving", "/v1/embeddings")
    assert (exchange.started, exchange.duration, exchange.status, exchange.tenant) == (10.0, 2.5, 200, "default")


# Tokens


def text_completion(**choice: Any) -> dict:
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": " upon", "finish_reason": "stop", **choice}]}


LOGPROBS = {"token_logprobs": [-0.5, -1.0], "tokens": []}
COMPLETED = text_completion(token_ids=[4, 5], prompt_token_ids=[1, 2, 3], logprobs=LOGPROBS)
COMPLETED_IN_PIECES = [
    text_completion(token_ids=[4], prompt_token_ids=[1, 2, 3], text=" up", finish_reason=None,
                    logprobs={"token_logprobs": [-0.5], "tokens": []}),
    text_completion(token_ids=[5], text="on", logprobs={"token_logprobs": [-1.0], "tokens": []}),
]  # fmt: skip
BESIDE = {"prompt_token_ids": [1, 2], "token_ids": [3, 4], "logprobs": [-0.5, -1.0], "weight_versions": SPANS}
"""What our plug-in tells beside a message."""
PIECE = {
    "type": "raw_message_tokens", "message": "hm", "tokens": [4, 5], "logprobs": [-0.5, -1.0], "weight_versions": SPANS,
}  # fmt: skip
"""vLLM names ids under `enable_response_messages`; its plug-in lays log-probs and versions beside them."""
ASKED_RAW = {"type": "raw_message_tokens", "message": "x", "tokens": [1, 2, 3]}
NEW, OLD = (VersionSpan(7, 0, 2),), ()
CHAT_TOKENS = ([7, 8, 9], [0, 1, 2, 3, 4, 5], [0, -0.5, -1, -1.5, -2, -2.5], "")
TOLD: dict[str, tuple[str, object, tuple, tuple, dict]] = {
    "chat": (
        CHAT, completion(tokens=True), CHAT_TOKENS, (VersionSpan(3, 0, 2), VersionSpan(4, 2, 6)),
        completion(tokens=False),
    ),
    "chat, streamed": (
        CHAT, [json.loads(piece[6:]) for piece in stream_pieces(tokens=True)[:-1]], CHAT_TOKENS,
        (VersionSpan(3, 0, 6),), completion(tokens=False) | {"id": "chatcmpl-stream"},
    ),
    "messages": (MESSAGES, {**MESSAGE, "evolved_tokens": BESIDE}, ([1, 2], [3, 4], [-0.5, -1.0], ""), NEW, MESSAGE),
    "messages, streamed": (
        MESSAGES, [*BLOCKS[:-1], {"type": "evolved_tokens", **BESIDE}, BLOCKS[-1]],
        ([1, 2], [3, 4], [-0.5, -1.0], ""), NEW, MESSAGE,
    ),
    "completions": (COMPLETIONS, COMPLETED, ([1, 2, 3], [4, 5], [-0.5, -1.0], ""), OLD, text_completion(logprobs=None)),
    "completions, streamed": (
        COMPLETIONS, COMPLETED_IN_PIECES, ([1, 2, 3], [4, 5], [-0.5, -1.0], ""), OLD,
        {"object": "text_completion"} | text_completion(logprobs=None),
    ),
    "responses": (
        RESPONSES, {**WHOLE, "input_messages": [ASKED_RAW], "output_messages": [PIECE]},
        ([1, 2, 3], [4, 5], [-0.5, -1.0], ""), NEW, {**WHOLE, "input_messages": None, "output_messages": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("path", "answer", "found", "versions", "kept"), TOLD.values(), ids=TOLD)
def test_tokens_come_from_where_the_engine_tells_them(path, answer, found, versions, kept) -> None:
    exchange = seen(path, answer)
    assert tokens(exchange) == found
    assert (exchange.versions, exchange.complete, exchange.error) == (versions, True, "")
    assert exchange.streamed == isinstance(answer, list)
    assert json.loads(exchange.response) == kept


def test_what_the_client_asked_for_is_kept() -> None:
    asked = {"messages": [], "logprobs": True, "return_token_ids": True}
    body = json.loads(seen(CHAT, completion(tokens=True), asked).response)
    assert body["prompt_token_ids"] == [7, 8, 9]
    assert body["choices"][0]["token_ids"] == [0, 1, 2, 3, 4, 5]
    assert len(body["choices"][0]["logprobs"]["content"]) == 6


def chat(**choice: Any) -> dict:
    body = completion(tokens=True)
    body["choices"][0] |= choice
    return body


def raw_said(*pieces: dict) -> dict:
    return {**WHOLE, "input_messages": [ASKED_RAW], "output_messages": pieces}


DIFFER, UNKNOWN = "token ids and log-probs differ in number", "token fields of an unknown form"
NONE: list[tuple[str, object, str]] = [
    (CHAT, {"choices": [{"message": {"content": "x"}}]}, f"no token ids from {CHAT}"),
    (CHAT, chat(token_ids=None), f"no token ids from {CHAT}"),
    (CHAT, chat(logprobs=None), f"no log-probs from {CHAT}"),
    (CHAT, chat(token_ids=[*range(7)]), DIFFER),
    (CHAT, {**chat(), "choices": chat()["choices"] * 2}, "several choices"),
    (COMPLETIONS, text_completion(), f"no token ids from {COMPLETIONS}"),
    (COMPLETIONS, text_completion(token_ids=[4], prompt_token_ids=[1]), f"no log-probs from {COMPLETIONS}"),
    (COMPLETIONS, text_completion(token_ids=[4], prompt_token_ids=[1], logprobs={"token_logprobs": [None]}),
     f"no log-probs from {COMPLETIONS}"),
    (COMPLETIONS, text_completion(token_ids=[4], prompt_token_ids=[1], logprobs={"token_logprobs": [-1e39]}),
     "log-probs that are not finite"),
    (COMPLETIONS, text_completion(token_ids=["a"], prompt_token_ids=[1], logprobs=LOGPROBS), UNKNOWN),
    (RESPONSES, WHOLE, f"no token ids from {RESPONSES}"),
    (RESPONSES, raw_said(PIECE | {"tokens": [4, 5, 6]}), DIFFER),
    (RESPONSES, raw_said(PIECE | {"logprobs": None}), f"no log-probs from {RESPONSES}"),
    (RESPONSES, raw_said(PIECE, PIECE), f"several rounds in one call of {RESPONSES}"),
    (RESPONSES, raw_said({"role": "assistant", "content": "of harmony"}), f"no token ids from {RESPONSES}"),
    (MESSAGES, MESSAGE, f"no token ids from {MESSAGES}"),
    (MESSAGES, {**MESSAGE, "evolved_tokens": None}, f"no token ids from {MESSAGES}"),
    (MESSAGES, {**MESSAGE, "evolved_tokens": {**BESIDE, "logprobs": [-0.5]}}, DIFFER),
    (MESSAGES, {**MESSAGE, "evolved_tokens": {"token_ids": [1]}}, UNKNOWN),
    (MESSAGES, {**MESSAGE, "evolved_tokens": "x"}, UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("path", "answer", "why"), NONE)
def test_a_call_without_readable_tokens_says_why(path: str, answer: object, why: str) -> None:
    exchange = seen(path, answer)
    assert tokens(exchange) == ([], [], [], why)
    assert (exchange.complete, exchange.error) == (True, "")


def test_a_label_that_is_no_version_of_ours_is_minus_one() -> None:
    spans = [{"version": "default", "start": 0, "end": 99}]
    assert seen(CHAT, chat(weight_versions=spans)).versions == (VersionSpan(-1, 0, 6),)


@pytest.mark.parametrize("part", ["prompt", "response"])
def test_redacted_parts_of_a_dialect_that_masks_nothing_leave_no_tokens(part: str) -> None:
    mail = "ann@example.com"
    request, answer = ({"prompt": mail}, COMPLETED) if part == "prompt" else ({}, copy.deepcopy(COMPLETED))
    if part == "response":
        answer["choices"][0]["text"] = mail
    record = raw(COMPLETIONS, answer, request)
    exchange = read_call(record, Redactor(RedactionSettings()))
    assert (*tokens(exchange), exchange.finds) == ([], [], [], f"redacted {part}", {"email": 1})


# What stands around the answer


def test_a_mirrored_request_has_no_response_and_nothing_is_wrong_with_it() -> None:
    exchange = seen(MESSAGES, b"", {"model": "m"}, status=0, source="mirror")
    assert (exchange.source, exchange.status, exchange.response, exchange.error) == ("mirror", 0, b"", "")
    assert (exchange.complete, exchange.model) == (True, "m")


def test_hints_come_from_headers_and_bodies_and_the_header_goes_before() -> None:
    metadata = {"trajectory_id": "body", "evolved_id": "mine"}
    asked = {"metadata": metadata, "previous_response_id": "resp_0", "conversation": {"id": "conv_1"}}
    whole = Hints(trajectory_id="body", custom_id="mine", previous_response_id="resp_0", conversation="conv_1")
    assert seen(CHAT, WHOLE, asked).hints == whole
    assert seen(RESPONSES, WHOLE, asked | {"conversation": "conv_1"}).hints == whole
    header = Hints(trajectory_id="header", custom_id="theirs")
    found = seen(CHAT, WHOLE, asked, hints=header).hints
    assert (found.trajectory_id, found.custom_id) == ("header", "theirs")


@pytest.mark.parametrize(
    ("answer", "fields", "told", "kept"),
    [
        (b"<html>bad gateway</html>", {"status": 502}, "response is no JSON", "<html>bad gateway</html>"),
        (b"", {"status": 0, "complete": False, "error": "client_left"}, "client_left", None),
        (b"\x00\x01", {"encoding": "br"}, "decompressed", None),
        (b"\x00\x01", {"encoding": "gzip"}, "decompressed", None),
        ({"error": {"message": "no"}}, {"status": 400}, "", {"error": {"message": "no"}}),
        (gzip.compress(b'{"id": "packed"}', mtime=0), {"encoding": "gzip"}, "", {"id": "packed"}),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_kept_and_says_so(answer: object, fields: dict, told: str, kept: object) -> None:
    exchange = seen(CHAT, answer, b"{", **dict(fields))
    assert told in exchange.error
    assert bool(told) == bool(exchange.error)
    assert (json.loads(exchange.response) if exchange.response else None) == kept
    assert (exchange.request, exchange.model, exchange.status) == (b"{", "", fields.get("status", 200))


FORCED = Sampling(bent_by="forced tool choice")
SHAPED = Sampling(bent_by="structured output")
STRICT = Sampling(bent_by="strict tools")
STRICT_TOOLS = {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}


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
        ({"logit_bias": {"5": 3}, "tool_choice": "required"}, Sampling(bent_by="logit_bias")),
        ({"watermarking": True}, Sampling(bent_by="watermarking")),
        (STRICT_TOOLS, STRICT),
        ({"tools": [{"type": "function", "name": "f", "strict": True}], "tool_choice": "auto"}, STRICT),
        (STRICT_TOOLS | {"tool_choice": "none"}, Sampling()),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": False}}, 3]}, Sampling()),
    ],
)
def test_how_it_was_sampled(asked: dict, sampling: Sampling) -> None:
    assert msgspec.structs.replace(seen(CHAT, {}, asked).sampling, unsaid=()) == sampling


def test_what_the_request_leaves_to_the_engine_is_named() -> None:
    found = seen(CHAT, {}, {"temperature": 0.7, "top_p": None, "min_p": 0, "presence_penalty": 0.0}).sampling
    assert found.unsaid == ("top_p", "top_k", "repetition_penalty", "frequency_penalty")


def test_numbers_that_no_engine_takes_lose_no_record() -> None:
    for asked in ({"top_k": 10**300}, {"top_k": 1e300, "temperature": -1e308}, {"min_p": -(10**400)}):
        found = seen(CHAT, {}, asked, status=400)
        assert decode(encode(found)) == found
