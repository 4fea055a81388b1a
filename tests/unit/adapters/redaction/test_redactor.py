"""Nothing that was planted survives, wherever it stands; what is clean stays byte for byte."""

import gzip
import itertools
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.messages import Exchange, Feedback, pack_array
from actors.messages.spool import RawExchange
from adapters.redaction import RedactionSettings, Redactor
from tests.support.plants import ordinary, plants

pytestmark = pytest.mark.promise

MAIL, KEY = "ann.smith@example.com", "sk-proj-4fGh7JkLmN0pQrStUvWx12345678"
PLANTS = [plant for plant in plants(11, 1) if not plant.held_out]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(RedactionSettings())


def raw(request: Any = None, response: Any = b"", **fields: Any) -> RawExchange:
    values: dict[str, Any] = {
        "id": "0" * 32,
        "path": "/v1/chat/completions",
        "request": request if isinstance(request, bytes) else json.dumps(request or {}).encode(),
        "response": response if isinstance(response, bytes) else json.dumps(response).encode(),
        "status": 200,
        "content_type": "application/json",
        "received": 1.0,
        "finished": 2.0,
    }
    return RawExchange(**values | fields)


def asked(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def answered(text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"} | fields]}


def everything(data: bytes) -> str:
    """The text of `data` as it is, and with every level of JSON in it unescaped."""
    found = [data.decode("utf-8", "replace")]

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
            try:
                inner = json.loads(value)
            except ValueError:
                return
            if isinstance(inner, dict | list):
                walk(inner)
        elif isinstance(value, dict):
            for key, part in value.items():
                walk(key)
                walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)
        elif isinstance(value, int):
            found.append(str(value))

    walk(json.loads(data))
    return "\n".join(found)


def tool_call(arguments: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}


def test_no_plant_survives_in_a_message_a_tool_result_or_tool_arguments(redactor: Redactor) -> None:
    for plant, ascii_only in itertools.product(PLANTS, (True, False)):
        _does_not_survive(redactor, plant, ascii_only)


def _does_not_survive(redactor: Redactor, plant: Any, ascii_only: bool) -> None:
    result = json.dumps({"result": plant.text, "rows": [plant.text]}, ensure_ascii=ascii_only)
    request = {
        "messages": [
            {"role": "user", "content": plant.text},
            {"role": "user", "content": [{"type": "text", "text": plant.text}]},
            {"role": "assistant", "tool_calls": [tool_call({"note": plant.text})]},
            {"role": "tool", "tool_call_id": "call_1", "content": result},
        ]
    }
    response = answered(plant.text)
    response["choices"][0]["message"]["tool_calls"] = [tool_call({"deep": [{"note": plant.text}]})]
    after = redactor.exchange(
        raw(
            json.dumps(request, ensure_ascii=ascii_only).encode(),
            json.dumps(response, ensure_ascii=ascii_only).encode(),
        )
    )
    assert after.redacted == ("prompt", "response"), plant
    assert plant.value not in everything(after.request)
    assert plant.value not in everything(after.response)
    assert sum(after.finds.values()) >= 6


def test_an_escaped_value_is_found(redactor: Redactor) -> None:
    body = (
        b'{"messages": [{"content": "ann.smith\\u0040example.com"}, {"content": "{\\"a\\": \\"x\\\\u0040y.org\\"}"}]}'
    )
    after = redactor.exchange(raw(body))
    assert json.loads(after.request)["messages"] == [
        {"content": "[REDACTED:email]"},
        {"content": '{"a": "[REDACTED:email]"}'},
    ]


def test_tool_arguments_stay_json_and_keep_what_is_around_a_find(redactor: Redactor) -> None:
    arguments = '{"to":  "ann@example.com", "n": 1.50, "card": 4111111111111111, "q": "a \\"quoted\\" b@example.com"}'
    call = {"id": "c", "function": {"name": "send", "arguments": arguments}}
    after = redactor.exchange(raw({"messages": [{"role": "assistant", "tool_calls": [call]}]}))
    got = json.loads(after.request)["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert got.startswith('{"to":  "[REDACTED:email]", "n": 1.50, "card": "[REDACTED:card]"')
    assert json.loads(got)["q"] == 'a "quoted" [REDACTED:email]'


def test_fields_go_by_their_name(redactor: Redactor) -> None:
    fields = {
        "password": "sesame", "client_secret": "q8Zk2mPx91", "next_page_token": "q8Zk2mPx91q8Zk2mPx91", "cvv": 123,
        "passwordHint": "the usual", "max_tokens": 4096, "dbPassword": "open-it",
    }  # fmt: skip
    got = json.loads(redactor.exchange(raw({"messages": [], "metadata": fields})).request)["metadata"]
    gone = {key for key, value in got.items() if value == "[REDACTED:secret]"}
    assert gone == {"password", "client_secret", "cvv", "dbPassword"}


def test_what_was_recognised_once_goes_from_all_that_follows(redactor: Redactor) -> None:
    request = {
        "messages": [
            {"role": "user", "content": "Is zx81-Kappa a good one?"},
            {"role": "user", "content": "ok: password=zx81-Kappa"},
            {"role": "user", "content": "so I log in with zx81-Kappa"},
        ]
    }
    after = redactor.exchange(raw(request, answered("yes, with zx81-Kappa")))
    contents = [message["content"] for message in json.loads(after.request)["messages"]]
    # The first message stood so in the call before, in which nobody could know.
    assert contents == [
        "Is zx81-Kappa a good one?", "ok: password=[REDACTED:secret]", "so I log in with [REDACTED:secret]",
    ]  # fmt: skip
    assert json.loads(after.response)["choices"][0]["message"]["content"] == "yes, with [REDACTED:secret]"


def test_within_one_message_it_does_not_matter_what_was_written_first(redactor: Redactor) -> None:
    call = tool_call({"password": "zx81-Kappa"})
    for message in (
        {"role": "assistant", "content": "I try zx81-Kappa", "tool_calls": [call]},
        {"role": "assistant", "tool_calls": [call], "content": "I try zx81-Kappa"},
    ):
        got = json.loads(redactor.exchange(raw({"messages": [message]})).request)["messages"][0]
        assert got["content"] == "I try [REDACTED:secret]"
        reply = redactor.exchange(raw(asked("hi"), {"choices": [{"index": 0, "message": message}]}))
        assert json.loads(reply.response)["choices"][0]["message"] == got


def test_what_a_placeholder_lays_open_is_found_at_once(redactor: Redactor) -> None:
    end = "-----BEGIN PRIVATE KEY-----\nMIIx\n-----END PRIVATE KEY-----"
    assert redactor.text(f"{end}4111 1111 1111 1111")[0] == "[REDACTED:private_key][REDACTED:card]"


@given(st.lists(st.sampled_from([plant.text for plant in plants(5, 2)]), min_size=2, max_size=6))
@settings(max_examples=30)
def test_a_conversation_reads_the_same_in_every_call_that_carries_it(texts: list[str]) -> None:
    redactor = Redactor(RedactionSettings())
    messages = [{"role": "user", "content": text} for text in texts]
    longest = json.loads(redactor.exchange(raw({"messages": messages})).request)["messages"]
    for count in range(1, len(texts)):
        shorter = redactor.exchange(raw({"messages": messages[:count]}, answered(texts[count])))
        assert json.loads(shorter.request)["messages"] == longest[:count]
        reply = json.loads(shorter.response)["choices"][0]["message"]["content"]
        assert reply == longest[count]["content"]


def test_ordinary_traffic_comes_back_as_the_very_same_record(redactor: Redactor) -> None:
    for text in ordinary(3, 150):
        record = raw(asked(text), answered(text))
        assert redactor.exchange(record) is record, text


def test_a_redacted_prompt_loses_its_ids_and_a_redacted_response_its_ids_and_log_probs(redactor: Redactor) -> None:
    logprobs = {"content": [{"token": "hi", "logprob": -0.5, "bytes": [104, 105], "top_logprobs": []}]}
    tokens = {"token_ids": [5], "logprobs": logprobs}
    whole = answered("hi", **tokens) | {"prompt_token_ids": [1, 2], "prompt_logprobs": None, "prompt_text": "<s>hi"}
    after = redactor.exchange(raw(asked(MAIL), whole))
    got = json.loads(after.response)
    assert after.redacted == ("prompt",)
    assert not {"prompt_token_ids", "prompt_logprobs", "prompt_text"} & got.keys()
    assert got["choices"][0]["token_ids"] == [5]

    after = redactor.exchange(raw(asked("hello"), answered(MAIL, **tokens) | {"prompt_token_ids": [1, 2]}))
    got = json.loads(after.response)
    assert after.redacted == ("response",)
    assert got["prompt_token_ids"] == [1, 2]
    assert not {"token_ids", "logprobs"} & got["choices"][0].keys()


def test_an_exchange_that_was_read_loses_its_packed_ids(redactor: Redactor) -> None:
    exchange = Exchange(
        id="x", endpoint="/v1/chat/completions", started=1.0, duration=1.0, status=200,
        request=json.dumps(asked("hello")).encode(), response=json.dumps(answered(f"I am {MAIL}")).encode(),
        prompt_ids=pack_array([1], "<i4"), response_ids=pack_array([2], "<i4"), logprobs=pack_array([-1], "<f4"),
    )  # fmt: skip
    after = redactor.message(exchange)
    assert (after.prompt_ids, after.response_ids, after.logprobs) == (exchange.prompt_ids, b"", b"")
    assert after.redacted == ("response",)
    assert after.finds == {"email": 1}
    assert redactor.message(after) is after


def test_ids_of_calls_stay_and_fields_of_tools_do_not(redactor: Redactor) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"id": MAIL, "type": MAIL}}
    request = {
        "metadata": {"trajectory_id": MAIL, "user": MAIL},
        "messages": [{"role": "assistant", "content": [block]}],
    }
    got = json.loads(redactor.exchange(raw(request)).request)
    assert got["metadata"] == {"trajectory_id": MAIL, "user": "[REDACTED:email]"}
    assert got["messages"][0]["content"][0]["input"] == {"id": "[REDACTED:email]", "type": "[REDACTED:email]"}


def test_a_response_that_was_cut_off_is_searched_as_text(redactor: Redactor) -> None:
    cut = json.dumps(answered(f"write to {MAIL} or caf\u00e9\u0040example.com and")).encode()[:-30]
    after = redactor.exchange(raw(asked("hi"), cut, complete=False, problem="client_left"))
    assert MAIL.encode() not in after.response
    assert after.response.startswith(b'{"id": "chatcmpl-1"')


def test_a_response_that_was_cut_off_with_ids_in_it_goes_as_a_whole(redactor: Redactor) -> None:
    cut = json.dumps(answered(MAIL, token_ids=[7, 8, 9])).encode()[:-3]
    after = redactor.exchange(raw(asked("hi"), cut, complete=False))
    assert after.response == b""
    assert after.finds["unreadable"] == 1


def test_compressed_responses_are_opened_and_unknown_ones_are_left_out(redactor: Redactor) -> None:
    body = json.dumps(answered(MAIL)).encode()
    after = redactor.exchange(raw(asked("hi"), gzip.compress(body), content_encoding="gzip"))
    assert after.content_encoding == ""
    assert "[REDACTED:email]" in after.response.decode()
    after = redactor.exchange(raw(asked("hi"), b"\x8b\x02\x80brotli", content_encoding="br"))
    assert (after.response, after.finds) == (b"", {"unreadable": 1})
    clean = raw(asked("hi"), gzip.compress(json.dumps(answered("hello")).encode()), content_encoding="gzip")
    assert redactor.exchange(clean) is clean


def test_embedded_files_are_no_text(redactor: Redactor) -> None:
    picture = "data:image/png;base64," + "iVBORw0KGgo4111111111111111AKIA" * 200
    request = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}]}
    record = raw(request)
    assert redactor.exchange(record) is record


def test_feedback_is_redacted_too(redactor: Redactor) -> None:
    feedback = Feedback(id="f", received=1.0, text=f"bad, see {MAIL}", response_id=MAIL)
    assert redactor.feedback(feedback) == msgspec.structs.replace(feedback, text="bad, see [REDACTED:email]")


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from(["application/json", "text/event-stream", ""]))
@example(b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[" * 5000 + b"]" * 5000, "application/json")
@example(b"{}", b"data: " + b"[" * 5000 + b"]" * 5000 + b"\n\n", "text/event-stream")
@example(b'{"messages": "\\ud800 ann@example.com"}', b'{"x": NaN, "y": "ann@example.com"}', "application/json")
@settings(max_examples=200)
def test_no_bytes_make_it_raise(request: bytes, response: bytes, content_type: str) -> None:
    redactor = Redactor(RedactionSettings())
    after = redactor.exchange(raw(request, response, content_type=content_type))
    assert b"ann@example.com" not in after.request + after.response
    assert redactor.exchange(after) == after


@given(JSON_VALUES, st.sampled_from(PLANTS), st.integers(0, 9))
@settings(max_examples=150)
def test_wherever_a_plant_stands_in_json_it_goes_and_doing_it_twice_changes_nothing(
    value: Any, plant: Any, at: int
) -> None:
    redactor = Redactor(RedactionSettings())
    for level in range(at % 4):
        value = [value, plant.text] if level % 2 else {"k": plant.text, "v": value}
    record = raw({"messages": [{"role": "user", "content": value}], "x": value}, {"output": [value]})
    after = redactor.exchange(record)
    if plant.text in everything(record.request):
        assert "prompt" in after.redacted
    assert plant.value not in everything(after.request)
    assert plant.value not in everything(after.response)
    assert redactor.exchange(after) == after
    assert redactor.exchange(record) == after


@given(st.text(max_size=200), st.sampled_from(PLANTS), st.text(max_size=50))
@settings(max_examples=200)
def test_text_twice_redacted_is_text_once_redacted(before: str, plant: Any, after: str) -> None:
    redactor = Redactor(RedactionSettings())
    once = redactor.text(f"{before} {plant.text} {after}")[0]
    assert redactor.text(once) == (once, {})


def test_long_hostile_texts_take_time_in_proportion(redactor: Redactor) -> None:
    """Ten times the text may take ten times as long; what backtracks takes a hundred times."""
    import time

    rng = random.Random(3)
    seeds = [
        "a@", "@a.", "1 ", "1-", "+1 ", "eyJ", "eyJa.", "sk-", "sk-a", "password=", "password: '", "://a:", "a(at)b.",
        "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "AA00 ", "a_b_", "a_", "(212) ", "tel ", "\\", '"', "{",
        "[REDACTED:", "x", "0", "key", "api_key", ":AA", "hooks.slack.com/services/", "SG.a.", "bearer ", "-u a:", "00",
        "é@", "密码是",
    ]  # fmt: skip
    seeds += ["".join(rng.choice("a1@.-_ :=+\"'/(") for _ in range(7)) for _ in range(20)]

    def took(text: str) -> float:
        began = time.process_time()
        redactor.text(text)
        return time.process_time() - began

    for seed in seeds:
        short, long = seed * (4000 // len(seed)), seed * (40000 // len(seed))
        quick = min(took(short) for _ in range(2))
        assert took(long) < max(0.25, 40 * quick), seed


def test_a_password_found_together_with_what_follows_it_is_known_alone(redactor: Redactor) -> None:
    """In a database URL it looks like the beginning of an e-mail address."""
    told = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "use postgres://app:7vv7VJK4dtVqME@db.internal:5432/prod"},
            {"role": "assistant", "content": "so the password is 7vv7VJK4dtVqME then"},
        ],
    }
    after = redactor.exchange(raw(told, answered("I log in with 7vv7VJK4dtVqME now")))
    assert b"7vv7VJK4dtVqME" not in after.request
    assert b"7vv7VJK4dtVqME" not in after.response
    assert after.redacted == ("prompt", "response")


@pytest.mark.parametrize("streamed", [False, True])
def test_ids_in_the_raw_messages_of_the_responses_api_go_too(redactor: Redactor, streamed: bool) -> None:
    """vLLM gives them to who asks with `enable_response_messages`."""
    body = {
        "id": "resp_1",
        "status": "completed",
        "output": [],
        "input_messages": [{"type": "raw_message_tokens", "message": "", "tokens": [1, 2, 3]}],
        "output_messages": [{"type": "raw_message_tokens", "message": "fine", "tokens": [4, 5]}],
    }
    data: Any = body
    if streamed:
        data = b"data: " + json.dumps({"type": "response.completed", "response": body}).encode() + b"\n\n"
    kind = "text/event-stream" if streamed else "application/json"
    in_prompt = redactor.exchange(raw({"input": f"I am {MAIL}"}, data, path="/v1/responses", content_type=kind))
    assert in_prompt.redacted == ("prompt",)
    assert b"[1,2,3]" not in in_prompt.response.replace(b" ", b"")
    assert b"[4,5]" in in_prompt.response.replace(b" ", b"")
    said = data.replace(b"fine", MAIL.encode()) if streamed else json.dumps(data).replace("fine", MAIL).encode()
    in_response = redactor.exchange(raw({"input": "hi"}, said, path="/v1/responses", content_type=kind))
    assert in_response.redacted == ("response",)
    assert b"[1,2,3]" in in_response.response.replace(b" ", b"")
    assert b"[4,5]" not in in_response.response.replace(b" ", b"")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("nenosiri langu ni Tundra_3494sia", "Tundra_3494sia"),
        ("ο κωδικός πρόσβασης είναι Quince#2863rcl", "Quince#2863rcl"),
        ("la meva contrasenya és Basalt-11kk", "Basalt-11kk"),
        ("CREATE USER app IDENTIFIED BY 'Mangrove_5744vbc';", "Mangrove_5744vbc"),
        ("setenv('DEPLOY_TOKEN', 'Kestrel_9603');", "Kestrel_9603"),
        ("WIFI:T:WPA;S:Guest;P:Quince_2349vfn;;", "Quince_2349vfn"),
        ("robot session_id=Lwi4yt2o3UxZygJbfscd8uLR", "Lwi4yt2o3UxZygJbfscd8uLR"),
        ("RUT del cliente: 20.300.987-9", "20.300.987-9"),
        ("TC kimlik no 85439031610", "85439031610"),
        ("my SA ID number is 5702128967086", "5702128967086"),
    ],
)
def test_secrets_are_found_by_what_stands_around_them(redactor: Redactor, text: str, secret: str) -> None:
    assert secret not in redactor.text(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "identified by 'nobody'", "f('token', 'string')", "WIFI:T:nopass;S:Guest;;", "session=short",
        "an id number of 12", "RUT del cliente", "pass the salt e pepper 12",
    ],
)  # fmt: skip
def test_words_alone_are_no_secret(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == (text, {})
