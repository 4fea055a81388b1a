"""An installation in a directory: its settings in a file, its processes, and an account of every call that agents made.

The truth is on the agents' side: the response ids that they got, against the rows of the store.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tomli_w

from actors.system.broker import read_credentials
from actors.system.errors import BrokerFailed
from daemon.demo.processes import Child
from daemon.demo.world import answers
from daemon.settings.reading import load
from daemon.settings.tables import Config
from daemon.settings.toml import merge
from tests.support.databases import rows
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.process import Process, listens, run

if TYPE_CHECKING:
    from tests.support.pipeline import Agents


class Account(msgspec.Struct, frozen=True):
    """What the agents saw and what the store has of it."""

    exchanges: int
    lost: int
    doubled: int
    """Response ids that stand in the store twice, and those that no agent saw."""
    loose: int
    """Exchanges in no trajectory."""
    split: int
    """Runs that are more than one trajectory, or not the only one in it."""
    unattributed: int
    attributed_twice: int
    client_errors: int


class Installation:
    """Settings, and the processes that run with them."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory, self.file = directory, directory / "config.toml"
        directory.mkdir(parents=True, exist_ok=True)
        self.ports = {name: free_port() for name in ("tap", "admin", "control")}
        self._table: dict[str, Any] = {
            "state_dir": str(directory / "state"),
            "limits": {"streams_gb": 8.0},
            "tap": {"listen": f"127.0.0.1:{self.ports['tap']}", "admin": f"127.0.0.1:{self.ports['admin']}"},
            "control": {"listen": f"127.0.0.1:{self.ports['control']}"},
        }
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        """Lay `settings` over those that are there, and write the file."""
        self._table = merge(self._table, settings)
        self.file.write_text(tomli_w.dumps(self._table), encoding="utf-8")

    @property
    def broker_listens(self) -> bool:
        """Whether its nats-server does, at the port that it took for itself."""
        with contextlib.suppress(BrokerFailed):
            url = read_credentials(self.config.state / "broker" / "credentials.json").url
            return listens(int(url.rpartition(":")[2]))
        return False

    @property
    def config(self) -> Config:
        return load(self.file)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "daemon.cli", arguments[0], "--config", str(self.file), *arguments[1:]]

    def run(self, *arguments: str, seconds: float = 120.0, **options: Any) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return run(self.command(*arguments), seconds, **options)

    def child(self, name: str, *arguments: str) -> Child:
        """One that is started again when it dies."""
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        return Child(name, self.command(*arguments), logs / f"{name}.log")

    def ask(self, query: str) -> list[Any]:
        """The store's answer."""
        return rows(self.config.store_url, query)

    def account(self, agents: "Agents") -> Account:
        """The agents' ids against the rows."""
        calls = self.ask("SELECT response_id, trajectory_id FROM exchanges WHERE response_id <> ''")
        closed = self.ask("SELECT id, attributed FROM trajectories WHERE source = 'production'")
        sent = self.ask("SELECT output_id FROM outbox WHERE actor = 'attributor' AND subject = 'trajectory.attributed'")
        stored, members = Counter(response for response, _ in calls), Counter(run for _, run in calls)
        told = Counter(output.removeprefix("trajectory.attributed:") for (output,) in sent)
        seen, place = [response for run in agents.runs for response in run], dict(calls)
        whole = [({place.get(response, "") for response in run}, len(run)) for run in agents.runs]
        return Account(
            exchanges=len(seen),
            lost=sum(stored[response] == 0 for response in seen),
            doubled=sum(number > 1 for number in stored.values()) + len(stored.keys() - set(seen)),
            loose=members[""],
            split=sum(len(runs) != 1 or members[next(iter(runs))] != length for runs, length in whole),
            unattributed=sum(not attributed or told[run] == 0 for run, attributed in closed),
            attributed_twice=sum(told[run] > 1 for run, _ in closed) + len(told.keys() - {run for run, _ in closed}),
            client_errors=agents.errors.total(),
        )

    @contextlib.contextmanager
    def running(self, name: str, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
        """`evolved NAME`, ended with SIGTERM."""
        with Process(
            self.command(name), self.directory / f"{name}.log", env={**os.environ, **(environment or {})}
        ) as process:
            yield process


class Tapped(Installation):
    """With a broker and a tap that are started again when they die."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        self.tap_port = self.ports["tap"]
        self.broker, self.tap = self.child("broker", "broker"), self.child("tap", "tap")

    async def start_tap(self) -> None:
        """Start both, and wait until the tap answers."""
        self.broker.start()
        self.tap.start()
        await until(lambda: asyncio.to_thread(answers, f"http://127.0.0.1:{self.tap_port}/health"), "the tap answers")
