"""The tap as it is shipped, in a process of its own, and what that process holds."""

import contextlib
import importlib
import multiprocessing
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemon.tap.settings import TapSettings
from tests.support.patience import wait_until, within
from tests.support.process import family, listens
from tests.support.tapping import engines_at
from tests.support.wire import Client


class TapProcess:
    """A tap as it is shipped."""

    def __init__(self, port: int, admin_port: int, pid: int, spool: Path) -> None:
        self.port, self.admin_port, self.pid, self.spool = port, admin_port, pid, spool

    def rss(self) -> int:
        """Bytes of memory of the process that agents talk to: pages of shared files come and go and are no growth."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024

    def descriptors(self) -> int:
        """Open files and sockets of the tap and of its children."""
        found = 0
        for pid in family(self.pid):
            with contextlib.suppress(OSError):
                found += len(os.listdir(f"/proc/{pid}/fd"))
        return found

    def cpu_seconds(self) -> float:
        """Used so far, by the tap and its children."""
        ticks = 0
        for pid in family(self.pid):
            with contextlib.suppress(OSError):
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def settle(self) -> None:
        """Return when the tap has looked at all that lies in its sockets now: it answers this by itself, and only in a
        later turn of its loop than that."""
        for _ in range(2):
            with Client(self.port) as client:
                client.send(b"GET /nowhere HTTP/1.1\r\nHost: tap\r\n\r\n")
                assert client.response().status in (401, 404)

    def stuff(self, client: Client, data: bytes) -> int:
        """Send `data` over `client` until the tap takes no more of it; how many bytes it, or a kernel, took."""
        client.sock.setblocking(False)
        rest, stuck = memoryview(data), False
        with contextlib.suppress(ConnectionError):
            while rest:
                try:
                    rest, stuck = rest[client.sock.send(rest) :], False
                except BlockingIOError:
                    if stuck:
                        break
                    self.settle()
                    stuck = True
        return len(data) - len(rest)

    def metrics(self) -> dict[str, float]:
        """The tap's own figures, by name with labels."""
        with Client(self.admin_port) as client:
            client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            lines = client.response().body.decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}


def _run(settings: TapSettings, redaction: dict[str, Any] | None, constants: Mapping[str, float]) -> None:
    from daemon.cli import garbage
    from daemon.logs import configure
    from daemon.tap.process import main

    configure(level=50)
    garbage.seldom()
    for name, value in constants.items():
        module, _, constant = name.partition(".")
        setattr(importlib.import_module(f"daemon.tap.{module}"), constant, value)
    main(settings, redaction)


@contextlib.contextmanager
def tap_process(
    directory: Path, upstream: int, *, redaction: dict[str, Any] | None = None, constants: Mapping[str, float] = {},
    **settings: object,
) -> Iterator[TapProcess]:  # fmt: skip
    """A tap in its own process, before the engine on port `upstream`; ended with SIGTERM, or SIGKILL. `constants` are
    other values for some of `daemon.tap`, by MODULE.NAME."""
    with contextlib.ExitStack() as stack:
        # Held while the tap lives: nobody else gets these ports, and the tap listens with SO_REUSEPORT.
        port, admin_port = stack.enter_context(_held()), stack.enter_context(_held())
        spool = directory / "spool" / "0"
        told = {"upstreams": engines_at(upstream), "spool_dir": str(spool.parent), "drain_seconds": 1.0}
        told |= settings
        context = multiprocessing.get_context("spawn")
        process = context.Process(
            target=_run, name="a-tap",
            args=(TapSettings(port=port, admin_port=admin_port, **told), redaction, dict(constants)),
        )  # fmt: skip
        process.start()
        try:
            wait_until(lambda: listens(port) or not process.is_alive(), "the tap listens")
            assert process.is_alive(), f"the tap died: exit code {process.exitcode}"
            yield TapProcess(port, admin_port, process.pid or 0, spool)
            assert process.is_alive(), f"the tap died: exit code {process.exitcode}"
        finally:
            process.terminate()
            process.join(within())
            if process.is_alive():
                process.kill()
                process.join()


@contextlib.contextmanager
def _held() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
