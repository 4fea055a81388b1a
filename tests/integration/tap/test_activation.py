"""The tap under a service manager: sockets that it is given, and what it tells. The manager is this test."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.tap.errors import InvalidTapSettings
from daemon.tap.sockets import inherited
from tests.support.patience import wait_until, within

_START = (
    "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid());"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
FEEDBACK = b'{"response_id": "r", "outcome": 1}'
REQUEST = (
    b"POST /v1/feedback HTTP/1.1\r\nHost: tap\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(FEEDBACK)
) + FEEDBACK


class Manager:
    """As systemd does it: holds the socket, starts and stops the process behind it, listens to what it tells."""

    def __init__(self, directory: Path) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.socket.getsockname()[1]
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(str(directory / "notify"))
        self.told.settimeout(within())
        self._directory, self._process = directory, None

    def start(self) -> None:
        number = self.socket.fileno()
        given = {
            "LISTEN_FDS": "1", "LISTEN_FDNAMES": "agents", "NOTIFY_SOCKET": str(self._directory / "notify"),
            "WATCHDOG_USEC": "400000",
        }  # fmt: skip
        settings = [f'state_dir="{self._directory}/state"', "tap.port=1", "tap.admin_port=0", 'tap.door.keys_file=""']
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, "-m", "daemon.cli", "tap", *[f"--set={text}" for text in settings]],
            env={**os.environ, **given},
            preexec_fn=lambda: os.dup2(number, 3),
            pass_fds=(3,),
            stderr=subprocess.DEVNULL,
        )
        self.wait_for("READY=1")

    def wait_for(self, line: str) -> None:
        while line not in self.told.recv(4096).decode().splitlines():
            pass

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(within())

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.socket.close()
        self.told.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    (tmp_path / "state").mkdir()
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def ask(port: int) -> str:
    """Status line of the answer to one request, or the error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=within()) as one:
            one.sendall(REQUEST)
            return one.makefile("rb").readline().decode().strip()
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def test_a_restart_under_load_refuses_no_connection(manager: Manager) -> None:
    manager.start()
    answers: list[str] = []
    over = threading.Event()

    def agent() -> None:
        while not over.is_set():
            answers.append(ask(manager.port))

    agents = [threading.Thread(target=agent) for _ in range(4)]
    for one in agents:
        one.start()
    try:
        for _ in range(2):
            enough = len(answers) + 50
            wait_until(lambda wanted=enough: len(answers) >= wanted, "the agents are answered")
            assert manager.stop() == 0
            manager.start()
    finally:
        over.set()
    for one in agents:
        one.join(within())
    assert set(answers) == {"HTTP/1.1 202 Accepted"}


def test_the_manager_hears_that_it_is_ready_alive_and_stopping(manager: Manager) -> None:
    manager.start()
    manager.wait_for("WATCHDOG=1")
    manager.wait_for("WATCHDOG=1")
    assert manager.stop() == 0
    manager.wait_for("STOPPING=1")


def test_sockets_are_taken_by_name_and_children_hear_nothing_of_them() -> None:
    environment = {"LISTEN_FDS": "2", "LISTEN_PID": "7", "LISTEN_FDNAMES": "agents:admin", "HOME": "/"}
    assert inherited(environment, pid=8) == {}
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("names", "complaint"), [("postgres", "knows agents, mirror and admin"), ("agents", "ListenStream=")]
)
def test_a_descriptor_that_cannot_be_used_is_named(names: str, complaint: str) -> None:
    code = (
        "import os; from daemon.tap.sockets import inherited\n"
        f"inherited({{'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid()), 'LISTEN_FDNAMES': {names!r}}}, os.getpid())"
    )
    with open(os.devnull) as null:
        number = null.fileno()
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=lambda: os.dup2(number, 3),
            pass_fds=(3,), timeout=within(), check=False,
        )  # fmt: skip
    assert InvalidTapSettings.__name__ in done.stderr
    assert complaint in done.stderr


def test_a_port_that_is_taken_is_named_with_its_setting(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "daemon.cli", "tap", f'--set=state_dir="{tmp_path}"', f"--set=tap.port={port}"],
            capture_output=True, text=True, timeout=within(), check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert f"tap.port = {port} on '127.0.0.1': Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
