"""What only the tap had asked for is hidden, and not a byte beside it changes."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tap.response_filter import Hidden, ResponseFilter

ALL = Hidden(("logprobs", "return_token_ids", "return_weight_versions"))
LOGPROBS = {"content": [{"token": '"{\n', "logprob": -0.5, "bytes": [34, 123], "top_logprobs": []}]}


def event(*, shown: bool, first: bool = False, content: str = 'é \u2028 \\ " 1.0') -> bytes:
    choice = {
        "index": 0,
        "delta": {"role": "assistant", "content": ""} if first else {"content": content},
        "logprobs": LOGPROBS if shown and not first else None,
        "finish_reason": None,
    }
    if not first:
        choice |= {"token_ids": [5, 6] if shown else None}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    if first:
        body |= {"prompt_token_ids": [1, 2, 3] if shown else None}
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def stream(*, shown: bool) -> bytes:
    return event(shown=shown, first=True) + event(shown=shown) * 3 + b": ping\n\n" + b"data: [DONE]\n\n"


def through(response_filter: ResponseFilter, pieces: list[bytes]) -> bytes:
    return b"".join([response_filter.stream(piece) for piece in pieces]) + response_filter.rest()


def test_a_stream_is_what_the_engine_sends_when_nobody_asks() -> None:
    assert through(ResponseFilter(ALL), [stream(shown=True)]) == stream(shown=False)


@given(st.lists(st.integers(min_value=1, max_value=len(stream(shown=True)) - 1), max_size=8))
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int]) -> None:
    whole = stream(shown=True)
    edges = [0, *sorted(set(cuts)), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    assert through(ResponseFilter(ALL), pieces) == stream(shown=False)


def test_whole_events_go_on_before_the_stream_does() -> None:
    response_filter = ResponseFilter(ALL)
    one = event(shown=True)
    assert response_filter.stream(one + one[:10]) == event(shown=False)
    assert response_filter.stream(one[10:]) == event(shown=False)


def test_only_what_the_agent_left_out_is_hidden() -> None:
    shown = json.loads(through(ResponseFilter(Hidden(("return_token_ids",))), [event(shown=True)])[6:])
    assert shown["choices"][0]["logprobs"] == LOGPROBS
    assert shown["choices"][0]["token_ids"] is None


@given(st.text(max_size=40))
def test_no_text_of_an_answer_is_touched(content: str) -> None:
    assert through(ResponseFilter(ALL), [event(shown=True, content=content)]) == event(shown=False, content=content)


def test_words_that_only_look_like_a_field_stay() -> None:
    content = '"token_ids":[1],"logprobs":{"content":[]}'
    assert through(ResponseFilter(ALL), [event(shown=True, content=content)]) == event(shown=False, content=content)


def test_a_plain_answer_is_rewritten_when_it_is_whole() -> None:
    def body(shown: bool) -> bytes:
        message = {"role": "assistant", "content": "hi", "refusal": None}
        choice = {
            "index": 0, "message": message, "logprobs": LOGPROBS if shown else None, "finish_reason": "stop",
            "token_ids": [7] if shown else None, "weight_versions": [{"version": "1"}] if shown else None,
        }  # fmt: skip
        told = {"id": "c", "choices": [choice], "prompt_token_ids": [1] if shown else None, "usage": {"x": 1.50}}
        return json.dumps(told, separators=(",", ":")).encode()

    response_filter = ResponseFilter(ALL)
    whole = body(True)
    response_filter.hold(whole[:20])
    response_filter.hold(whole[20:])
    assert response_filter.whole() == body(False)


def test_the_ids_of_a_completions_prompt_stand_in_its_choice() -> None:
    response_filter = ResponseFilter(ALL)
    response_filter.hold(b'{"choices":[{"text":"a","token_ids":[1],"prompt_token_ids":[2]}]}')
    assert response_filter.whole() == b'{"choices":[{"text":"a","token_ids":null,"prompt_token_ids":null}]}'


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"logprobs":', b'{"choices":{"logprobs":1}}', b'"logprobs"'])
def test_what_is_no_completion_passes_as_it_is(body: bytes) -> None:
    response_filter = ResponseFilter(ALL)
    response_filter.hold(body)
    assert response_filter.whole() == body


def test_what_a_broken_stream_leaves_behind_does_not_show_what_was_hidden() -> None:
    response_filter = ResponseFilter(ALL)
    assert response_filter.stream(event(shown=True)[:-30]) == b""
    assert response_filter.rest() == b""


def test_events_may_end_in_carriage_returns() -> None:
    crlf = stream(shown=True).replace(b"\n\n", b"\r\n\r\n")
    assert through(ResponseFilter(ALL), [crlf]) == stream(shown=False).replace(b"\n\n", b"\r\n\r\n")


def test_events_that_only_carry_ids_are_left_out() -> None:
    def empty(rest: bytes = b"") -> bytes:
        return b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":null,"token_ids":[4]}]%b}\n\n' % rest

    assert through(ResponseFilter(ALL), [event(shown=True) + empty() + event(shown=True)]) == event(shown=False) * 2
    assert through(ResponseFilter(ALL), [empty(b',"usage":{"total_tokens":3}')]) != b"", "usage is news"
    assert through(ResponseFilter(Hidden(("logprobs",))), [empty()]) == empty(), "the agent asked for the ids itself"


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@pytest.mark.parametrize("alternatives", [[], [{"token": "}]", "logprob": -1e-05, "bytes": None}]])
def test_other_engines_may_write_the_same_fields_in_another_form(
    separators: tuple[str, str], alternatives: list[dict[str, object]]
) -> None:
    entry = {"token": '\\"}]', "logprob": -9999.0, "bytes": [1], "top_logprobs": alternatives}
    choice = {
        "token_ids": [1],
        "index": 0,
        "logprobs": {"content": [entry], "refusal": None},
        "delta": {"content": "x"},
    }
    told = {"prompt_token_ids": [2], "choices": [choice, {**choice, "index": 1}]}
    sent = b"data: " + json.dumps(told, separators=separators).encode() + b"\n\n"
    shown = json.loads(through(ResponseFilter(ALL), [sent])[6:])
    assert shown["prompt_token_ids"] is None
    assert [(one["token_ids"], one["logprobs"], one["delta"]) for one in shown["choices"]] == [
        (None, None, {"content": "x"})
    ] * 2


RESPONSES = Hidden(("enable_response_messages",))
TOLD = [{"message": 'hm "input_messages":[1]}', "tokens": [1, 2], "logprobs": [-0.5, -1.0]}]


def response(*, shown: bool) -> bytes:
    """A response of vLLM; its tools speak of fields with the names that are hidden."""
    whole = {
        "id": "resp_1", "tools": [{"parameters": {"properties": {"input_messages": {"type": "array"}}}}],
        "output": [{"content": [{"text": 'é \\ "output_messages":[3]', "logprobs": None}]}], "metrics": 1.0,
        "input_messages": TOLD if shown else None, "output_messages": TOLD if shown else None,
    }  # fmt: skip
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def responses_stream(*, shown: bool) -> bytes:
    delta = 'event: response.output_text.delta\ndata: {"delta":"\\"output_messages\\":[",'
    return (
        b'event: response.created\ndata: {"response":' + response(shown=False) + b',"type":"response.created"}\n\n'
        + delta.encode() + b'"logprobs":[],"type":"response.output_text.delta"}\n\n'
        + b'event: response.completed\ndata: {"response":' + response(shown=shown)
        + b',"sequence_number":8,"type":"response.completed"}\n\n'
    )  # fmt: skip


def test_a_plain_response_is_what_the_engine_sends_when_nobody_asks_for_its_messages() -> None:
    response_filter = ResponseFilter(RESPONSES)
    response_filter.hold(response(shown=True))
    assert response_filter.whole() == response(shown=False)


@given(st.lists(st.integers(min_value=1, max_value=len(responses_stream(shown=True)) - 1), max_size=8))
def test_a_stream_of_the_responses_api_is_too_however_it_is_cut(cuts: list[int]) -> None:
    whole = responses_stream(shown=True)
    edges = [0, *sorted(set(cuts)), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    assert through(ResponseFilter(RESPONSES), pieces) == responses_stream(shown=False)


MESSAGES = Hidden(("evolved_tokens",))
TOKENS = {"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": [-0.5], "weight_versions": [{"version": "7"}]}


def message(*, shown: bool, blanks: bool = False) -> bytes:
    """An answer of vLLM with the plug-in; its text and its tool call speak of the field that is hidden."""
    whole: dict[str, object] = {
        "id": "msg_1", "content": [
            {"type": "text", "text": 'é \\ ,"evolved_tokens":{"token_ids":[3]}'},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1, "evolved_tokens": TOKENS}},
        ],
    }  # fmt: skip
    separators = None if blanks else (",", ":")
    return json.dumps(
        whole | ({"evolved_tokens": TOKENS} if shown else {}), ensure_ascii=False, separators=separators
    ).encode()


@pytest.mark.parametrize("shown", [True, False], ids=["with the plug-in", "without it"])
def test_a_plain_message_is_what_the_engine_sends_when_nobody_asks_for_tokens(shown: bool) -> None:
    response_filter = ResponseFilter(MESSAGES)
    response_filter.hold(message(shown=shown))
    assert response_filter.whole() == message(shown=False)


def test_a_plain_message_that_is_written_otherwise_says_the_same() -> None:
    response_filter = ResponseFilter(MESSAGES)
    response_filter.hold(message(shown=True, blanks=True))
    assert json.loads(response_filter.whole()) == json.loads(message(shown=False))


def messages_stream(*, shown: bool) -> bytes:
    told = b'event: evolved_tokens\ndata: {"type":"evolved_tokens","token_ids":[3],"logprobs":[-0.5]}\n\n'
    delta = b'event: content_block_delta\ndata: {"delta":{"text":"\\"evolved_tokens\\":["},"index":0}\n\n'
    return (
        b'event: message_start\ndata: {"message":{"id":"msg_1"}}\n\n' + delta + (told if shown else b"")
        + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )  # fmt: skip


@given(st.lists(st.integers(min_value=1, max_value=len(messages_stream(shown=True)) - 1), max_size=8))
def test_a_stream_of_messages_is_too_however_it_is_cut(cuts: list[int]) -> None:
    whole = messages_stream(shown=True)
    edges = [0, *sorted(set(cuts)), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    assert through(ResponseFilter(MESSAGES), pieces) == messages_stream(shown=False)
