"""Child processes of the demo: started with a scrubbed environment, logged to files, started again when they die.

The stand-in for systemd on one machine: whoever is killed comes back, in any order, a bounded number of times.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from daemon.errors import StartFailed

log = structlog.get_logger(__name__)

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "TERM")
"""Variables that a child may see: nothing that could carry a secret or change what is measured."""
_RESTARTS = 20


def scrubbed(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a child: the few harmless variables, one thread a process, and `extra`."""
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    return env | dict(extra or {})


class Child:
    """One process that is started again when it dies."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        *,
        nice: int = 0,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            extra: variables that it sees beside the harmless ones.
        """
        self.name, self.command, self.log_path, self.extra = name, list(command), log_path, dict(extra or {})
        self.restarts = 0
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        self._wanted = True
        command = ["nice", "-n", str(self._nice), *self.command] if self._nice else self.command
        with self.log_path.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=scrubbed(self.extra),
                start_new_session=True,
            )

    def check(self) -> bool:
        if not self._wanted or self._process is None or self._process.poll() is None:
            return False
        if self.restarts >= _RESTARTS:
            raise StartFailed(f"{self.name} died {self.restarts + 1} times; its last words are in {self.log_path}")
        self.restarts += 1
        log.warning("child.restarted", child=self.name, code=self._process.returncode, restarts=self.restarts)
        self.start()
        return True

    def signal(self, number: int) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    def stop(self, deadline: float = 10.0) -> None:
        """SIGTERM, then SIGKILL to its whole session after `deadline` seconds."""
        self._wanted = False
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(deadline)
            except subprocess.TimeoutExpired:
                log.warning("child.killed", child=self.name, after_seconds=deadline)
        with_children = self._process.pid
        try:
            os.killpg(with_children, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait(5)


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", name, *arguments]


def wait_until(ready: Callable[[], bool], child: Child, seconds: float) -> None:
    """Return once `ready()`.

    Raises:
        StartFailed: not within `seconds`, or the process gave up.
    """
    end = time.monotonic() + seconds
    while not ready():
        child.check()
        if time.monotonic() > end:
            raise StartFailed(f"{child.name} was not ready after {seconds:.0f} s; see {child.log_path}")
        time.sleep(0.1)
