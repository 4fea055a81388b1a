"""Which paths pass, what is asked for on top, and what is never copied."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tap.capture import TOKEN_FIELDS, Capture, check_path, with_tokens
from daemon.tap.errors import InvalidTapSettings, Refused
from daemon.tap.http import ReplyParser, Request
from daemon.tap.settings import TapSettings, captured_headers, upstream_address


def request(
    body: bytes = b"{}", path: bytes = b"/v1/chat/completions", method: bytes = b"POST", **headers: str
) -> Request:
    lines = [(name.replace("_", "-").encode(), name.encode(), value.encode()) for name, value in headers.items()]
    bare = path.partition(b"?")[0]
    return Request(
        method=method, target=path, path=bare, headers=lines, body=body, old=False, keep_alive=True, received=1.0
    )


def capture(**settings: object) -> Capture:
    return Capture(engine="serving", tokens=True, headers=captured_headers(TapSettings(**settings)))


def record(asked: Request, response: bytes = b"", problem: str = "", limit: int = 1000):
    taking = capture()
    reply = ReplyParser(head_only=False, max_capture_bytes=limit)
    if response:
        reply.feed(response)
    return taking.record(asked, taking.plan(asked), reply, status=reply.status, times=(2.0, 3.0), problem=problem)


@pytest.mark.parametrize(
    "path",
    [b"/v1/chat/completions", b"/v1/models", b"/v1/models/org%2Fname", b"/v1/unknown/thing", b"/health", b"/v1/a.b"],
)
def test_v1_and_health_pass(path: bytes) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        b"/pause", b"/collective_rpc", b"/update_weights", b"/metrics", b"/", b"", b"*", b"/v1", b"/V1/models",
        b"/v1x/y",
        b"/v1/../pause", b"/v1/%2e%2e/pause", b"/v1/%2E./pause", b"/v1/a/..%2f..%2fpause", b"/v1/./models", b"//pause",
        b"/v1//pause", b"/v1/..\\pause", b"/health/../pause", b"/healthx", b"http://engine/pause", b"http://engine/v1/models",
        b"/v1/load_lora_adapter", b"/v1/unload_lora_adapter/", b"/v1/load%5flora_adapter",
    ],
)  # fmt: skip
def test_nothing_else_passes(path: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        check_path(path)
    assert refusal.value.status == 404


def test_what_the_client_left_out_is_asked_for_and_the_rest_stays_byte_for_byte() -> None:
    body = b' {"model": "m",\n "messages": [], "temperature": 1.0 } '
    sent = with_tokens(body)
    assert json.loads(sent) == json.loads(body) | dict.fromkeys(TOKEN_FIELDS, True)
    assert sent.startswith(body[: body.rindex(b"}")])


def test_an_empty_object_gets_no_stray_comma() -> None:
    assert json.loads(with_tokens(b"{ }")) == dict.fromkeys(TOKEN_FIELDS, True)


def test_what_the_client_said_stands() -> None:
    sent = json.loads(with_tokens(b'{"logprobs": false, "return_token_ids": null}'))
    assert sent == {"logprobs": False, "return_token_ids": None, "return_weight_versions": True}
    everything = json.dumps(dict.fromkeys(TOKEN_FIELDS, False)).encode()
    assert with_tokens(everything) is everything


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"{} {}", b'{"a": }', b"\xff", b"[" * 5000])
def test_a_malformed_body_is_left_alone(body: bytes) -> None:
    assert with_tokens(body) is body


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.integers())),
    )
)
def test_any_object_keeps_its_content(content: dict) -> None:
    body = json.dumps(content, ensure_ascii=False).encode()
    assert json.loads(with_tokens(body)) == dict.fromkeys(TOKEN_FIELDS, True) | content


def test_only_chat_completions_are_asked_for_tokens() -> None:
    assert capture().plan(request(path=b"/v1/chat/completions?x=1")).tokens_requested
    assert not capture().plan(request(path=b"/v1/embeddings")).tokens_requested
    assert not capture().plan(request(content_encoding="gzip")).tokens_requested


def test_only_posts_under_v1_are_kept() -> None:
    assert capture().plan(request(path=b"/v1/anything")).keep
    assert not capture().plan(request(method=b"GET", path=b"/v1/models")).keep
    assert not capture().plan(request(path=b"/health")).keep


@pytest.mark.parametrize(
    ("value", "kept"), [("1", False), ("true", False), ("yes", False), ("0", True), ("false", True)]
)
def test_opting_out_means_no_record_and_an_untouched_request(value: str, kept: bool) -> None:
    asked = request(x_evolved_opt_out=value)
    plan = capture().plan(asked)
    assert (plan.keep, plan.tokens_requested, plan.opted_out) == (kept, kept, not kept)
    assert kept or plan.body is asked.body


def test_a_record_holds_what_went_by() -> None:
    asked = request(b'{"a":1}', x_evolved_trajectory="t1", x_evolved_tenant="acme", content_type="application/json")
    kept = record(
        asked,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    )
    assert (kept.request, kept.response, kept.status, kept.complete) == (b'{"a":1}', b"a", 200, True)
    assert (kept.content_type, kept.tenant, kept.hints.trajectory_id) == ("text/event-stream", "acme", "t1")
    assert (kept.received, kept.first_byte, kept.finished) == (1.0, 2.0, 3.0)
    assert kept.tokens_requested
    assert len(bytes.fromhex(kept.id)) == 16


def test_keys_are_never_copied() -> None:
    asked = request(authorization="Bearer secret", cookie="secret", x_api_key="secret", user_agent="agent/1")
    assert record(asked).headers == {"user-agent": "agent/1"}


def test_a_setting_that_would_copy_keys_is_refused() -> None:
    with pytest.raises(InvalidTapSettings, match="authorization"):
        captured_headers(TapSettings(capture_headers=("Authorization",)))


def test_a_response_that_is_too_large_leaves_a_record_that_says_so() -> None:
    kept = record(request(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", limit=3)
    assert (kept.complete, kept.problem, kept.response) == (False, "response_too_large", b"")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("http://engine/", ("engine", 80)),
        ("http://[::1]:9", ("::1", 9)),
    ],
)
def test_the_upstream_is_a_plain_address(url: str, address: tuple[str, int]) -> None:
    assert upstream_address(TapSettings(upstream=url)) == address


@pytest.mark.parametrize(
    "url", ["https://engine", "engine:8000", "http://engine/v1", "http://k@engine", "http://e:99999"]
)
def test_any_other_upstream_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(InvalidTapSettings, match=r"tap\.upstream"):
        upstream_address(TapSettings(upstream=url))
