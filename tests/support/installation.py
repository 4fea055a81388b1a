"""An installation in a directory: its settings in a file, and its processes as an operator starts them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from daemon.settings.config import Config, load
from daemon.settings.toml import merge
from tests.support.ports import free_port
from tests.support.process import Process, run


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

    def run(self, *arguments: str, seconds: float = 120.0, **options: Any) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return run(self.command(*arguments), seconds, **options)

    @contextlib.contextmanager
    def running(self, name: str, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
        """`evolved NAME`, ended with SIGTERM."""
        with Process(
            self.command(name), self.directory / f"{name}.log", env={**os.environ, **(environment or {})}
        ) as process:
            yield process
