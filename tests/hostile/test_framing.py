"""No request can be read in two ways: the engine gets what was meant or nothing, and nobody gets another's answer.

Each case is sent as it stands. After it, on the same connection where that goes on and on a new one in any case, a
plain request has to get its own answer; the engine behind reports all that a strict reader of RFC 9112 would refuse.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.hostile.cases import CASES, HELLO, POST, SMUGGLED, Case
from tests.hostile.conftest import SAME_EVERY_TIME, Rig

pytestmark = pytest.mark.promise


@pytest.mark.parametrize("how", ["whole", "after its like", "in pieces"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_engine_gets_what_was_meant_or_nothing(rig: Rig, case: Case, how: str) -> None:
    """Also behind a plain request that begins with the same bytes: a head that was let pass speaks for no other.

    And byte by byte at the places where a parser changes its mind: what is refused whole is refused in pieces.
    """
    with rig.client() as client:
        if how == "after its like":
            client.send(POST + b"Content-Length: 5\r\n\r\nhello")
            assert client.response().status == 200
            assert [asked.short for asked in rig.engine.asked] == [HELLO]
            rig.engine.asked.clear()
        half = max(1, len(case.sent) - 24) if how == "in pieces" else len(case.sent)
        client.send(case.sent[:half])
        for byte in case.sent[half:]:
            client.send(bytes([byte]))
        outcomes = [client.outcome() for _ in case.meant or (None,)]
        answers = [answer for answer in outcomes if answer]
        assert answers, "the tap closed without a word"
        if case.meant and not (case.refusable and 400 <= answers[0].status < 600):
            assert [answer.status for answer in answers] == [200] * len(case.meant)
            assert [asked.short for asked in rig.engine.asked] == list(case.meant)
            assert [answer.json["target"].encode() for answer in answers] == [target for _, target, _ in case.meant]
            client.send(b"GET /v1/after HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n")
            (after,) = client.responses()
            assert after.json["target"] == "/v1/after"
            rig.engine.asked.clear()
        else:
            assert 400 <= answers[0].status < 600
            # Whatever stands behind it is never looked at again.
            assert client.rest() == b""
    assert rig.engine.asked == []


@pytest.mark.parametrize(
    "line", [b"GET /v1/models RTSP/1.0", b"SOURCE /v1/models ICE/1.0", b"OPTIONS /v1/models RTSP/1.0"]
)
def test_a_cousin_of_http_passes_at_most_as_one_plain_request(rig: Rig, line: bytes) -> None:
    """llhttp reads RTSP and ICE as well, and calls them HTTP/1.0."""
    with rig.client() as client:
        client.send(line + b"\r\nHost: tap\r\n\r\n" + SMUGGLED)
        statuses = [answer.status for answer in client.responses()]
    assert statuses[0] in (200, 400, 505)
    assert b"/v1/smuggled" not in [asked.target for asked in rig.engine.asked]
    assert len(rig.engine.asked) == statuses.count(200)


# -- any cut, any noise ------------------------------------------------------------------------------------------------


_ATOMS = [
    b"POST /v1/embeddings HTTP/1.1\r\n", b"GET /v1/models HTTP/1.1\r\n", b"Host: tap\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"\r\n", b"\n",
    b"\r", b" ", b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"0\r\n", b"X: y\r\n", b"X: y\n", b"\x00", b";a=b\r\n",
    b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b"Connection: upgrade\r\n", SMUGGLED,
]  # fmt: skip


@settings(SAME_EVERY_TIME, max_examples=300)
@given(st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=12))
def test_no_mix_of_pieces_gets_past_a_strict_engine(rig: Rig, atoms: list[bytes]) -> None:
    """The engine never gets what a strict reader refuses, and as many requests as the client gets answers."""
    rig.engine.fresh()
    with rig.client() as client:
        client.send(b"".join(atoms))
        client.half_close()
        while client.reader.more():
            pass
    assert rig.engine.faults == []
    assert rig.engine.cut == 0
