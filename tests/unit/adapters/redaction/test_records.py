"""Bodies, streams and token ids: what goes with a find, what stays byte for byte, and what is left out as a whole."""

import gzip
import json
import zlib
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.dialects import DIALECTS, read_conversation
from actors.messages import Exchange, Feedback, floats_array, ids_array, pack_array
from adapters.redaction import RedactionSettings, Redactor
from tests.support import byte_engine
from tests.support.byte_engine import PATHS, Case, answers_of, rendered, request_of
from tests.support.plants import Plant, plants
from tests.support.searching import where
from tests.unit.adapters.redaction.made import (
    MAIL,
    REDACTOR,
    answered,
    asked,
    chunk,
    raw,
    recorded,
    sse,
    tool_call,
)

pytestmark = pytest.mark.promise
PLANTS = plants(23, 1)


def messages(*told: dict[str, Any]) -> list[dict[str, Any]]:
    """What is kept of a request's messages."""
    return json.loads(recorded(raw({"messages": told})).request)["messages"]


def test_an_escaped_value_is_found() -> None:
    body = b'{"messages": [{"content": "ann\\u0040example.com"}, {"content": "{\\"a\\": \\"x\\\\u0040y.org\\"}"}]}'
    kept = json.loads(recorded(raw(body)).request)["messages"]
    assert kept == [{"content": "[REDACTED:email]"}, {"content": '{"a": "[REDACTED:email]"}'}]


def test_tool_arguments_stay_json_and_keep_what_is_around_a_find() -> None:
    arguments = '{"to":  "ann@example.com", "n": 1.50, "card": 4111111111111111, "q": "a \\"quoted\\" b@example.com"}'
    (message,) = messages({"role": "assistant", "tool_calls": [tool_call(arguments)]})
    got = message["tool_calls"][0]["function"]["arguments"]
    assert got == json.dumps(
        {"to": "[REDACTED:email]", "n": 1.5, "card": "[REDACTED:card]", "q": 'a "quoted" [REDACTED:email]'}
    )


def test_a_field_that_stands_twice_is_read_twice() -> None:
    request = f'{{"messages": [{{"role": "user", "content": "{MAIL}", "content": "x"}}]}}'.encode()
    assert recorded(raw(request)).request == request.replace(MAIL.encode(), b"[REDACTED:email]")
    (message,) = messages({"role": "assistant", "tool_calls": [tool_call(f'{{"q": "{MAIL}", "q": "x"}}')]})
    assert message["tool_calls"][0]["function"]["arguments"] == '{"q": "[REDACTED:email]", "q": "x"}'


def test_fields_go_by_their_name_and_ids_of_calls_stay() -> None:
    fields = {
        "password": "sesame", "client_secret": "q8Zk2mPx91", "next_page_token": "q8Zk2mPx91q8Zk2mPx91", "cvv": 123,
        "passwordHint": "the usual", "max_tokens": 4096, "dbPassword": "open-it", "trajectory_id": MAIL, "user": MAIL,
    }  # fmt: skip
    named = recorded(raw({"metadata": {MAIL: "vip"}}))
    assert json.loads(named.request) == {"metadata": {"[REDACTED:email]": "vip"}}
    block = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"id": MAIL, "type": MAIL}}
    request = {"metadata": fields, "messages": [{"role": "assistant", "content": [block]}]}
    got = json.loads(recorded(raw(request)).request)
    gone = {key for key, value in got["metadata"].items() if value == "[REDACTED:secret]"}
    assert gone == {"password", "client_secret", "cvv", "dbPassword"}
    assert (got["metadata"]["trajectory_id"], got["metadata"]["user"]) == (MAIL, "[REDACTED:email]")
    assert got["messages"][0]["content"][0]["input"] == {"id": "[REDACTED:email]", "type": "[REDACTED:email]"}


def test_what_was_recognised_once_goes_from_all_that_follows() -> None:
    told = ("Is zx81-Kappa a good one?", "ok: password=zx81-Kappa", "so I log in with zx81-Kappa")
    request = {"messages": [{"role": "user", "content": text} for text in told]}
    after = recorded(raw(request, answered("yes, with zx81-Kappa")))
    # The first message stood so in the call before, in which nobody could know.
    assert [message["content"] for message in json.loads(after.request)["messages"]] == [
        "Is zx81-Kappa a good one?", "ok: password=[REDACTED:secret]", "so I log in with [REDACTED:secret]",
    ]  # fmt: skip
    assert json.loads(after.response)["choices"][0]["message"]["content"] == "yes, with [REDACTED:secret]"
    # In a database's URL it looks like the beginning of an e-mail address, and is known alone all the same.
    url, alone = messages(
        {"role": "user", "content": "use postgres://app:7vv7VJK4dtVqME@db.internal:5432/prod"},
        {"role": "assistant", "content": "so the password is 7vv7VJK4dtVqME then"},
    )
    assert "7vv7VJK4dtVqME" not in url["content"] + alone["content"]


def test_within_one_message_it_does_not_matter_what_was_written_first() -> None:
    call = tool_call({"password": "zx81-Kappa"})
    for message in (
        {"role": "assistant", "content": "I try zx81-Kappa", "tool_calls": [call]},
        {"role": "assistant", "tool_calls": [call], "content": "I try zx81-Kappa"},
    ):
        (got,) = messages(message)
        assert got["content"] == "I try [REDACTED:secret]"
        reply = recorded(raw(asked("hi"), {"choices": [{"index": 0, "message": message}]}))
        assert json.loads(reply.response)["choices"][0]["message"] == got


@given(st.lists(st.sampled_from([plant.text for plant in plants(5, 2)]), min_size=2, max_size=6))
@settings(max_examples=30)
def test_a_conversation_reads_the_same_in_every_call_that_carries_it(texts: list[str]) -> None:
    told = [{"role": "user", "content": text} for text in texts]
    longest = messages(*told)
    for count in range(1, len(texts)):
        shorter = recorded(raw({"messages": told[:count]}, answered(texts[count])))
        assert json.loads(shorter.request)["messages"] == longest[:count]
        assert json.loads(shorter.response)["choices"][0]["message"]["content"] == longest[count]["content"]


def test_an_exchange_that_was_read_loses_its_packed_ids() -> None:
    exchange = Exchange(
        id="x", endpoint="/v1/chat/completions", started=1.0, duration=1.0, status=200,
        request=json.dumps(asked("hello")).encode(), response=json.dumps(answered(f"I am {MAIL}")).encode(),
        prompt_ids=pack_array([1], "<i4"), response_ids=pack_array([2], "<i4"), logprobs=pack_array([-1], "<f4"),
    )  # fmt: skip
    after = REDACTOR.message(exchange)
    assert (after.prompt_ids, after.response_ids, after.logprobs) == (exchange.prompt_ids, b"", b"")
    assert (after.redacted, after.finds) == (("response",), {"email": 1})
    assert REDACTOR.message(after) is after
    feedback = Feedback(id="f", received=1.0, text=f"bad, see {MAIL}", response_id=MAIL)
    assert REDACTOR.feedback(feedback) == msgspec.structs.replace(feedback, text="bad, see [REDACTED:email]")


# What cannot be read as JSON


def test_a_response_that_was_cut_off_is_searched_as_text_and_goes_as_a_whole_if_it_has_ids() -> None:
    cut = json.dumps(answered(f"write to {MAIL} or caf\u00e9\u0040example.com and")).encode()[:-30]
    after = recorded(raw(asked("hi"), cut, complete=False, error="client_left"))
    assert MAIL.encode() not in after.response
    assert json.loads(after.response).startswith('{"id": "chatcmpl-1"')
    cut = json.dumps(answered(MAIL, token_ids=[7, 8, 9])).encode()[:-3]
    after = recorded(raw(asked("hi"), cut, complete=False))
    assert (after.response, after.finds["unreadable"]) == (b"", 1)
    whole = sse([chunk({"content": f"to {MAIL}"}, token_ids=[7])], done=False)
    assert b"smith" not in recorded(raw(asked("hi"), whole[:-30], streamed=True)).response
    whole += sse([chunk({"content": "x"}, token_ids=[8, 9])], done=False)[:-6]
    after = recorded(raw(asked("hi"), whole, streamed=True))
    assert b"token_ids" not in after.response
    assert json.loads(after.response)["choices"][0]["message"]["content"] == "to [REDACTED:email]"


def test_compressed_bodies_are_opened_and_unknown_ones_are_left_out() -> None:
    body = json.dumps(answered(MAIL)).encode()
    after = recorded(raw(asked("hi"), gzip.compress(body)), encoding="gzip")
    assert (b"[REDACTED:email]" in after.response, after.error) == (True, "")
    after = recorded(raw(asked("hi"), b"\x8b\x02\x80brotli"), encoding="br")
    assert (after.response, after.error) == (b"", "response cannot be decompressed: content encoding br")
    request = json.dumps(asked("password: Haus!Baum9"))
    for packed in (
        request.encode("utf-16"), request.encode("utf-16-le"), zlib.compress(request.encode()),
        gzip.compress(request.encode()), zlib.compressobj(wbits=-15).compress(request.encode()) + b"\xff",
        b"\x28\xb5\x2f\xfd" + request.encode() + b"\xff",
    ):  # fmt: skip
        kept = recorded(raw(packed)).request
        assert kept != packed
        assert b"Haus" not in kept


def test_embedded_files_are_no_text() -> None:
    picture = "data:image/png;base64," + "iVBORw0KGgo4111111111111111AKIA" * 200
    record = raw({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}]})
    assert recorded(record).finds == {}


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
@example(b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[" * 5000 + b"]" * 5000, False)
@example(b"{}", b"data: " + b"[" * 5000 + b"]" * 5000 + b"\n\n", True)
@example(b'{"messages": "\\ud800 ann@example.com"}', b'{"x": NaN, "y": "ann@example.com"}', False)
@settings(max_examples=200)
def test_no_bytes_make_it_raise(request: bytes, response: bytes, streamed: bool) -> None:
    after = recorded(raw(request, response, streamed=streamed))
    assert b"ann@example.com" not in after.request + after.response
    assert REDACTOR.message(after) == after


# Streams


def arguments(index: int, part: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


@pytest.mark.parametrize("dialect", PATHS)
@given(
    st.sampled_from(PLANTS), st.sampled_from(("answer", "reasoning", "call")), st.integers(1, 9),
    st.sampled_from(["\n", "\r\n"]),
)  # fmt: skip
@settings(max_examples=60)
def test_a_split_answer_reads_like_the_whole_one(
    dialect: str, plant: Plant, place: str, size: int, newline: str
) -> None:
    case = Case(0, dialect, True, "answer" if dialect == "completions" else place, plant.text, plant.value)
    with patch.object(byte_engine, "PIECE", size):
        stream, whole = byte_engine.answers_of(case, [], tokens=False)
    records = [
        raw(asked("hi"), sse(stream, newline=newline), endpoint=PATHS[dialect], streamed=True),
        raw(asked("hi"), whole, endpoint=PATHS[dialect]),
    ]
    after = [recorded(record) for record in records]
    assert [one.redacted for one in after] == [("response",)] * 2
    split, plain = (read_conversation(one).answers for one in after)
    assert split == plain
    needle = max(plant.value.splitlines(), key=len)
    assert [where(one.response, [needle]) for one in after] == [{}, {}]
    assert [REDACTOR.message(one) for one in after] == after


def test_two_choices_and_two_tool_calls_are_not_mixed() -> None:
    stream = [
        chunk({"content": "ann.smith@"}), chunk({"content": "bob@"}, index=1), chunk({"content": "example.com"}),
        chunk({"content": "home"}, index=1), chunk(arguments(0, '{"a": "ann@')), chunk(arguments(1, '{"b": "x')),
        chunk(arguments(0, 'example.com"}')), chunk(arguments(1, '@"}')),
    ]  # fmt: skip
    one, two = json.loads(recorded(raw(asked("hi"), stream)).response)["choices"]
    assert (one["message"]["content"], two["message"]["content"]) == ("[REDACTED:email]", "bob@home")
    told = [call["function"]["arguments"] for call in one["message"]["tool_calls"]]
    assert told == ['{"a": "[REDACTED:email]"}', '{"b": "x@"}']


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_of_a_form_that_nobody_knows_is_kept_unless_a_find_lies_across_its_events(cut: bool) -> None:
    """After an engine's update: the events stay, each searched by itself, and all of them together."""
    texts = ["to ann.", "smith@example.com", " now"] if cut else ["to ", MAIL, " now"]
    stream = [{"kind": "novel", "id": "r", "words": {"text": text}} for text in texts]
    after = recorded(raw(asked("hi"), stream))
    if cut:
        assert (after.response, after.finds["unreadable"]) == (b"", 1)
    else:
        assert [event["words"]["text"] for event in json.loads(after.response)] == ["to ", "[REDACTED:email]", " now"]
    assert (after.complete, after.error) == (False, "a stream of an unknown form")


def test_one_bad_event_and_a_bug_in_a_dialect_cost_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    events = sse([chunk({"content": "well"})]).replace(b"data: [DONE]", b'data: {"choices": [')
    after = recorded(raw(asked("hi"), events, streamed=True))
    assert json.loads(after.response)["choices"][0]["message"]["content"] == "well"
    assert after.error == "1 events that are no JSON"

    def broken(events: object) -> Any:
        raise KeyError("a bug")

    for dialect in DIALECTS.values():
        monkeypatch.setattr(dialect, "merge", broken)
    for path in PATHS.values():
        after = recorded(raw(asked("hi"), [chunk({"content": f"to {MAIL}"})], endpoint=path))
        assert b"[REDACTED:email]" in after.response
        assert after.error.startswith("a stream that cannot be merged")


# Token ids


def sampled(
    texts: list[str], *, message: dict[str, Any] | None = None, prompt: str = "hello", streamed: bool = False,
    told: bool = True, choices: int = 1,
) -> Exchange:  # fmt: skip
    """What is kept of a call whose answer was sampled in `texts`, ids from 100 on."""
    entries = [{"token": text if told else f"token_id:{at}", "logprob": -0.5 - at} for at, text in enumerate(texts)]
    base = {"id": "chatcmpl-1", "model": "m", "prompt_token_ids": [1, 2, 3]}
    if streamed:
        carried = [{"token_ids": [100 + at], "logprobs": {"content": [entry]}} for at, entry in enumerate(entries)]
        made = [chunk({"content": text}, **own) for text, own in zip(texts, carried, strict=True)]
        response: Any = [one | base for one in [*made, chunk({}, finish_reason="stop")]]
    else:
        ids = {"token_ids": [*range(100, 100 + len(texts))], "logprobs": {"content": entries}}
        choice = answered("".join(texts), **ids)["choices"][0] | ({"message": message} if message else {})
        response = base | {"choices": [choice | {"index": at} for at in range(choices)]}
    call = recorded(raw(asked(prompt), response))
    assert MAIL.encode() not in call.response + call.request
    return call


@pytest.mark.parametrize("streamed", [False, True])
def test_tokens_that_overlap_a_find_are_masked_and_the_others_keep_id_and_log_prob(streamed: bool) -> None:
    call = sampled(["Write ", "to <ann", ".smith", "@example.com>", " now"], streamed=streamed)
    assert ids_array(call.response_ids).tolist() == [100, -1, -1, -1, 104]
    assert floats_array(call.logprobs).tolist() == [-0.5, 0.0, 0.0, 0.0, -4.5]
    assert (call.masked, call.why_no_tokens) == (("to <[REDACTED:email]>",), "")
    assert ids_array(call.prompt_ids).tolist() == [1, 2, 3]
    call = sampled(["Done", "."], prompt=f"I am {MAIL}", streamed=streamed)
    assert (call.prompt_ids, ids_array(call.response_ids).tolist()) == (b"", [100, 101]), "those of a prompt go"
    assert (call.redacted, call.masked) == (("prompt",), ())


def calling(arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "f", "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}


CALLED = ["<tool_call>", '{"name": "f", "arguments": {"to": "', "ann.smith", "@example.com", '"}}', "</tool_call>"]


@pytest.mark.parametrize(
    ("texts", "message", "prompt", "kept"),
    [
        (CALLED, calling({"to": MAIL}), "hello", [100, 101, -1, -1, 104, 105]),
        # JSON spells it otherwise.
        (['{"password": "', "M", "\\u00fcll-Stra", "\\u00dfe99x", '"}'], calling({"password": "Müll-Straße99x"}),
         "hello", [100, -1, -1, -1, 104]),
        # Reasoning that the engine does not show is sampled all the same, and repeats what the prompt had.
        (["<think>", MAIL, "</think>", "done"], {"role": "assistant", "content": "done"}, f"I am {MAIL}",
         [100, -1, 102, 103]),
    ],
    ids=["arguments", "escapes", "reasoning"],
)  # fmt: skip
def test_a_find_is_masked_wherever_it_was_sampled(texts: list[str], message: dict, prompt: str, kept: list) -> None:
    call = sampled(texts, message=message, prompt=prompt)
    assert ids_array(call.response_ids).tolist() == kept


@pytest.mark.parametrize(
    "how", [{"told": False}, {"choices": 2}, {"message": {"role": "assistant", "content": f"it is {MAIL}!"}}]
)
def test_where_the_tokens_of_a_find_cannot_be_told_none_is_kept(how: dict[str, Any]) -> None:
    call = sampled(["it is ", "ann.smith(at)example.com" if "message" in how else MAIL], **how)
    assert (call.prompt_ids, call.response_ids, call.logprobs) == (b"", b"", b"")
    assert call.why_no_tokens == "redacted response"


def test_of_a_redacted_part_goes_all_that_decodes_to_it() -> None:
    tokens = {"token_ids": [5], "logprobs": {"content": [{"token": "hi", "logprob": -0.5, "bytes": [104, 105]}]}}
    whole = {"prompt_token_ids": [1, 2], "prompt_logprobs": None, "prompt_text": "<s>hi"}
    options = {"return_token_ids": True, "logprobs": True}
    in_prompt = json.loads(recorded(raw(asked(MAIL) | options, answered("hi", **tokens) | whole)).response)
    assert not whole.keys() & in_prompt.keys()
    assert in_prompt["choices"][0]["token_ids"] == [5]
    in_answer = json.loads(recorded(raw(asked("hello") | options, answered(MAIL, **tokens) | whole)).response)
    assert in_answer["prompt_token_ids"] == [1, 2]
    assert not tokens.keys() & in_answer["choices"][0].keys()


@pytest.mark.parametrize("streamed", [False, True])
def test_ids_in_the_raw_messages_of_the_responses_api_go_too(streamed: bool) -> None:
    """vLLM gives them to who asks with `enable_response_messages`."""

    def kept(asks: str, said: str) -> tuple[tuple[str, ...], bool, bool]:
        body = {
            "id": "resp_1", "status": "completed", "output": [],
            "input_messages": [{"type": "raw_message_tokens", "message": "", "tokens": [1, 2, 3]}],
            "output_messages": [{"type": "raw_message_tokens", "message": said, "tokens": [4, 5]}],
        }  # fmt: skip
        data: Any = [{"type": "response.completed", "response": body}] if streamed else body
        after = recorded(raw({"input": asks, "enable_response_messages": True}, data, endpoint="/v1/responses"))
        plain = after.response.replace(b" ", b"")
        return after.redacted, b"[1,2,3]" in plain, b"[4,5]" in plain

    assert kept(f"I am {MAIL}", "fine") == (("prompt",), False, True)
    assert kept("hi", MAIL) == (("response",), True, False)


def test_two_finds_side_by_side_leave_both_of_their_stand_ins() -> None:
    call = sampled(["to ", "ann.smith@example.com", " 4111 1111 1111 1111", " now"])
    assert ids_array(call.response_ids).tolist() == [100, -1, -1, 103]
    assert call.masked == ("[REDACTED:email] [REDACTED:card]",)


@pytest.mark.parametrize("options", [{}, {"return_token_ids": True, "logprobs": True, "prompt_logprobs": 1}])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("place", ["answer", "bare"])
def test_wherever_an_answer_is_cut_no_token_gives_a_secret_back(
    place: str, streamed: bool, options: dict[str, Any]
) -> None:
    """Whether it was the prompt's or the answer's, and whether the agent asked for the ids itself."""
    case = Case(0, "chat", streamed, place, f"write to {MAIL} now", MAIL)
    request = request_of(case) | options
    events, whole = answers_of(case, list(rendered(request).encode()), tokens=True)
    record = raw(request, events if streamed else whole)
    assert where(msgspec.msgpack.encode(recorded(record, Redactor(RedactionSettings(kinds=())))), [MAIL])
    for size in range(0, len(record.response) + 1, 1 + len(record.response) // 150):
        cut = msgspec.structs.replace(record, response=record.response[:size], complete=False)
        assert where(msgspec.msgpack.encode(recorded(cut)), [MAIL]) == {}, size
