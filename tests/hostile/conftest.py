"""Two taps, each before a strict engine, for the whole suite: what one case leaves behind, the next one meets.

After each case somebody else's request must get its own answer. The deadlines of one tap never strike; the other's are
short, for tests of deadlines.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis
import msgspec
import pytest

from tests.support.patience import SLOW, wait_until, within
from tests.support.strict_engine import StrictEngine
from tests.support.tap_process import TapProcess, tap_process
from tests.support.wire import Client

HEAD_LIMIT = 65_536
BODY_LIMIT = 2 << 20
NEVER_SECONDS = within(600)
"""Longer than any test waits: what ends, ends by itself."""
DEADLINE_SECONDS = 2.0 * SLOW
"""Of each phase at the hasty tap: long enough for those that it shall not strike."""
PHASES = ("proxy.CONNECT", "agent.REQUEST", "agent.KEEP_ALIVE", "proxy.IDLE")
"""Deadlines besides that for the first byte."""
_IDLE = 'evolved_tap_upstream_idle{engine="serving"}'

SAME_EVERY_TIME = hypothesis.settings(
    deadline=None, database=None, derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)  # fmt: skip


class Rig(msgspec.Struct):
    """A tap and the engine behind it."""

    engine: StrictEngine
    tap: TapProcess
    marks: int = 0

    def client(self, *, receive_buffer: int = 0) -> Client:
        """A new connection to the tap."""
        return Client(self.tap.port, receive_buffer=receive_buffer)

    def fresh(self) -> "Rig":
        """As new: no call of an earlier test can still reach the engine. That of a client that left may be on its way,
        and a connection may lie unread in the engine's backlog."""
        self.engine.fresh()
        wait_until(self._quiet, "the tap has no call, and the engine no connection but those of the tap's pool")
        self.engine.fresh()
        return self

    def _quiet(self) -> bool:
        with Client(self.engine.port) as last:
            last.send(b"GET /v1/last HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")
            last.half_close()
            last.responses()
        told = self.tap.metrics()
        return told["evolved_tap_in_flight"] == 0 and self.engine.open <= told[_IDLE]

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


@contextlib.contextmanager
def rig_of(
    directory: Path, seconds: float, *, constants: Mapping[str, float] = {}, **settings: object
) -> Iterator[Rig]:
    """A tap in which each phase may take `seconds`, and an engine behind it."""
    engine = StrictEngine()
    phases = {f"{phase}_SECONDS": seconds for phase in PHASES}
    constants = {**phases, "capture.MAX_CAPTURE_BYTES": 1 << 20, **constants}
    with tap_process(directory, engine.port, constants=constants, first_byte_seconds=seconds, **settings) as tap:
        yield Rig(engine, tap)
    engine.close()


SETTINGS = {
    "max_body_bytes": BODY_LIMIT,
    "spool_memory_bytes": 8 << 20,
    "spool_disk_bytes": 256 << 20,
}


@pytest.fixture(scope="session")
def patient_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_of(tmp_path_factory.mktemp("patient"), NEVER_SECONDS, **SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def hasty_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_of(tmp_path_factory.mktemp("hasty"), DEADLINE_SECONDS, **SETTINGS) as running:
        yield running


def watched(rig: Rig) -> Iterator[Rig]:
    """Fresh before a test, and sane behind it."""
    yield rig.fresh()
    assert rig.engine.faults == []
    rig.engine.fresh()
    # A request of the test may still be on its way to the engine.
    rig.still_sane(alone=False)


@pytest.fixture
def rig(patient_rig: Rig) -> Iterator[Rig]:
    """No deadline strikes here."""
    yield from watched(patient_rig)


@pytest.fixture
def hasty(hasty_rig: Rig) -> Iterator[Rig]:
    """For tests that want a deadline to strike, and for them alone."""
    yield from watched(hasty_rig)
