"""Processes of tests: each in a session of its own, its output in a file, and gone at the end with all that it started.

Needs the standard library only: some suites run in an environment of their own.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.patience import Late, wait_until, within

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Process:
    """A running command. As a context manager it is stopped at the end."""

    def __init__(self, command: Sequence[str | Path], log: Path, **options: Any) -> None:
        """
        Args:
            log: where its output goes, after what is there.
            options: of `subprocess.Popen`.
        """
        self.command, self.log = [str(part) for part in command], log
        with log.open("ab") as out:
            told = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "start_new_session": True} | options
            self.process = subprocess.Popen(self.command, **told)

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self, characters: int = 3000) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def said(self, *words: str) -> bool:
        """Whether one line of its output has all of `words`."""
        lines = self.log.read_text(errors="replace").splitlines()
        return any(all(word in line for word in words) for line in lines)

    def until(self, condition: Callable[[], Any], seconds: float = 60.0, what: str = "what it should do") -> None:
        """Wait until `condition()`, as long as the process lives.

        Raises:
            AssertionError: it ended; with its last words.
            Late: not `within(seconds)`.
        """

        def there() -> bool:
            if condition():
                return True
            assert self.process.poll() is None, f"{self._name} ended with {self.process.returncode}:\n{self.tail()}"
            return False

        try:
            wait_until(there, what, seconds)
        except Late as late:
            raise Late(f"{self._name}: {late}\n{self.tail()}") from None

    def until_said(self, *words: str) -> None:
        self.until(lambda: self.said(*words), what=f"a line with {words}")

    def until_listens(self, port: int) -> None:
        self.until(lambda: listens(port), what=f"port {port} is open")

    def until_answers(self, url: str, seconds: float = 60.0) -> None:
        """Wait until `url` gives a 200."""
        self.until(lambda: status(url) == 200, seconds, f"{url} answers")

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code.

        Raises:
            Late: it did not end `within(seconds)`.
        """
        try:
            return self.process.wait(within(seconds))
        except subprocess.TimeoutExpired:
            raise Late(f"{self._name} did not end within {within(seconds):g} s:\n{self.tail()}") from None

    def signal(self, number: int) -> None:
        """To the process itself, if it runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM; SIGKILL for whatever is left of it and of its children `within(seconds)`. Its exit code."""
        if self.process.poll() is None:
            children = family(self.pid)[1:]
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(within(seconds))
            self._kill(children)
        else:
            self._kill([])
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL, for all that it started as well."""
        self._kill(family(self.pid)[1:] if self.process.poll() is None else [])

    def _kill(self, children: list[int]) -> None:
        for end, pid in ((os.killpg, self.pid), *((os.kill, child) for child in children)):
            with contextlib.suppress(ProcessLookupError):
                end(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def _name(self) -> str:
        return " ".join(self.command)[:200]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run(command: Sequence[str | Path], seconds: float = 120.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """`command` to its end. `subprocess.run(timeout=...)` waits for grandchildren that hold its pipes; this kills them.

    Raises:
        Late: it did not end `within(seconds)`.
    """
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "stdout"), Path(directory, "stderr")
        with out.open("wb") as file, Process(command, err, **{"stdout": file, **options}) as process:
            try:
                code = process.wait(seconds)
            finally:
                process.kill()
        told = out.read_text(errors="replace"), err.read_text(errors="replace")
    return subprocess.CompletedProcess(command, code, *told)


def listens(port: int) -> bool:
    """Whether somebody takes connections at `port` of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def status(url: str) -> int:
    """Of the answer; 0: there is none."""
    try:
        with _DIRECT.open(url, timeout=10.0) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def family(pid: int) -> list[int]:
    """`pid` and its living descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process that is more than an exit status which nobody has read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
