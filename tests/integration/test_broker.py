"""`evolved broker` as an operator starts it: killed, started again, started twice."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import Installation
from tests.support.patience import wait_until, within
from tests.support.process import Process, alive


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    made.config.state.mkdir(mode=0o700)
    yield made
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(nats_server(made), signal.SIGKILL)


def nats_server(here: Installation) -> int:
    return int((here.config.state / "broker" / "nats.pid").read_text())


def started(here: Installation, broker: Process) -> int:
    """The nats-server, once it is up."""
    broker.until(lambda: broker.said("system_ready") and here.broker_listens)
    return nats_server(here)


def test_a_broker_that_was_killed_comes_back_on_its_port_and_ends_the_orphan(here: Installation) -> None:
    with here.running("broker") as broker:
        orphan = started(here, broker)
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait(within())
    assert alive(orphan), "it has the port"
    broker.log.unlink()
    with here.running("broker") as broker:
        assert started(here, broker) != orphan
        assert not alive(orphan)
        last = nats_server(here)
    wait_until(lambda: not alive(last), "SIGTERM ends the nats-server too")


def test_a_second_broker_is_refused_and_leaves_the_first_alone(here: Installation) -> None:
    with here.running("broker") as broker:
        server = started(here, broker)
        second = here.run("broker")
        assert second.returncode == 2
        assert "broker.lock is held: another evolved broker" in second.stderr
        assert nats_server(here) == server
        assert here.broker_listens
        assert broker.process.poll() is None
