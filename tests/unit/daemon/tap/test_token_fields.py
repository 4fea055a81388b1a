"""What only the tap had asked for is hidden in each dialect, and not a byte beside it changes."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tap.reply import ReplyParser
from daemon.tap.token_fields import TOKEN_FIELDS, HiddenAnswer
from tests.support.wire import chunk

CHAT, RESPONSES, MESSAGES = TOKEN_FIELDS, ("enable_response_messages",), ("evolved_tokens",)
LOGPROBS = {"content": [{"token": '"{\n', "logprob": -0.5, "bytes": [34, 123], "top_logprobs": []}]}


def compact(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def event(*, shown: bool, first: bool = False, content: str = 'é \u2028 \\ " "token_ids":[1]') -> bytes:
    choice = {
        "index": 0,
        "delta": {"role": "assistant", "content": ""} if first else {"content": content},
        "logprobs": LOGPROBS if shown and not first else None,
        "finish_reason": None,
    }
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    if first:
        body |= {"prompt_token_ids": [1, 2, 3] if shown else None}
    else:
        choice |= {"token_ids": [5, 6] if shown else None}
    return b"data: " + compact(body) + b"\n\n"


def chat_stream(shown: bool) -> bytes:
    return event(shown=shown, first=True) + event(shown=shown) * 3 + b": ping\n\n" + b"data: [DONE]\n\n"


def chat(shown: bool) -> bytes:
    choice = {
        "index": 0, "message": {"role": "assistant", "content": "hi"}, "logprobs": LOGPROBS if shown else None,
        "token_ids": [7] if shown else None, "weight_versions": [{"version": "1"}] if shown else None,
    }  # fmt: skip
    return compact({"choices": [choice], "prompt_token_ids": [1] if shown else None, "usage": {"x": 1.50}})


def completion(shown: bool) -> bytes:
    ids = [1] if shown else None
    return compact({"choices": [{"text": "a", "token_ids": ids, "prompt_token_ids": ids}]})


TOLD = [{"message": 'hm "input_messages":[1]}', "tokens": [1, 2], "logprobs": [-0.5, -1.0]}]


def response(shown: bool) -> bytes:
    """Its tools speak of fields with the names that are hidden."""
    whole = {
        "id": "resp_1", "tools": [{"parameters": {"properties": {"input_messages": {"type": "array"}}}}],
        "output": [{"content": [{"text": 'é \\ "output_messages":[3]', "logprobs": None}]}], "metrics": 1.0,
        "input_messages": TOLD if shown else None, "output_messages": TOLD if shown else None,
    }  # fmt: skip
    return compact(whole)


def responses_stream(shown: bool) -> bytes:
    delta = 'event: response.output_text.delta\ndata: {"delta":"\\"output_messages\\":[",'
    return (
        b'event: response.created\ndata: {"response":' + response(False) + b',"type":"response.created"}\n\n'
        + delta.encode() + b'"logprobs":[],"type":"response.output_text.delta"}\n\n'
        + b'event: response.completed\ndata: {"response":' + response(shown)
        + b',"sequence_number":8,"type":"response.completed"}\n\n'
    )  # fmt: skip


TOKENS = {"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": [-0.5], "weight_versions": [{"version": "7"}]}


def message(shown: bool) -> bytes:
    """Its text and its tool call speak of the field that is hidden."""
    content = [
        {"type": "text", "text": 'é \\ ,"evolved_tokens":{"token_ids":[3]}'},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1, "evolved_tokens": TOKENS}},
    ]
    return compact({"id": "msg_1", "content": content} | ({"evolved_tokens": TOKENS} if shown else {}))


def messages_stream(shown: bool) -> bytes:
    told = b'event: evolved_tokens\ndata: {"type":"evolved_tokens","token_ids":[3],"logprobs":[-0.5]}\n\n'
    delta = b'event: content_block_delta\ndata: {"delta":{"text":"\\"evolved_tokens\\":["},"index":0}\n\n'
    return (
        b'event: message_start\ndata: {"message":{"id":"msg_1"}}\n\n' + delta + (told if shown else b"")
        + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )  # fmt: skip


class Passing:
    """An answer to whoever was not to see what was `asked`: the bytes of its body that go on for each piece."""

    def __init__(self, asked: tuple[str, ...], kind: bytes) -> None:
        self._hidden, self._engine, self._agent = HiddenAnswer(asked), ReplyParser(), ReplyParser()
        for reply in (self._engine, self._agent):
            reply.begin(head_only=False, max_capture_bytes=1 << 30)
        self._pass(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind)

    def _pass(self, data: bytes) -> bytes:
        self._engine.feed(data)
        before = self._agent.size
        self._agent.feed(self._hidden.shown(data, self._engine))
        return b"".join(self._agent.body)[before:]

    def piece(self, data: bytes) -> bytes:
        return self._pass(chunk(data))

    def rest(self) -> bytes:
        rest = self._pass(b"0\r\n\r\n")
        assert self._agent.done
        return rest


def through(asked: tuple[str, ...], *pieces: bytes) -> bytes:
    stream = Passing(asked, b"text/event-stream")
    return b"".join([stream.piece(piece) for piece in pieces]) + stream.rest()


def whole(asked: tuple[str, ...], body: bytes) -> bytes:
    plain = Passing(asked, b"application/json")
    assert [plain.piece(piece) for piece in (body[:20], body[20:]) if piece] in ([], [b""], [b"", b""])
    return plain.rest()


STREAMS = [(CHAT, chat_stream), (RESPONSES, responses_stream), (MESSAGES, messages_stream)]


@pytest.mark.parametrize("ends", [b"\n\n", b"\r\n\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("hidden", "stream"), STREAMS, ids=["chat", "responses", "messages"])
@given(data=st.data())
def test_a_stream_is_what_the_engine_sends_when_nobody_asks_however_it_is_cut(hidden, stream, ends, data) -> None:
    told, wanted = (stream(shown).replace(b"\n\n", ends) for shown in (True, False))
    cuts = data.draw(st.lists(st.integers(min_value=1, max_value=len(told) - 1), max_size=8))
    edges = [0, *sorted(set(cuts)), len(told)]
    assert through(hidden, *[told[start:end] for start, end in pairwise(edges)]) == wanted


@pytest.mark.parametrize(
    ("hidden", "body"),
    [(CHAT, chat), (CHAT, completion), (RESPONSES, response), (MESSAGES, message)],
    ids=["chat", "completions", "responses", "messages"],
)
def test_a_plain_answer_is_too_and_one_written_otherwise_says_the_same(hidden, body) -> None:
    for shown in (True, False):
        assert whole(hidden, body(shown)) == body(False)
    spaced = json.dumps(json.loads(body(True))).encode()
    assert json.loads(whole(hidden, spaced)) == json.loads(body(False))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"logprobs":', b'{"choices":{"logprobs":1}}', b'"logprobs"'])
def test_what_is_no_completion_passes_as_it_is(body: bytes) -> None:
    assert whole(CHAT, body) == body


@given(st.text(max_size=40))
def test_no_text_of_an_answer_is_touched(content: str) -> None:
    assert through(CHAT, event(shown=True, content=content)) == event(shown=False, content=content)


def test_whole_events_go_on_at_once_and_a_broken_one_never() -> None:
    stream, one = Passing(CHAT, b"text/event-stream"), event(shown=True)
    assert stream.piece(one + one[:10]) == event(shown=False)
    assert stream.piece(one[10:]) == event(shown=False)
    assert stream.piece(one[:-30]) == stream.rest() == b""


def test_events_that_only_carry_ids_are_left_out() -> None:
    def empty(rest: bytes = b"") -> bytes:
        return b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":null,"token_ids":[4]}]%b}\n\n' % rest

    assert through(CHAT, event(shown=True) + empty() + event(shown=True)) == event(shown=False) * 2
    assert through(CHAT, empty(b',"usage":{"total_tokens":3}')) != b"", "usage is news"
    assert through(("logprobs",), empty()) == empty(), "the agent asked for the ids itself"


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@pytest.mark.parametrize("alternatives", [[], [{"token": "}]", "logprob": -1e-05, "bytes": None}]])
def test_other_engines_may_write_the_same_fields_in_another_form(
    separators: tuple[str, str], alternatives: list[dict[str, object]]
) -> None:
    entry = {"token": '\\"}]', "logprob": -9999.0, "bytes": [1], "top_logprobs": alternatives}
    choice = {"token_ids": [1], "index": 0, "logprobs": {"content": [entry], "refusal": None}, "delta": {"a": "x"}}
    told = {"prompt_token_ids": [2], "choices": [choice, {**choice, "index": 1}]}
    sent = b"data: " + json.dumps(told, separators=separators).encode() + b"\n\n"
    shown = json.loads(through(CHAT, sent)[6:])
    assert shown["prompt_token_ids"] is None
    assert [(one["token_ids"], one["logprobs"], one["delta"]) for one in shown["choices"]] == [
        (None, None, {"a": "x"})
    ] * 2
