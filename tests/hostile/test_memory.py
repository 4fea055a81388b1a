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
from tests.hostile.conftest import Rig
from tests.support.strict_engine import StrictEngine
from tests.support.tap_process import tap_process
from tests.support.wire import Client, Cut

MEGA = 1 << 20
CONNECTIONS = 24


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, bytes]]:
    """A tap that wants keys and takes few connections, and a key."""
    directory = tmp_path_factory.mktemp("keyed")
    key = add_key(directory / "keys.json", tenant="acme", scope="agent", now=0.0)[0]
    engine = StrictEngine()
    door = DoorSettings(keys_file=str(directory / "keys.json"), require_key=True)
    with tap_process(directory, engine.port, door=door, max_connections=CONNECTIONS, request_seconds=30.0) as tap:
        yield Rig(engine, tap), key.encode()
    engine.close()


def asked(rig: Rig, key: bytes) -> int:
    """The status that an agent with a key gets."""
    with rig.client() as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: tap\r\nX-Evolved-Key: %b\r\n\r\n" % key)
        return client.response().status


def test_no_body_is_taken_in_before_the_key_is_asked_for(keyed: tuple[Rig, bytes]) -> None:
    rig, key = keyed
    assert asked(rig, key) == 200
    before = rig.tap.rss()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\n\r\n" % (7 * MEGA)
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\nHost: tap\r\nTransfer-Encoding: chunked\r\n\r\n600000\r\n"
    refused = 0
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(rig.client()) for _ in range(CONNECTIONS - 2)]
        for number, client in enumerate(clients):
            with contextlib.suppress(OSError, Cut):
                client.send((head, chunked)[number % 2])
                for _ in range(6):
                    client.send(b"x" * MEGA)
        for client in clients:
            with contextlib.suppress(OSError, Cut):
                refused += client.response().status == 401
        assert rig.tap.rss() - before < 20 * MEGA
        assert refused > CONNECTIONS / 2  # some are reset while they still send
        assert asked(rig, key) == 200


def test_answers_that_nobody_reads_are_not_made(rig: Rig) -> None:
    before = rig.tap.rss()
    asks = b"GET /elsewhere HTTP/1.1\r\nHost: tap\r\n\r\n" * 500
    with contextlib.ExitStack() as stack:
        for client in [stack.enter_context(rig.client(timeout=0.3, receive_buffer=4096)) for _ in range(8)]:
            with contextlib.suppress(OSError):
                for _ in range(1000):
                    client.send(asks)
        assert rig.tap.rss() - before < 24 * MEGA
    rig.still_sane()


def test_who_reads_late_gets_every_answer(rig: Rig) -> None:
    count = 4000
    with rig.client(timeout=20.0, receive_buffer=65_536) as client:
        client.sock.settimeout(20.0)
        sending = threading.Thread(
            target=client.send, args=(b"GET /elsewhere HTTP/1.1\r\nHost: tap\r\n\r\n" * count,), daemon=True
        )
        sending.start()
        time.sleep(0.3)
        assert [client.response().status for _ in range(count)] == [404] * count
        sending.join(5.0)


def test_idle_connections_keep_nobody_out(keyed: tuple[Rig, bytes]) -> None:
    rig, key = keyed
    with contextlib.ExitStack() as stack:
        for number in range(2 * CONNECTIONS):
            idle = stack.enter_context(rig.client())
            if number % 2:
                idle.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
        time.sleep(0.2)
        assert [asked(rig, key) for _ in range(5)] == [200] * 5
    assert rig.tap.descriptors() < 100 + 2 * CONNECTIONS


PAGE = [
    (b"Origin: https://evil.example\r\nContent-Type: application/json\r\n", 403),
    (b"Origin: null\r\nContent-Type: application/json\r\n", 403),
    (b"Origin: http://tap\r\nContent-Type: application/json\r\n", 403),
    (b"Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n", 403),
    (b"Content-Type: text/plain;charset=UTF-8\r\n", 415),
    (b"Content-Type: application/x-www-form-urlencoded\r\n", 415),
    (b"Content-Type: application/json\r\n", 202),
    (b"", 202),
]


@pytest.mark.parametrize(("fields", "status"), PAGE)
def test_a_web_page_reports_nothing(rig: Rig, fields: bytes, status: int) -> None:
    body = b'{"response_id": "chatcmpl-1", "outcome": 1}'
    with rig.client() as client:
        client.send(
            b"POST /v1/feedback HTTP/1.1\r\nHost: tap\r\n%bContent-Length: %d\r\n\r\n%b" % (fields, len(body), body)
        )
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
    body = b'{"weight": 1}'
    with Client(rig.tap.admin_port) as client:
        client.send(b"PUT /upstreams/serving HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (fields, len(body), body))
        assert client.response().status == status


def test_what_a_page_asks_the_engine_passes_and_is_not_kept(rig: Rig, tmp_path: Path) -> None:
    with rig.client() as client:
        client.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: tap\r\nOrigin: https://x.example\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert client.response().status == 200
    assert rig.tap.metrics()['evolved_tap_not_kept_total{reason="other_site"}'] >= 1
