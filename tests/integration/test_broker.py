"""`evolved broker` as an operator starts it: started twice, and ended."""

import signal
import socket
from pathlib import Path

from actors.system.broker import holder, read_credentials
from tests.support.installation import Installation


def test_a_second_broker_is_refused_and_sigterm_ends_the_first(tmp_path: Path) -> None:
    here = Installation(tmp_path)
    here.config.state.mkdir(mode=0o700)
    with here.running("broker") as broker:
        broker.until(lambda: here.broker_listens)
        directory = here.config.state / "broker"
        assert broker.said("broker_starts", str(read_credentials(directory / "credentials.json").port))
        pid = directory / "nats.pid"
        assert int(pid.read_text()) == holder(directory) == broker.pid, "no process stands above the server"
        before = {name: (directory / name).read_bytes() for name in ("nats.conf", "credentials.json")}
        second = here.run("broker")
        assert second.returncode == 2
        assert "broker.lock is held: another evolved broker" in second.stderr
        assert {name: (directory / name).read_bytes() for name in before} == before
        assert int(pid.read_text()) == broker.pid
        assert here.broker_listens
        assert broker.process.poll() is None
        broker.signal(signal.SIGTERM)
        broker.wait()
        assert holder(directory) == 0


def test_a_restart_takes_the_port_that_clients_know_or_fails(tmp_path: Path) -> None:
    here = Installation(tmp_path)
    with here.running("broker") as broker:
        broker.until(lambda: here.broker_listens)
        told = read_credentials(here.config.state / "broker" / "credentials.json")
        broker.kill()
    with socket.create_server(("127.0.0.1", told.port)):
        taken = here.run("broker")
    assert taken.returncode == 2
    assert f"port {told.port}" in taken.stderr
    with here.running("broker") as broker:
        broker.until(lambda: here.broker_listens)
        assert read_credentials(here.config.state / "broker" / "credentials.json") == told
