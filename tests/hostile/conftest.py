"""One tap process before one strict engine for the whole suite: what one case leaves behind, the next one meets."""

import time
from collections.abc import Iterator

import msgspec
import pytest

from tests.support.strict_engine import StrictEngine
from tests.support.tap_process import TapProcess, tap_process
from tests.support.wire import Client

HEAD_LIMIT = 32_768
BODY_LIMIT = 2 << 20
REQUEST_SECONDS = 0.8
KEEP_ALIVE_SECONDS = 1.2
FIRST_BYTE_SECONDS = 1.0
IDLE_SECONDS = 0.8
SLACK = 4.0
"""Seconds by which a deadline may be missed on a busy machine; what has none takes far longer, or for ever."""
_IDLE = 'evolved_tap_upstream_idle{engine="serving"}'


class Rig(msgspec.Struct):
    """A tap and the engine behind it."""

    engine: StrictEngine
    tap: TapProcess
    marks: int = 0

    def client(self, *, timeout: float = 5.0, receive_buffer: int = 0) -> Client:
        """A new connection to the tap."""
        return Client(self.tap.port, timeout=timeout, receive_buffer=receive_buffer)

    def settle(self) -> None:
        """Return when the tap has looked at all that lies in its sockets now: it answers this by itself, and only in a
        later turn of its loop than that."""
        for _ in range(2):
            with self.client() as client:
                client.send(b"GET /nowhere HTTP/1.1\r\nHost: tap\r\n\r\n")
                assert client.response().status == 404

    def quiet(self) -> None:
        """Wait until no call of an earlier test can still reach the engine, for two seconds at most: a client that left
        has its call on its way, and a connection may lie unread in the engine's backlog."""
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            with Client(self.engine.port) as last:
                last.send(b"GET /v1/last HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")
                last.half_close()
                last.responses()
            told = self.tap.metrics()
            if told["evolved_tap_in_flight"] == 0 and self.engine.open <= told[_IDLE]:
                return
            time.sleep(0.01)

    def still_sane(self, *, alone: bool = True) -> None:
        """A request of somebody else gets its own answer, and the engine has got nothing that a strict one refuses.

        Args:
            alone: no call of before can still be on its way to the engine, so it gets this one and no other.
        """
        self.marks += 1
        target = b"/v1/somebody-else-%d" % self.marks
        before = len(self.engine.asked)
        with self.client() as client:
            client.send(b"GET %b HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n" % target)
            (answer,) = client.responses()
        assert answer.status == 200
        assert answer.json == {"target": target.decode(), "size": 0}
        got = [asked.short for asked in self.engine.asked[before:] if alone or asked.target == target]
        assert got == [(b"GET", target, b"")]
        assert self.engine.faults == []


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    engine = StrictEngine()
    settings = {
        "max_header_bytes": HEAD_LIMIT,
        "max_body_bytes": BODY_LIMIT,
        "request_seconds": REQUEST_SECONDS,
        "keep_alive_seconds": KEEP_ALIVE_SECONDS,
        "first_byte_seconds": FIRST_BYTE_SECONDS,
        "idle_seconds": IDLE_SECONDS,
        "spool_memory_bytes": 8 << 20,
        "spool_disk_bytes": 256 << 20,
        "max_capture_bytes": 1 << 20,
    }
    with tap_process(tmp_path_factory.mktemp("hostile"), engine.port, **settings) as tap:
        yield Rig(engine, tap)
    engine.close()


@pytest.fixture
def rig(running: Rig) -> Rig:
    running.engine.fresh()
    running.quiet()
    running.engine.fresh()
    return running
