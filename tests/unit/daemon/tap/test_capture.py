"""Which paths pass, what is asked for on top, and what is never copied."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import encode
from daemon.tap.admission import Admission, DoorSettings, Visitor
from daemon.tap.capture import TOKEN_FIELDS, Capture, Plan, RecordIds, check_path, with_tokens
from daemon.tap.errors import InvalidTapSettings, Refused
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Head, Request
from daemon.tap.settings import TapSettings, UpstreamSettings, upstreams_of


def request(
    body: bytes = b"{}", path: bytes = b"/v1/chat/completions", method: bytes = b"POST", **headers: str
) -> Request:
    lines = [(name.replace("_", "-").encode(), name.encode(), value.encode()) for name, value in headers.items()]
    bare = path.partition(b"?")[0]
    return Request(Head(method, path, bare, lines), body, 1.0)


CAPTURE = Capture(tokens=True)


def visitor(asked: Request) -> Visitor:
    return Admission(DoorSettings(), clock=lambda: 0.0).admit(asked)


def plan(**asked: object) -> Plan:
    wanted = request(**asked)
    return CAPTURE.plan(wanted, visitor(wanted))


def record(asked: Request, response: bytes = b"", problem: str = "", limit: int = 1000):
    reply = ReplyParser()
    reply.begin(head_only=False, max_capture_bytes=limit)
    if response:
        reply.feed(response)
    who = visitor(asked)
    return CAPTURE.record(
        asked, who, CAPTURE.plan(asked, who), reply,
        record_id=RecordIds().next(), engine="serving", body=asked.body, status=reply.head.status, finished=3.0,
        problem=problem,
    )  # fmt: skip


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
    sent, added = with_tokens(body)
    assert added == TOKEN_FIELDS
    assert json.loads(sent) == json.loads(body) | dict.fromkeys(TOKEN_FIELDS, True)
    assert sent.startswith(body[: body.rindex(b"}")])


def test_an_empty_object_gets_no_stray_comma() -> None:
    assert json.loads(with_tokens(b"{ }")[0]) == dict.fromkeys(TOKEN_FIELDS, True)


def test_an_object_of_nothing_but_blanks_gets_no_stray_comma() -> None:
    body, added = with_tokens(b"{" + b"\t" * 200 + b"}")
    assert set(json.loads(body)) == set(added)


def test_what_the_client_said_stands() -> None:
    body, added = with_tokens(b'{"logprobs": false, "return_token_ids": null}')
    assert added == ("return_weight_versions",)
    sent = json.loads(body)
    assert sent == {"logprobs": False, "return_token_ids": None, "return_weight_versions": True}
    everything = json.dumps(dict.fromkeys(TOKEN_FIELDS, False)).encode()
    assert with_tokens(everything) == (everything, ())


@pytest.mark.parametrize("body", [b"", b"{", b"}{", b"[]", b"null", b'"x"', b"\xff", b"[" * 5000, b'{"logprobs": }'])
def test_a_malformed_body_is_left_alone(body: bytes) -> None:
    assert with_tokens(body) == (body, ())


@pytest.mark.parametrize("body", [b"{} {}", b'{"a": }', b'{"a" 1}', b"[{}]", b'{"a": {}'])
def test_what_is_not_seen_to_be_malformed_stays_so_for_the_engine_to_see(body: bytes) -> None:
    sent, _ = with_tokens(body)
    try:
        assert not isinstance(json.loads(sent), dict)
    except ValueError:
        assert b"return_token_ids" in sent


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.integers())),
    )
)
def test_any_object_keeps_its_content(content: dict) -> None:
    body = json.dumps(content, ensure_ascii=False).encode()
    assert json.loads(with_tokens(body)[0]) == dict.fromkeys(TOKEN_FIELDS, True) | content


def test_only_completions_are_asked_for_tokens() -> None:
    assert plan(path=b"/v1/chat/completions?x=1").added == TOKEN_FIELDS
    assert json.loads(plan(path=b"/v1/completions").body)["logprobs"] == 0
    assert not plan(path=b"/v1/completions", body=b'{"echo": true}').added, "ids would change what it answers"
    assert not plan(path=b"/v1/embeddings").added
    assert not plan(path=b"/v1/messages/count_tokens").added
    assert not plan(content_encoding="gzip").added


def test_the_responses_api_is_asked_for_its_messages() -> None:
    asked = ("enable_response_messages",)
    found = plan(path=b"/v1/responses", body=b'{"input": "hi", "logprobs": 1}')
    assert (found.added, found.body) == (asked, b'{"input": "hi", "logprobs": 1,"enable_response_messages":true}')
    assert not plan(path=b"/v1/responses", body=b'{"enable_response_messages": false}').added
    assert not plan(path=b"/v1/responses", body=b'{"background": true}').added, "vLLM tells no messages of those"
    for body in (b'{"background": false}', b'{"tools": [{"parameters": {"background": {}}}]}'):
        assert plan(path=b"/v1/responses", body=body).added == asked


def test_messages_are_asked_for_their_tokens_unless_the_agent_says_otherwise() -> None:
    found = plan(path=b"/v1/messages?beta=true", body=b'{"max_tokens": 9}')
    assert (found.added, found.body) == (("evolved_tokens",), b'{"max_tokens": 9,"evolved_tokens":true}')
    assert not plan(path=b"/v1/messages", body=b'{"evolved_tokens": false}').added


def test_a_stored_response_is_shown_without_what_the_tap_had_asked_for_and_leaves_no_trace() -> None:
    stored = plan(path=b"/v1/responses/resp_1", method=b"GET", body=b"")
    assert (stored.added, stored.keep) == (("enable_response_messages",), False)


def test_an_answer_that_is_to_be_rewritten_must_not_come_compressed() -> None:
    assert b"accept-encoding" in plan(accept_encoding="gzip").dropped
    assert b"accept-encoding" not in plan(path=b"/v1/embeddings", accept_encoding="gzip").dropped


def test_only_posts_under_v1_are_kept() -> None:
    assert plan(path=b"/v1/anything").keep
    assert not plan(method=b"GET", path=b"/v1/models").keep
    assert not plan(path=b"/health").keep


@pytest.mark.parametrize(
    ("value", "kept"), [("1", False), ("true", False), ("yes", False), ("0", True), ("false", True)]
)
@pytest.mark.promise
def test_opting_out_means_no_record_and_an_untouched_request(value: str, kept: bool) -> None:
    asked = request(x_evolved_opt_out=value)
    found = CAPTURE.plan(asked, visitor(asked))
    assert (found.keep, bool(found.added)) == (kept, kept)
    assert kept or found.body is asked.body


def test_a_record_holds_what_went_by() -> None:
    asked = request(b'{"a":1}', x_evolved_trajectory="t1", x_evolved_tenant="acme", content_type="application/json")
    kept = record(
        asked,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    )
    assert (kept.request, kept.response, kept.status, kept.complete) == (b'{"a":1}', b"a", 200, True)
    assert (kept.content_type, kept.tenant, kept.hints.trajectory_id) == ("text/event-stream", "acme", "t1")
    assert (kept.received, kept.finished) == (1.0, 3.0)
    assert kept.tokens_requested
    assert len(bytes.fromhex(kept.id)) == 16


@pytest.mark.promise
def test_keys_are_never_copied() -> None:
    asked = request(authorization="Bearer secret", cookie="secret", x_api_key="secret")
    assert b"secret" not in encode(record(asked))


def test_a_response_that_is_too_large_leaves_a_record_that_says_so() -> None:
    kept = record(request(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", limit=3)
    assert (kept.complete, kept.problem, kept.response) == (False, "response_too_large", b"")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, False)),
        ("http://engine/", ("engine", 80, False)),
        ("http://[::1]:9", ("::1", 9, False)),
        ("https://engine", ("engine", 443, True)),
    ],
)
def test_the_upstream_is_a_plain_address(url: str, address: tuple[str, int, bool]) -> None:
    ((only, found),) = upstreams_of(TapSettings(upstream=url))
    assert (found.host, found.port, found.tls) == address
    assert only.name == "serving"


@pytest.mark.parametrize("url", ["engine:8000", "http://engine/v1", "http://k@engine", "http://e:99999", "ftp://e"])
def test_any_other_upstream_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(InvalidTapSettings, match=r"tap\.upstream"):
        upstreams_of(TapSettings(upstream=url))


@pytest.mark.parametrize(
    "told",
    [
        (("a", 1.0), ("a", 1.0)),
        (("", 1.0),),
        (("a", -1.0), ("b", 1.0)),
        (("a", 0.0), ("b", 0.0)),
    ],
)
def test_engines_that_cannot_be_told_apart_or_take_nothing_are_refused(told: tuple[tuple[str, float], ...]) -> None:
    upstreams = tuple(UpstreamSettings(url="http://e:1", name=name, weight=weight) for name, weight in told)
    with pytest.raises(InvalidTapSettings, match=r"tap\.upstreams"):
        upstreams_of(TapSettings(upstreams=upstreams))


@pytest.mark.promise
def test_record_ids_are_sixteen_bytes_and_never_twice() -> None:
    ids = RecordIds()
    made = {ids.next() for _ in range(1000)} | {RecordIds().next()}
    assert len(made) == 1001
    assert {len(bytes.fromhex(one)) for one in made} == {16}
