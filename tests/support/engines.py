"""Engines for tests: the embedded one as a process of its own, and a vLLM of another environment."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import Process


@contextlib.contextmanager
def embedded_engine(model: Path, *arguments: str, name: str = "tiny", log: Path | None = None) -> Iterator[str]:
    """An embedded engine that serves `model`; gives its URL."""
    port = free_port()
    command = [
        sys.executable, "-m", "adapters.engines.embedded", "--model", str(model), "--port", str(port),
        "--served-model-name", name, *arguments,
    ]  # fmt: skip
    with _running(command, port, log or Path(os.devnull), seconds=120.0) as url:
        yield url


@contextlib.contextmanager
def vllm_engine(python: str, model: Path, *arguments: str, log: Path) -> Iterator[str]:
    """A vLLM that serves `model`, started by `evolved engine` with the interpreter `python`; gives its URL."""
    port = free_port()
    command = [
        sys.executable, "-m", "daemon.cli", "engine", "--vllm", str(model), "--python", python, "--port", str(port),
        *arguments,
    ]  # fmt: skip
    with _running(command, port, log, seconds=600.0) as url:
        yield url


@contextlib.contextmanager
def _running(command: list[str], port: int, log: Path, seconds: float) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    with Process(command, log) as process:
        process.until_answers(f"{url}/health", seconds)
        yield url
