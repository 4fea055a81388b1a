"""What is asked for on top, what is copied, and what never is. Paths: `tests/hostile/test_paths.py`."""

import json
import random
from typing import Any

import msgspec
import pytest

from actors.messages import Exchange, encode
from daemon.tap.admission import Visitor
from daemon.tap.body_budget import BodyBudget
from daemon.tap.capture import mirrored, new_id, record
from daemon.tap.errors import InvalidTapSettings
from daemon.tap.paths import COMPLETIONS, MESSAGES, RESPONSES, is_call
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Request
from daemon.tap.settings import UpstreamSettings
from daemon.tap.token_fields import TOKEN_FIELDS, asked
from tests.unit.daemon.tap.made import request

CHAT = b"/v1/chat/completions"


def plan(body: bytes = b"{}", **settings: Any) -> tuple[bytes, tuple[str, ...]]:
    return asked(request(body, **settings), kept=True)


def made(asked: Request, response: bytes = b"", limit: int = 1000) -> Exchange:
    reply = ReplyParser()
    reply.begin(head_only=False, max_capture_bytes=limit)
    if response:
        reply.feed(response)
    return record(
        new_id(random.Random()), asked, Visitor("acme"), reply, engine="serving", status=reply.head.status,
        finished=3.0, problem="",
    )  # fmt: skip


@pytest.mark.promise
def test_copies_of_answers_under_way_share_one_budget_and_give_it_back() -> None:
    copies, answers = BodyBudget(100), [ReplyParser() for _ in range(3)]
    for one in answers:
        one.begin(head_only=False, max_capture_bytes=1000, copies=copies)
        one.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 120\r\n\r\n" + 40 * b"x")
    assert ([one.overflow for one in answers], copies.taken) == ([False, False, True], 80)
    answers[0].drop_copy()
    answers[2].feed(40 * b"x")
    assert (answers[2].overflow, answers[2].body, copies.taken) == (True, [], 40), "a copy with a hole is none"
    answers[1].feed(80 * b"x")
    assert (answers[1].overflow, answers[1].done, copies.taken) == (True, True, 0)


MESSAGE_FIELDS, TOKENS = ("enable_response_messages",), ("evolved_tokens",)


@pytest.mark.parametrize(
    ("path", "body", "added"),
    [
        (CHAT + b"?x=1", b"{}", TOKEN_FIELDS),
        (CHAT, b' {"model": "m",\n "messages": [], "temperature": 1.0 } ', TOKEN_FIELDS),
        (CHAT, b'{"logprobs": false, "return_token_ids": null}', ("return_weight_versions",)),
        (CHAT, json.dumps(dict.fromkeys(TOKEN_FIELDS, False)).encode(), ()),
        (COMPLETIONS, b"{}", TOKEN_FIELDS),
        (COMPLETIONS, b'{"echo": true}', ()),  # ids would change what it answers
        (RESPONSES, b'{"input": "hi", "logprobs": 1}', MESSAGE_FIELDS),
        (RESPONSES, b'{"enable_response_messages": false}', ()),
        (RESPONSES, b'{"background": true}', ()),  # vLLM tells no messages of those
        (RESPONSES, b'{"background": false}', MESSAGE_FIELDS),
        (RESPONSES, b'{"tools": [{"parameters": {"background": {}}}]}', MESSAGE_FIELDS),
        (MESSAGES + b"?beta=true", b'{"max_tokens": 9}', TOKENS),
        (MESSAGES, b'{"evolved_tokens": false}', ()),
        (MESSAGES + b"/count_tokens", b"{}", ()),
        (b"/v1/embeddings", b"{}", ()),
    ],
)
def test_each_path_is_asked_for_what_its_engine_gives_and_what_was_said_stands(
    path: bytes, body: bytes, added: tuple[str, ...]
) -> None:
    sent, fields = plan(body, path=path)
    assert fields == added
    asked = {**dict.fromkeys(added, True), **({"logprobs": 0} if added and path == COMPLETIONS else {})}
    assert json.loads(sent) == json.loads(body) | asked
    assert sent.startswith(body[: body.rindex(b"}")]), "byte for byte"
    assert sent == body or added


def test_what_is_compressed_or_in_an_old_dialect_of_http_is_left_alone() -> None:
    assert not plan(content_encoding="gzip")[1]
    assert not plan(method=b"GET")[1]


def test_a_stored_response_is_shown_without_what_the_tap_had_asked_for_and_leaves_no_trace() -> None:
    stored = request(b"", b"/v1/responses/resp_1", b"GET")
    assert asked(stored, kept=False) == (b"", MESSAGE_FIELDS)
    assert not is_call(stored.path)
    assert not is_call(b"/health")


@pytest.mark.promise
def test_a_record_holds_what_went_by_and_no_key() -> None:
    asked = request(
        b'{"a":1}', x_evolved_trajectory="t1", x_evolved_id="order-1", authorization="Bearer secret", cookie="secret",
        x_api_key="secret",
    )  # fmt: skip
    streamed = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    kept = made(asked, streamed + b"0\r\n\r\n")
    assert (kept.request, kept.response, kept.status, kept.complete) == (b'{"a":1}', b"a", 200, True)
    assert (kept.streamed, kept.tenant) == (True, "acme")
    assert (kept.hints.trajectory_id, kept.hints.custom_id) == ("t1", "order-1")
    assert (kept.started, kept.duration) == (1.0, 2.0)
    assert b"secret" not in encode(kept)
    large = made(request(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", limit=3)
    assert (large.complete, large.error, large.response) == (False, "response_too_large", b"")


@pytest.mark.promise
def test_a_large_request_passes_and_its_record_comes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.tap.capture.MAX_CAPTURE_BYTES", 10)
    large, small = request(b"x" * 11), request(b"x" * 10)
    for kept in (made(large), mirrored("0" * 32, large, Visitor("acme"))):
        assert (kept.complete, kept.request) == (False, b"")
    assert made(small).request == small.body


@pytest.mark.promise
def test_record_ids_are_sixteen_bytes_and_never_twice() -> None:
    ids = random.Random()
    made = {new_id(ids) for _ in range(1000)} | {new_id(random.Random())}
    assert len(made) == 1001
    assert {len(bytes.fromhex(one)) for one in made} == {16}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, False)),
        ("http://engine/", ("engine", 80, False)),
        ("http://[::1]:9", ("::1", 9, False)),
        ("https://engine", ("engine", 443, True)),
        *((url, None) for url in ("engine:8000", "http://engine/v1", "http://k@engine", "http://e:99999", "ftp://e")),
    ],
)
def test_an_upstream_is_a_plain_address(url: str, address: tuple[str, int, bool] | None) -> None:
    if address is None:
        with pytest.raises(InvalidTapSettings, match=r"engines"):
            _ = UpstreamSettings(url=url).address
    else:
        only = UpstreamSettings(url=url)
        assert (only.name, *msgspec.structs.astuple(only.address)) == ("serving", *address)
