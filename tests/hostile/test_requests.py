"""What goes on to the engine of a request, what does not, and where a request ends: one behind the other, 100 Continue,
limits, and large bodies."""

import msgspec
import pytest

from tests.hostile.cases import CHUNKED, ENDED, GET, HELLO, LIST, POST, SMUGGLED
from tests.hostile.conftest import BODY_LIMIT, HEAD_LIMIT, Rig
from tests.support.wire import chunk

# -- what goes on to the engine ----------------------------------------------------------------------------------------


def test_headers_between_neighbours_and_trailers_end_at_the_tap_and_the_host_is_its_choice(rig: Rig) -> None:
    with rig.client() as client:
        client.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: evil.example\r\n" + CHUNKED
            + b"Connection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\nTE: trailers\r\n"
            b"Proxy-Connection: close\r\nProxy-Authorization: Basic x\r\nTrailer: X-Sum\r\nX-Kept: 1\r\n\r\n"
            b"5\r\nhello\r\n0\r\nX-Evolved-Tenant: other\r\nAuthorization: Bearer evil\r\n\r\n"
        )  # fmt: skip
        assert client.response().status == 200
    (asked,) = rig.engine.asked
    names = {field.name.lower() for field in asked.fields}
    assert names >= {b"x-kept", b"host"}
    assert not names & {
        b"connection", b"keep-alive", b"x-mine", b"te", b"proxy-connection", b"proxy-authorization", b"trailer",
        b"x-evolved-tenant", b"authorization",
    }  # fmt: skip
    assert asked.one(b"host") == b"127.0.0.1:%d" % rig.engine.port


@pytest.mark.parametrize("target", [b'/nowhere"><script>', b"/x%0d%0aSet-Cookie:%20a=b", "/é☃".encode(), b'/\\"{}'])
def test_what_a_refusal_repeats_cannot_break_out_of_it(rig: Rig, target: bytes) -> None:
    with rig.client() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n" % target)
        (answer,) = client.responses()
    assert answer.status in (400, 404)
    assert answer.all(b"set-cookie") == []
    assert set(answer.json) == {"error"}
    assert rig.engine.asked == []


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions"])
def test_where_the_tap_writes_into_the_body_the_length_is_its_own(rig: Rig, path: bytes) -> None:
    body = b'{"model": "m", "messages": []}'
    for head in (
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(body), body) + ENDED,
    ):
        with rig.client() as client:
            client.send(b"POST %b HTTP/1.1\r\nHost: tap\r\n" % path + head)
            assert client.response().status == 200
    for asked in rig.engine.asked:
        assert msgspec.json.decode(asked.body)["model"] == "m"
    assert len(rig.engine.asked) == 2


# -- one behind the other ----------------------------------------------------------------------------------------------


def numbered(number: int, *fields: bytes) -> bytes:
    return b"\r\n".join((b"GET /v1/n%d HTTP/1.1" % number, b"Host: tap", *fields, b"", b""))


@pytest.mark.parametrize("count", [2, 20, 200])
def test_pipelined_requests_get_their_own_answers_in_order(rig: Rig, count: int) -> None:
    with rig.client() as client:
        client.send(b"".join(map(numbered, range(count - 1))) + numbered(count - 1, b"Connection: close"))
        answers = client.responses()
    assert [answer.json["target"] for answer in answers] == [f"/v1/n{number}" for number in range(count)]
    assert [asked.target for asked in rig.engine.asked] == [b"/v1/n%d" % number for number in range(count)]


def test_a_bad_request_between_good_ones_ends_the_connection_there(rig: Rig) -> None:
    with rig.client() as client:
        client.send(numbered(0) + numbered(1) + b"GET /v1/n2 HTTP/1.1\r\nA : b\r\n\r\n" + numbered(3))
        answers = client.responses()
    assert [answer.status for answer in answers] == [200, 200, 400]
    assert [asked.target for asked in rig.engine.asked] == [b"/v1/n0", b"/v1/n1"]


@pytest.mark.parametrize("last", [numbered(0, b"Connection: close"), b"GET /v1/n0 HTTP/1.0\r\n\r\n"])
@pytest.mark.parametrize("behind", [SMUGGLED, b"garbage", b"\x00" * 100])
def test_nothing_behind_a_last_request_is_looked_at(rig: Rig, last: bytes, behind: bytes) -> None:
    with rig.client() as client:
        client.send(last + behind)
        answers = client.responses()
    assert 1 <= len(answers) <= 2
    assert answers[0].status in (200, 400)
    assert [asked.target for asked in rig.engine.asked] == [b"/v1/n0"] * [one.status for one in answers].count(200)


# -- 100 Continue ------------------------------------------------------------------------------------------------------


def test_who_waits_for_100_gets_it_once_and_then_the_answer(rig: Rig) -> None:
    with rig.client() as client:
        client.send(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert client.reader.line() == b"HTTP/1.1 100 Continue"
        assert client.reader.line() == b""
        client.send(b"hello")
        answer = client.response()
        assert (answer.status, answer.interim) == (200, [])
    assert rig.engine.asked[0].short == HELLO
    assert rig.engine.asked[0].all(b"expect") == [], "it ends here: the body is there already"


def test_who_speaks_http_1_0_knows_no_100(rig: Rig) -> None:
    with rig.client() as client:
        client.send(b"POST /v1/embeddings HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello")
        answer = client.response()
        assert (answer.status, answer.interim) == (200, [])


def test_who_waits_for_100_behind_another_request_gets_it_behind_its_answer(rig: Rig) -> None:
    with rig.client() as client:
        client.send(numbered(0) + POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        answer = client.response()
        assert (answer.status, answer.interim) == (200, [])
        assert client.reader.line() == b"HTTP/1.1 100 Continue"
        assert client.reader.line() == b""
        client.send(b"hello")
        assert client.response().status == 200


def test_who_waits_for_100_with_too_large_a_body_is_told_before_it_sends_any(rig: Rig) -> None:
    with rig.client() as client:
        client.send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT + 1))
        answer = client.response()
        assert (answer.status, answer.interim) == (413, [])
        assert client.rest() == b""


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"X: " + b"v" * HEAD_LIMIT,
        GET + b"\r\n".join(b"X-%d: %d" % (number, number) for number in range(HEAD_LIMIT // 4)),
        b"GET /v1/" + b"x" * 2 * HEAD_LIMIT + b" HTTP/1.1\r\nHost: tap",
    ],
    ids=["one long value", "very many", "a target"],
)
def test_a_head_above_the_limit_gets_431(rig: Rig, sent: bytes) -> None:
    with rig.client() as client:
        client.send(sent + b"\r\n\r\n" + SMUGGLED)
        assert client.response().status == 431
        assert client.rest() == b""
    assert rig.engine.asked == []


def test_a_chunked_body_above_the_limit_never_reaches_the_engine_whole(rig: Rig) -> None:
    with rig.client() as client:
        client.send(POST + CHUNKED + b"\r\n")
        client.send(chunk(b"x" * 65_536) * (BODY_LIMIT // 65_536 + 2) + ENDED)
        assert client.response().status == 413
    assert rig.engine.asked == []


# -- large bodies ------------------------------------------------------------------------------------------------------

LARGE = b"0123456789abcdef" * 40_000
"""640 KB: these are counted."""


@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_a_large_body_reaches_the_engine_whole_and_alone(rig: Rig, chunked: bool) -> None:
    with rig.client() as client:
        if chunked:
            pieces = [chunk(LARGE[start : start + 50_000]) for start in range(0, len(LARGE), 50_000)]
            client.send(POST + CHUNKED + b"\r\n" + b"".join(pieces) + ENDED)
        else:
            client.send(POST + b"Content-Length: %d\r\n\r\n" % len(LARGE) + LARGE)
        client.send(GET + b"Connection: close\r\n\r\n")
        answers = client.responses()
    assert [answer.json["size"] for answer in answers] == [len(LARGE), 0]
    assert [asked.short for asked in rig.engine.asked] == [(b"POST", b"/v1/embeddings", LARGE), LIST]


@pytest.mark.parametrize(
    "wrong",
    [b"5;a\nhello\r\n", b"-5\r\nhello\r\n", b"5\r\nhelloXX0\r\n\r\n", b"0\n\n" + SMUGGLED, b"zz\r\n"],
    ids=["extension with bare LF", "negative size", "chunk without its end", "last with bare LFs", "no size"],
)
def test_a_large_body_that_goes_wrong_half_way_is_never_whole(rig: Rig, wrong: bytes) -> None:
    with rig.client() as client:
        client.send(POST + CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(LARGE), LARGE))
        client.send(wrong)
        assert 400 <= client.response().status < 600
        assert client.rest() == b""
    assert rig.engine.asked == []


def test_a_client_that_leaves_in_mid_upload_leaves_no_half_request(rig: Rig) -> None:
    for head in (CHUNKED + b"\r\n%x\r\n" % len(LARGE), b"Content-Length: %d\r\n\r\n" % (len(LARGE) + 1)):
        with rig.client() as client:
            client.send(POST + head + LARGE)
    rig.still_sane()
    assert [asked.start[0] for asked in rig.engine.asked] == [b"GET"]
