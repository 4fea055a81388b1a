"""An installation in a directory: its settings in a file, and its processes as an operator starts them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from daemon.settings.config import Config, load
from daemon.settings.toml import merge
from tests.support.ports import free_port


class Installation:
    """Settings, and the processes that run with them."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory, self.file = directory, directory / "config.toml"
        directory.mkdir(parents=True, exist_ok=True)
        self.ports = {name: free_port() for name in ("tap", "admin", "control", "broker")}
        self._table: dict[str, Any] = {
            "state_dir": str(directory / "state"),
            "broker": {"port": self.ports["broker"], "store_bytes": 8 << 30},
            "tap": {"port": self.ports["tap"], "admin_port": self.ports["admin"]},
            "control": {"port": self.ports["control"]},
        }
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        """Lay `settings` over those that are there, and write the file."""
        self._table = merge(self._table, settings)
        self.file.write_text(tomli_w.dumps(self._table), encoding="utf-8")

    @property
    def config(self) -> Config:
        return load(self.file)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "daemon.cli", arguments[0], "--config", str(self.file), *arguments[1:]]

    def run(self, *arguments: str, seconds: float = 90.0, **options: Any) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=seconds, check=False, **options
        )  # fmt: skip

    @contextlib.contextmanager
    def running(self, name: str, environment: Mapping[str, str] | None = None) -> Iterator["Running"]:
        """`evolved NAME`, ended with SIGTERM."""
        log = self.directory / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                self.command(name), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, **(environment or {})},
            )  # fmt: skip
        try:
            yield Running(process, log)
        finally:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Running:
    """A process, and what it wrote."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self.log = process, log

    def hangup(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def said(self, *words: str) -> bool:
        """Whether one line of the log has all of `words`."""
        lines = self.log.read_text(errors="replace").splitlines()
        return any(all(word in line for word in words) for line in lines)

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for it, for as long as the process lives."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"it ended: {self.log.read_text(errors='replace')[-3000:]}"
            assert time.monotonic() < end, f"not in time: {self.log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.05)

    def until_said(self, *words: str) -> None:
        self.until(lambda: self.said(*words))


def listens(port: int) -> bool:
    """Whether somebody takes connections at `port` of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False
