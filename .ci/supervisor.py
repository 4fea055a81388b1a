"""One suite, run once in a process of its own that leaves nothing behind.

The supervisor is a subreaper: whatever session a child of a test makes, it stays below, and is killed when the suite is
over. A test over its limit prints its stacks and is killed, and the suite goes on without it; a suite over its limit
ends. `tests/support/progress.py` says from within what begins and how it ends.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_FAILURES = 20
"""Of a suite; with more it is red, and nothing runs again."""
GRACE_SECONDS = 20.0
"""Between asking the tests to end and killing them."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Order:
    """What to run.

    Attributes:
        argv: the command; pytest's if `tests`.
        needs: make's targets that set it up.
        only: ids of tests; None for all.
        seconds: limit of the whole.
        hang_seconds: what a test may take beyond its own limit, which pytest-timeout ends unless the test is in C.
        pause_seconds: between tries of the set-up, a registry's bad minute.
    """

    argv: list[str]
    needs: list[str]
    tests: bool
    environment: dict[str, str]
    slow: float
    seconds: float
    hang_seconds: float
    pause_seconds: float
    only: list[str] | None = None


@dataclass
class Failure:
    """Of a test, or of the suite beside its tests.

    Attributes:
        kind: "weather", "setup", "assertion", "promise" or "collection" as the plug-in says; "hang", "crash", "exit".
    """

    kind: str
    why: str


@dataclass
class Ended:
    """How it ended: `verdict` is "passed", "failed", "cut off" or "no set-up"."""

    verdict: str
    seconds: float = 0.0
    passed: int = 0
    skipped: int = 0
    failed: dict[str, Failure] = field(default_factory=dict)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    why: str = ""

    @classmethod
    def read(cls, path: Path) -> "Ended":
        """What a supervisor wrote."""
        told = json.loads(path.read_text())
        told["failed"] = {test: Failure(**failure) for test, failure in told["failed"].items()}
        return cls(**told)


class CutOff(Exception):
    """The runner wants the suite to end now."""


def become_subreaper() -> None:
    """From now on orphans below this process are its children (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> dict[int, str]:
    """Every living process below this one, with its command."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    found: dict[int, str] = {}
    ring = {os.getpid()}
    while ring:
        ring = {pid for pid, parent in parents.items() if parent in ring}
        for pid in ring:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                found[pid] = words.decode("utf-8", "replace")[:120]
    return found


def kill_descendants() -> list[str]:
    """Kill -9 all of them, and those that they start meanwhile; what they were."""
    killed: dict[int, str] = {}
    for _ in range(200):
        found = descendants()
        killed |= found
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not found:
            break
        time.sleep(0.05)
    return sorted(killed.values())


def tail(path: Path) -> str:
    """The end of a log; nothing where there is none."""
    return path.read_bytes()[-6_000:].decode("utf-8", "replace") if path.exists() else ""


class Supervisor:
    """Runs an order. `directory` gets the logs, and `ended.json` at the end."""

    def __init__(self, order: Order, directory: Path) -> None:
        self.order, self.directory, self.only = order, directory, order.only
        self._log, self._progress = directory / "log", directory / "progress.jsonl"
        self._read = 0
        self._collected: dict[str, None] = {}
        self._begun: dict[str, tuple[int, float]] = {}
        """Of each test the process that runs it, and until when it may."""
        self._ended: dict[str, dict[str, Any]] = {}

    def run(self) -> Ended:
        become_subreaper()
        signal.signal(signal.SIGTERM, _cut_off)
        # A shell starts what runs in its background with SIGINT ignored, and so would be the tests that send one. A
        # handler becomes the default in whoever is started; the runner hears a Ctrl-C itself, and ends this with -9.
        signal.signal(signal.SIGINT, lambda *_: None)
        result, began = Ended("passed"), time.monotonic()
        process = None
        try:
            if self._set_up():
                began = time.monotonic()
                process = self._start()
                while self._watch(process, began + self.order.seconds):
                    process = self._start()
                self._look()
                self._judge(process, began)
            else:
                result = Ended("no set-up", why=tail(self.directory / "setup.log"))
        except CutOff:
            self._ask_to_end(process)
            result = Ended("cut off")
            self._look()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        result.seconds = time.monotonic() - began
        left = kill_descendants()
        return self._counted(result, left)

    def _set_up(self) -> bool:
        for number in range(3):
            time.sleep(self.order.pause_seconds if number else 0)
            with (self.directory / "setup.log").open("ab") as log:
                command = ["make", "--no-print-directory", *self.order.needs]
                if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode == 0:
                    return True
        return False

    def _start(self) -> "subprocess.Popen[bytes]":
        argv = list(self.order.argv)
        environment = {**os.environ, **self.order.environment, "EVOLVED_SLOW": f"{self.order.slow:.2f}"}
        # Hundreds of processes start in a run: each would compile all that it imports.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if self.order.tests:
            argv += ["-o", f"cache_dir={self.directory}/cache"]
            environment["EVOLVED_PROGRESS"] = str(self._progress)
        if self.only is not None:
            (self.directory / "only.json").write_text(json.dumps(self.only))
            environment["EVOLVED_ONLY"] = str(self.directory / "only.json")
            argv += ["-n", "0"] if "-n" in argv else []
        with self._log.open("ab") as log:
            return subprocess.Popen(
                argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _watch(self, process: "subprocess.Popen[bytes]", end: float) -> bool:
        """Wait until it ends; whether it was killed for a test that hung, and others are left to run."""
        while process.poll() is None:
            time.sleep(0.2)
            self._look()
            if time.monotonic() > end:
                self._abort(process.pid, process)
                return False
            for test, (pid, limit) in list(self._begun.items()):
                if test not in self._ended and time.time() > limit:
                    self._abort(pid, process)
                    self._note(test, "hang", f"did not end, and was killed; its stacks:\n{tail(self._log)}")
                    if pid == process.pid:
                        kill_descendants()
                        self.only = [other for other in self._collected if other not in self._ended]
                        return bool(self.only)
                    # It was a worker of pytest-xdist: another takes its place, and the session goes on.
        return False

    def _abort(self, pid: int, process: "subprocess.Popen[bytes]") -> None:
        """Stacks of all threads into the log (faulthandler answers SIGABRT), then the end."""
        for number in (signal.SIGABRT, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
            # poll() reaps it; a worker is another's child, which reaps it.
            if _came(lambda: process.poll() is not None or pid not in descendants(), 5.0):
                return

    def _ask_to_end(self, process: "subprocess.Popen[bytes] | None") -> None:
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGINT)
            _came(lambda: process.poll() is not None, GRACE_SECONDS)

    def _look(self) -> None:
        """Read what the tests have said since."""
        if not self._progress.exists():
            return
        with self._progress.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in map(json.loads, whole.splitlines()):
            if "collected" in line:
                self._collected |= dict.fromkeys(line["collected"])
            elif "begin" in line:
                self._begun[line["begin"]] = (line["pid"], line["at"] + line["limit"] + self.order.hang_seconds)
            else:
                self._ended[line.pop("end")] = line

    def _note(self, test: str, kind: str, why: str) -> None:
        self._ended.setdefault(test, {"outcome": "failed", "kind": kind, "seconds": 0.0, "why": why})

    def _judge(self, process: "subprocess.Popen[bytes] | None", began: float) -> None:
        status = process.returncode if process is not None else 0
        if time.monotonic() > began + self.order.seconds:
            self._note("the suite", "hang", f"was over its limit of {self.order.seconds:.0f} s\n{tail(self._log)}")
            return
        if any(end["kind"] == "collection" for end in self._ended.values()):
            return  # that is why none began
        wanted = {**self._collected, **dict.fromkeys(self.order.only or ())}
        missing = [test for test in wanted if test not in self._ended]
        for test in missing[:MOST_FAILURES]:
            self._note(test, "crash", f"did not come to its end, and so did not pass:\n{tail(self._log)}")
        if len(missing) > MOST_FAILURES:
            self._note("the suite", "crash", f"{len(missing)} tests did not come to their end")
        if status != 0 and not any(end["outcome"] == "failed" for end in self._ended.values()):
            # The tests are well and their session is not: a secret in a log that outlives them, say.
            self._note("the suite", "promise" if self.order.tests and status == 1 else "exit", tail(self._log))

    def _counted(self, result: Ended, left: list[str]) -> Ended:
        outcomes = [end["outcome"] for end in self._ended.values()]
        result.passed, result.skipped, result.left = outcomes.count("passed"), outcomes.count("skipped"), left
        result.failed = {
            test: Failure(end["kind"], end["why"]) for test, end in self._ended.items() if end["outcome"] == "failed"
        }
        if result.failed and result.verdict == "passed":
            result.verdict = "failed"
        result.slowest = sorted(((end["seconds"], test) for test, end in self._ended.items()), reverse=True)[:10]
        return result


def _cut_off(*_: object) -> None:
    raise CutOff


def _came(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def main(directory: Path) -> None:
    """Run what `order.json` says."""
    order = Order(**json.loads((directory / "order.json").read_text()))
    ended = Supervisor(order, directory).run()
    unfinished = directory / "ended.json.part"
    unfinished.write_text(json.dumps(asdict(ended)))
    unfinished.rename(directory / "ended.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
