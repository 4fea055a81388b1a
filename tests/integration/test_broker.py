"""`evolved broker` as an operator starts it: started twice, and ended."""

import signal
from pathlib import Path

from tests.support.installation import Installation
from tests.support.process import alive


def test_a_second_broker_is_refused_and_sigterm_ends_the_first_with_its_server(tmp_path: Path) -> None:
    here = Installation(tmp_path)
    here.config.state.mkdir(mode=0o700)
    with here.running("broker") as broker:
        broker.until_said("system_ready")
        broker.until(lambda: here.broker_listens)
        pid = here.config.state / "broker" / "nats.pid"
        server = int(pid.read_text())
        second = here.run("broker")
        assert second.returncode == 2
        assert "broker.lock is held: another evolved broker" in second.stderr
        assert int(pid.read_text()) == server
        assert here.broker_listens
        assert broker.process.poll() is None
        broker.signal(signal.SIGTERM)
        broker.wait()
        assert not alive(server)
