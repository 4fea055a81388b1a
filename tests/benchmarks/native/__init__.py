"""The compiled half of a benchmark: an engine with canned answers (`engine.c`) and a load generator (`load.c`).

In Python either would be the slowest part of the run, and what it measures would be itself.
"""

import contextlib
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

SOURCES = Path(__file__).parent
_FLAGS = ("-O2", "-std=gnu11")
_COMPILE_SECONDS = 60
_START_SECONDS = 10
_SLACK_SECONDS = 120
"""What a load may take beyond its own time: it waits for the last answers."""


class Microseconds(msgspec.Struct, frozen=True):
    p50: float
    p90: float
    p99: float
    max: float


class Load(msgspec.Struct, frozen=True):
    """What one run of the generator found; see the head of `load.c`."""

    sent: int
    requests: int
    errors: int
    problem: str
    seconds: float
    rps: float
    body_bytes_min: int
    body_bytes_max: int
    total_us: Microseconds | None


class NativeError(Exception):
    """A program that could not be built or run; the message says what to do."""


class Native:
    """The two programs, compiled into a directory; what is newer than its sources there is used as it is."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._engine, self._load = (_compiled(name, directory) for name in ("engine", "load"))

    @contextlib.contextmanager
    def engine(self) -> Iterator[int]:
        """An engine; gives its port."""
        with subprocess.Popen([str(self._engine)], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                if not select.select([process.stdout], [], [], _START_SECONDS)[0]:
                    raise NativeError(f"{self._engine} did not start within {_START_SECONDS} s")
                line = process.stdout.readline()
                if not line:
                    raise NativeError(f"{self._engine} ended at once: run it by hand to see why")
                yield int(line)
            finally:
                process.kill()

    def load(
        self,
        port: int,
        body: Path,
        *,
        stream: bool = False,
        connections: int = 1,
        seconds: float = 0.0,
        requests: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> Load:
        """Post `body` over and over, for `seconds` or `requests` times; with `stream` answers must end in `[DONE]`."""
        command = [str(self._load), "--port", str(port), "--body", str(body), "--connections", str(connections)]
        command += ["--requests", str(requests)] if requests else ["--seconds", str(seconds)]
        command += ["--stream"] if stream else []
        for name, value in (headers or {}).items():
            command += ["--header", f"{name}: {value}"]
        try:
            ended = subprocess.run(command, capture_output=True, timeout=seconds + _SLACK_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise NativeError(f"the load on port {port} did not end within {error.timeout:.0f} s") from error
        if ended.returncode != 0:
            raise NativeError(f"the load on port {port}: {ended.stderr.decode().strip()}")
        return msgspec.json.decode(ended.stdout, type=Load)


def _compiled(name: str, directory: Path) -> Path:
    binary = directory / name
    newest = max(path.stat().st_mtime for path in SOURCES.glob("*.[ch]"))
    if binary.exists() and binary.stat().st_mtime > newest:
        return binary
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NativeError("no C compiler: apt install gcc libc6-dev")
    aside = directory / f"{name}.{time.monotonic_ns()}"
    command = [compiler, *_FLAGS, "-o", str(aside), str(SOURCES / f"{name}.c")]
    made = subprocess.run(command, capture_output=True, timeout=_COMPILE_SECONDS)
    if made.returncode != 0:
        raise NativeError(f"{name}.c does not compile: {made.stderr.decode()[:2000]}")
    return aside.replace(binary)
