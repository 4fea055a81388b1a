"""Whoever may only connect costs no memory and keeps nobody out: bodies before a key, answers that nobody reads,
connections that say nothing. And what a web page may not do."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.tap.admission import DoorSettings
from daemon.tap.keys import add_key
from tests.hostile.conftest import NEVER_SECONDS, Rig, rig_of
from tests.support.patience import wait_until, within
from tests.support.strict_engine import Line, echo
from tests.support.wire import Client, Message, asks

MEGA = 1 << 20
CONNECTIONS = 24


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, bytes]]:
    """A tap that wants keys and takes few connections, and a key."""
    directory = tmp_path_factory.mktemp("keyed")
    key = add_key(directory / "keys.json", tenant="acme", scope="agent", now=0.0)[0]
    door = DoorSettings(keys_file=str(directory / "keys.json"), require_key=True)
    with rig_of(directory, NEVER_SECONDS, door=door, max_connections=CONNECTIONS) as rig:
        yield rig, key.encode()


def asked(rig: Rig, key: bytes) -> int:
    """The status that an agent with a key gets."""
    with rig.client() as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: tap\r\nX-Evolved-Key: %b\r\n\r\n" % key)
        return client.response().status


def test_no_body_is_taken_in_before_the_key_is_asked_for(keyed: tuple[Rig, bytes]) -> None:
    """Who has none is told before the body is sent, or after a little of it if nobody knows how long it will be."""
    rig, key = keyed
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\n\r\n" % (7 * MEGA)
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\nHost: tap\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"700000\r\n" + b"x" * 65_537
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS - 2):
            client = stack.enter_context(rig.client())
            client.send((head, chunked)[number % 2])
            assert client.response().status == 401
            client.send(b"x" * 6 * MEGA)
        assert asked(rig, key) == 200


def test_answers_that_nobody_reads_are_not_made(rig: Rig) -> None:
    asks = b"GET /elsewhere HTTP/1.1\r\nHost: tap\r\n\r\n" * 500_000
    with rig.client(receive_buffer=4096) as client:
        taken = rig.tap.stuff(client, asks)
    assert taken < len(asks) / 2, "the others wait in the client"


def test_what_is_sent_before_its_turn_is_held_within_one_bound_for_all(tmp_path: Path) -> None:
    gate, early = threading.Event(), b"GET /v1/models?%b HTTP/1.1\r\nHost: tap\r\n\r\n" % (b"x" * 60_000)
    with rig_of(tmp_path, NEVER_SECONDS, constants={"body_budget.LIMIT": MEGA}) as rig, contextlib.ExitStack() as stack:
        rig.engine.script = lambda asked, line: gate.wait(within()) and echo(asked, line)
        clients = [stack.enter_context(rig.client()) for _ in range(64)]
        for client in clients:
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: tap\r\n\r\n")
        wait_until(lambda: len(rig.engine.asked) == len(clients), "all are being answered")
        before = rig.tap.rss()
        for client in clients:
            client.send(early)
            rig.tap.settle()
        assert rig.tap.rss() - before < 2 * MEGA
        gate.set()
        told = [(client.response().status, client.response().status) for client in clients]
    assert {first for first, _ in told} == {200}, "the request before it is answered"
    assert {second for _, second in told} == {200, 503}, "those that found no room are told to come again"


def test_an_answer_that_is_not_read_holds_little_of_it(tmp_path: Path) -> None:
    """The piece that did not go out whole: the rest stays with the engine."""
    body = bytes(8 * MEGA)

    def large(asked: Message, line: Line) -> bool:
        with contextlib.suppress(OSError):  # the tap closes at the end
            line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return False

    with rig_of(tmp_path, NEVER_SECONDS) as rig, contextlib.ExitStack() as stack:
        rig.engine.script = large
        clients = [stack.enter_context(rig.client(receive_buffer=4096)) for _ in range(64)]
        sizes = [rig.tap.rss()]
        for client in clients:
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: tap\r\n\r\n")

        def still() -> bool:
            time.sleep(0.3)
            sizes.append(rig.tap.rss())
            return sizes[-1] - sizes[0] > MEGA and sizes[-1] == sizes[-2]

        wait_until(still, "no more of the answers is taken")
    assert sizes[-1] - sizes[0] < len(clients) * 320 * 1024


def test_a_head_of_many_small_headers_is_refused_as_a_large_one_is(rig: Rig) -> None:
    """An empty header is of four bytes on the wire and of some hundred in memory."""
    for number, status in ((128, 200), (10_000, 431)):
        with rig.client() as client:
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: tap\r\n" + b"a:\r\n" * (number - 1) + b"\r\n")
            assert client.response().status == status


def test_idle_connections_keep_nobody_out(keyed: tuple[Rig, bytes]) -> None:
    rig, key = keyed
    with contextlib.ExitStack() as stack:
        for number in range(2 * CONNECTIONS):
            idle = stack.enter_context(rig.client())
            if number % 2:
                idle.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
        rig.tap.settle()
        assert [asked(rig, key) for _ in range(5)] == [200] * 5
    assert rig.tap.descriptors() < 100 + 2 * CONNECTIONS


def test_more_connections_than_allowed_get_503(keyed: tuple[Rig, bytes]) -> None:
    rig, key = keyed
    gate = threading.Event()

    def held(asked: Message, line: Line) -> bool:
        return gate.wait(within()) and echo(asked, line)

    rig.fresh().engine.script = held
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(rig.client()) for _ in range(CONNECTIONS)]
        for client in inside:
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: tap\r\nX-Evolved-Key: %b\r\n\r\n" % key)
        # One that waits for its agent would be closed to make room.
        wait_until(lambda: len(rig.engine.asked) == CONNECTIONS, "all are being answered")
        assert asked(rig, key) == 503
        gate.set()
        assert [client.response().status for client in inside] == [200] * CONNECTIONS
        inside.pop().close()
        wait_until(lambda: asked(rig, key) == 200, "there is room again")


JSON, FEEDBACK = b"Content-Type: application/json", b'{"response_id": "chatcmpl-1", "outcome": 1}'


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([b"Origin: https://evil.example", JSON], 403),
        ([b"Origin: null", JSON], 403),
        ([b"Origin: http://tap", JSON], 403),
        ([b"Sec-Fetch-Site: cross-site", JSON], 403),
        ([b"Content-Type: text/plain;charset=UTF-8"], 415),
        ([b"Content-Type: application/x-www-form-urlencoded"], 415),
        ([JSON], 202),
        ([], 415),
    ],
)
def test_a_web_page_reports_nothing(rig: Rig, fields: list[bytes], status: int) -> None:
    with rig.client() as client:
        client.send(asks(b"/v1/feedback", FEEDBACK, *fields))
        assert client.response().status == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"Host: localhost\r\nOrigin: http://localhost\r\n", 403),
        (b"Host: evil.example:8081\r\n", 403),
        (b"Host: 127.0.0.1\r\nSec-Fetch-Site: same-origin\r\n", 403),
        (b"Host: [::1]:8081\r\n", 200),
        (b"Host: 127.0.0.1:8081\r\n", 200),
        (b"Host: localhost:8081\r\n", 200),
    ],
)
def test_a_web_page_does_not_use_the_admin_port(rig: Rig, fields: bytes, status: int) -> None:
    with Client(rig.tap.admin_port) as client:
        client.send(b"GET /metrics HTTP/1.1\r\n%b\r\n" % fields)
        assert client.response().status == status
