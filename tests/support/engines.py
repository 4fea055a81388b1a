"""Engines for tests: the embedded one as a process of its own, and a vLLM of another environment."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import httpx

from tests.support.ports import free_port


@contextlib.contextmanager
def embedded_engine(model: Path, *arguments: str, name: str = "tiny", log: Path | None = None) -> Iterator[str]:
    """An embedded engine that serves `model`; gives its URL."""
    port = free_port()
    command = [
        sys.executable, "-m", "adapters.engines.embedded", "--model", str(model), "--port", str(port),
        "--served-model-name", name, *arguments,
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("wb")) if log else subprocess.DEVNULL
        yield stack.enter_context(_running(command, port, out, seconds=60.0))


@contextlib.contextmanager
def vllm_engine(python: str, model: Path, *arguments: str, log: Path) -> Iterator[str]:
    """A vLLM that serves `model`, started by `evolved engine` with the interpreter `python`; gives its URL."""
    port = free_port()
    command = [
        sys.executable, "-m", "daemon.cli", "engine", "--vllm", str(model), "--python", python, "--port", str(port),
        "--log", str(log), *arguments,
    ]  # fmt: skip
    with _running(command, port, None, seconds=600.0) as url:
        yield url


@contextlib.contextmanager
def _running(command: list[str], port: int, out: BinaryIO | int | None, seconds: float) -> Iterator[str]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, seconds)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(40)  # longer than `evolved engine` gives vLLM
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the engine ended with status {process.returncode}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=1.0).status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the engine was not ready after {seconds} s")
