"""The tap as a process: metrics, drain, signals, sockets that it is given, and what it tells a service manager."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from actors.messages import Exchange
from daemon.tap.errors import InvalidTapSettings, PortTaken
from daemon.tap.sockets import bind, inherited, port_of
from daemon.tap.spool import SpoolReader
from tests.support.engine import STREAM_HEAD, Asked, Engine, chunk, stream_pieces
from tests.support.patience import until, wait_until, within
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.tapping import BODY, Rig, post, raw, read_all, running_tap

pytestmark = pytest.mark.anyio
FEEDBACK = b'{"response_id": "r", "outcome": 1}'
JSON = b"Content-Type: application/json"


async def test_the_admin_port_tells_what_was_asked_kept_and_shed_and_is_no_way_to_the_engine(
    http: httpx.AsyncClient, rig: Rig
) -> None:
    await http.post("/v1/chat/completions", json=BODY)
    await http.post("/v1/feedback", json={})
    await rig.records()
    await until(lambda: rig.tap.spool.waiting == 0, "the scribe has told that it has written")
    async with rig.http(rig.admin) as admin:
        text = (await admin.get("/metrics")).text
        assert (await admin.get("/v1/models")).status_code == 404
    for line in (
        'requests_total{route="engine",status="200"} 1.0',
        'feedback_total{result="rejected"} 1.0',
        "spool_written_total 1.0",
        'spool_shed_total{reason="memory"} 0.0',
    ):
        assert f"evolved_tap_{line}" in text


# -- ends --------------------------------------------------------------------------------------------------------------


async def shut(rig: Rig) -> bool:
    """Whether the tap takes no more connections."""
    try:
        async with raw(rig):
            return False
    except OSError:
        return True


@pytest.mark.promise
async def test_a_drain_finishes_what_is_under_way_and_answers_whom_it_had_accepted(
    engine: Engine, tmp_path: Path
) -> None:
    async def slow(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        first, *rest = stream_pieces(tokens=False)
        await stream.send(STREAM_HEAD + chunk(first))
        await engine.gate.wait()
        await stream.send(b"".join(map(chunk, rest)) + b"0\r\n\r\n")
        return True

    engine.script = slow
    async with (
        running_tap(tmp_path, engine.port, drain_seconds=within()) as rig,
        raw(rig) as client,
        raw(rig) as accepted,
        raw(rig) as silent,
    ):
        await client.send(post())
        await client.receive()
        await until(lambda: rig.tap.counts.connections == 3, "all are accepted")
        rig.stop.set()
        await until(lambda: shut(rig), "the port is shut")
        await accepted.send(post(FEEDBACK, JSON, path=b"/v1/feedback"))
        assert (await read_all(accepted)).startswith(b"HTTP/1.1 202 ")
        with pytest.raises(anyio.EndOfStream):
            await silent.receive()
        engine.gate.set()
        assert (await read_all(client)).endswith(b"0\r\n\r\n")
    assert len([record for record in await rig.records(2) if isinstance(record, Exchange) and record.complete]) == 1


@pytest.mark.promise
async def test_a_connection_that_a_drain_accepts_last_ends_with_it(tmp_path: Path) -> None:
    async with running_tap(tmp_path, free_port()) as rig:
        # Nothing is awaited in between: the tap accepts it in the round of its loop in which it hears of the end.
        with socket.create_connection(("127.0.0.1", rig.bound.port)) as late:
            late.sendall(post(FEEDBACK, JSON, path=b"/v1/feedback"))
            rig.stop.set()
            late.settimeout(within())
            answer = await anyio.to_thread.run_sync(late.recv, 65_536)
            assert answer.startswith(b"HTTP/1.1 202 ")
            assert await anyio.to_thread.run_sync(late.recv, 65_536) == b"", "it is closed"
            await until(lambda: not rig.tap.counts.connections, "nobody is left")
            assert rig.tap.counts.errors["cut_off"] == 0


# -- sockets and a service manager, which is this test -----------------------------------------------------------------

_START = (
    "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid());"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Manager:
    """As systemd does it: holds the socket, starts and stops the process behind it, listens to what it tells."""

    def __init__(self, directory: Path) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.socket.getsockname()[1]
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(str(directory / "notify"))
        self.told.settimeout(within())
        self._directory = directory
        (directory / "state").mkdir()

    def start(self) -> None:
        number = self.socket.fileno()
        given = {
            "LISTEN_FDS": "1", "LISTEN_FDNAMES": "agents", "NOTIFY_SOCKET": str(self._directory / "notify"),
            "WATCHDOG_USEC": "400000",
        }  # fmt: skip
        settings = [f'state_dir="{self._directory}/state"', "tap.listen=127.0.0.1:1", "tap.admin=127.0.0.1:0"]
        self._process = Process(
            [sys.executable, "-c", _START, "-m", "daemon.cli", "tap", *[f"--set={text}" for text in settings]],
            self._directory / "log", env={**os.environ, **given}, preexec_fn=lambda: os.dup2(number, 3), pass_fds=(3,),
        )  # fmt: skip
        self.wait_for("READY=1")

    def wait_for(self, line: str) -> None:
        while line not in self.told.recv(4096).decode().splitlines():
            pass

    def forget(self) -> None:
        """What was told until now: there is room for few lines, and what is told beyond that is lost."""
        self.told.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.told.recv(4096):
                pass
        self.told.settimeout(within())

    def stop(self) -> int:
        self._process.signal(signal.SIGHUP)  # of a terminal that is closed: it means nothing
        return self._process.stop()

    def close(self) -> None:
        self._process.kill()
        self.socket.close()
        self.told.close()


def ask(port: int) -> str:
    """Status line of the answer to one report, or the error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=within()) as one:
            one.sendall(post(FEEDBACK, JSON, b"Connection: close", path=b"/v1/feedback"))
            return one.makefile("rb").readline().decode().strip()
    except OSError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.promise
def test_a_restart_under_load_refuses_no_connection_loses_no_report_and_the_manager_hears_of_it(tmp_path: Path) -> None:
    answers: list[str] = []
    over = threading.Event()

    def agent() -> None:
        while not over.is_set():
            answers.append(ask(manager.port))

    agents = [threading.Thread(target=agent) for _ in range(4)]
    with contextlib.closing(Manager(tmp_path)) as manager:
        manager.start()
        for one in agents:
            one.start()
        try:
            wait_until(lambda: len(answers) >= 50, "the agents are answered")
            assert manager.stop() == 0
            manager.start()
            wait_until(lambda enough=len(answers) + 50: len(answers) >= enough, "they still are")
        finally:
            over.set()
        for one in agents:
            one.join(within())
        assert set(answers) == {"HTTP/1.1 202 Accepted"}
        manager.forget()
        manager.wait_for("WATCHDOG=1")
        assert manager.stop() == 0
        manager.wait_for("STOPPING=1")
    assert len(SpoolReader(tmp_path / "state" / "spool" / "0").read(100_000, 1 << 30)) == len(answers)


def test_sockets_are_taken_by_name_and_children_hear_nothing_of_them() -> None:
    environment = {"LISTEN_FDS": "2", "LISTEN_PID": "7", "LISTEN_FDNAMES": "agents:mirror", "HOME": "/"}
    assert inherited(environment, pid=8) == {}
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(("names", "complaint"), [("postgres", "knows agents and mirror"), ("agents", "ListenStream=")])
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


def test_a_port_that_another_tap_listens_on_is_refused() -> None:
    (first,) = bind("127.0.0.1", 0, "tap.port")
    with first:
        port = port_of([first])
        first.listen()
        with pytest.raises(PortTaken, match=r"tap\.port = \d+ .*Address already in use.*takes another"):
            bind("127.0.0.1", port, "tap.port")
    bind("127.0.0.1", port, "tap.port")[0].close()
