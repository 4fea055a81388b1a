"""A secret that comes in pieces goes as if it had come whole, and what else is in the stream stays."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages.spool import RawExchange
from adapters.intake.tap import exchange_from_raw
from adapters.redaction import RedactionSettings, Redactor
from tests.support.plants import plants

pytestmark = pytest.mark.promise

MAIL = "ann.smith@example.com"
SSE = "text/event-stream; charset=utf-8"
PLANTS = [plant for plant in plants(23, 1) if not plant.held_out]


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(RedactionSettings())


def raw(response: bytes, content_type: str = SSE, prompt: str = "hi") -> RawExchange:
    request = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    return RawExchange(
        id="0" * 32, path="/v1/chat/completions", request=json.dumps(request).encode(), response=response, status=200,
        content_type=content_type, received=1.0, finished=2.0,
    )  # fmt: skip


def sse(events: list[Any], *, done: bool = True, newline: str = "\n") -> bytes:
    blocks = [f"data: {json.dumps(event)}{newline}{newline}" for event in events]
    return "".join([*blocks, f"data: [DONE]{newline}{newline}" if done else ""]).encode()


def chunk(delta: dict[str, Any], index: int = 0, **fields: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | fields
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [choice],
    }


def events(data: bytes) -> list[Any]:
    blocks = data.replace(b"\r\n", b"\n").split(b"\n\n")
    return [json.loads(block[6:]) for block in blocks if block.startswith(b"data: {")]


def pieces(text: str, sizes: list[int]) -> list[str]:
    found, at = [], 0
    while at < len(text):
        size = sizes[len(found) % len(sizes)]
        found.append(text[at : at + size])
        at += size
    return found


def merged(record: RawExchange) -> Any:
    return json.loads(exchange_from_raw(record).response)


@given(st.sampled_from(PLANTS), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=150)
def test_a_split_answer_reads_like_the_whole_one(plant: Any, sizes: list[int], newline: str) -> None:
    redactor = Redactor(RedactionSettings())
    arguments = json.dumps({"note": plant.text, "n": 1})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(plant.text, sizes)]
    deltas += [{"content": piece} for piece in pieces(plant.text, sizes)]
    deltas.append(
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}]}
    )
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces(arguments, sizes)]
    body = sse([*map(chunk, deltas), chunk({}, finish_reason="tool_calls")], newline=newline)
    streamed = redactor.exchange(raw(body))
    message = {
        "role": "assistant", "content": plant.text, "reasoning_content": plant.text,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}],
    }  # fmt: skip
    whole = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    plain = redactor.exchange(raw(json.dumps(whole).encode(), "application/json"))
    assert streamed.redacted == plain.redacted == ("response",)
    got = merged(streamed)["choices"][0]["message"]
    assert got == json.loads(plain.response)["choices"][0]["message"]
    assert plant.value not in json.dumps(got, ensure_ascii=False)
    assert redactor.exchange(streamed) == streamed


def test_two_choices_and_two_tool_calls_are_not_mixed(redactor: Redactor) -> None:
    def call(index: int, part: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "function": {"arguments": part}}]}

    body = sse(
        [
            chunk({"content": "ann.smith@"}), chunk({"content": "bob@"}, index=1), chunk({"content": "example.com"}),
            chunk({"content": "home"}, index=1), chunk(call(0, '{"a": "ann@')), chunk(call(1, '{"b": "x')),
            chunk(call(0, 'example.com"}')), chunk(call(1, '@"}')),
        ]
    )  # fmt: skip
    got = events(redactor.exchange(raw(body)).response)
    parts = [event["choices"][0]["delta"] for event in got]
    assert [part.get("content") for part in parts[:4]] == ["[REDACTED:email]", "bob@", "", "home"]
    arguments = [part["tool_calls"][0]["function"]["arguments"] for part in parts[4:]]
    assert arguments == ['{"a": "[REDACTED:email]', '{"b": "x', '"}', '@"}']


def test_a_redacted_stream_has_no_ids_of_the_find_and_keeps_the_bytes_of_events_that_had_none(
    redactor: Redactor,
) -> None:
    def tokens(piece: str) -> dict[str, Any]:
        entry = {"token": piece, "logprob": -1.0, "bytes": list(piece.encode()), "top_logprobs": []}
        return {"token_ids": [len(piece)], "logprobs": {"content": [entry]}}

    found = [chunk({"content": piece}, **tokens(piece)) for piece in ("to ann.", "smith@exam", "ple.com now")]
    body = b": hello\n\n" + sse(
        [found[0] | {"prompt_token_ids": [1, 2, 3]}, *found[1:], chunk({}, finish_reason="stop")]
    )
    after = redactor.exchange(raw(body))
    assert after.response.count(b'"token_ids":[-1]') == 3
    assert b'"bytes"' not in after.response
    assert b"prompt_token_ids" in after.response
    assert b"smith" not in after.response
    assert after.response.startswith(b": hello\n\ndata: {")
    assert after.response.endswith(b"data: [DONE]\n\n")
    assert merged(after)["choices"][0]["message"]["content"] == "to [REDACTED:email] now"


def test_a_redacted_prompt_takes_its_ids_out_of_the_stream_and_leaves_those_of_the_answer(redactor: Redactor) -> None:
    logprobs = {"content": [{"token": "hi", "logprob": -1.0}]}
    body = sse([chunk({"content": "hi"}, token_ids=[7], logprobs=logprobs) | {"prompt_token_ids": [1, 2]}])
    after = redactor.exchange(raw(body, prompt=MAIL))
    assert after.redacted == ("prompt",)
    assert b"prompt_token_ids" not in after.response
    assert b'"token_ids":[7]' in after.response


def test_a_clean_stream_is_the_very_same_record(redactor: Redactor) -> None:
    body = (
        b": ping\r\n\r\nevent: x\nid: 3\n"
        + sse([chunk({"content": "gr\u00fc\u00df dich"}, token_ids=[1])])
        + b"data: {brok"
    )
    record = raw(body)
    assert redactor.exchange(record) is record


def test_completions_come_in_pieces_too(redactor: Redactor) -> None:
    body = sse(
        [{"id": "cmpl-1", "choices": [{"index": 0, "text": piece}]} for piece in ("see ann@exa", "mple.com", " ok")]
    )
    texts = [event["choices"][0]["text"] for event in events(redactor.exchange(raw(body)).response)]
    assert texts == ["see [REDACTED:email]", "", " ok"]


def test_responses_events_are_redacted_in_pieces_and_where_they_repeat_the_whole(redactor: Redactor) -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    call = {"item_id": "fc_1", "output_index": 1}
    item = {
        "type": "message",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": f"to {MAIL}", "logprobs": [1]}],
    }
    arguments = json.dumps({"password": "sesame street 9".replace(" ", "")})
    function = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": arguments}
    body = sse(
        [
            {"type": "response.output_text.delta", "delta": "to ann.sm", **place, "logprobs": [{"token": "to ann.sm"}]},
            {"type": "response.output_text.delta", "delta": "ith@example.com", **place},
            {"type": "response.output_text.done", "text": f"to {MAIL}", **place},
            {"type": "response.function_call_arguments.delta", "delta": arguments[:20], **call},
            {"type": "response.function_call_arguments.delta", "delta": arguments[20:], **call},
            {"type": "response.function_call_arguments.done", "arguments": arguments, **call},
            {"type": "response.output_item.done", "item": function},
            {"type": "response.completed", "response": {"id": "resp_1", "output": [item, function]}},
        ],
        done=False,
    )
    after = redactor.exchange(raw(body))
    assert b"smith" not in after.response
    assert b"sesame" not in after.response
    assert b"logprobs" not in after.response
    got = events(after.response)
    assert [event["delta"] for event in got[:2]] == ["to [REDACTED:email]", ""]
    assert got[3]["delta"] + got[4]["delta"] == got[5]["arguments"] == '{"password": "[REDACTED:secret]"}'
    assert got[7]["response"]["output"][0]["content"][0]["text"] == "to [REDACTED:email]"


def test_anthropic_blocks_are_joined_each_for_itself(redactor: Redactor) -> None:
    def delta(index: int, **fields: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    stream = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        delta(0, type="text_delta", text="to ann@"),
        delta(0, type="text_delta", text="example.com"),
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "input": {}},
        },
        delta(1, type="input_json_delta", partial_json='{"mail": "ann@ex'),
        delta(1, type="input_json_delta", partial_json='ample.com"}'),
    ]
    body = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in stream)
    after = redactor.exchange(raw(body))
    got = [json.loads(block.partition(b"data: ")[2]) for block in after.response.split(b"\n\n") if block]
    assert [event["delta"].get("text") for event in got[1:3]] == ["to [REDACTED:email]", ""]
    assert got[4]["delta"]["partial_json"] + got[5]["delta"]["partial_json"] == '{"mail": "[REDACTED:email]"}'
    assert after.response.count(b"event: content_block_delta\ndata: ") == 4


def test_an_event_that_was_cut_off_is_searched_and_loses_its_ids(redactor: Redactor) -> None:
    whole = sse([chunk({"content": f"to {MAIL}"}, token_ids=[7])], done=False)
    assert b"smith" not in redactor.exchange(raw(whole[:-30])).response
    after = redactor.exchange(raw(whole + sse([chunk({"content": "x"}, token_ids=[8, 9])], done=False)[:-6]))
    assert b"token_ids" not in after.response
    assert len(events(after.response)) == 1
