"""Engines for tests: the embedded one as a process of its own, and a vLLM of another environment."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import Process


def embedded_engine(
    model: Path, *arguments: str, name: str = "tiny", log: Path = Path(os.devnull)
) -> AbstractContextManager[str]:
    """An embedded engine that serves `model`; gives its URL."""
    options = ("--model", model, "--served-model-name", name, *arguments)
    return _running("adapters.engines.embedded", *options, log=log, seconds=120.0)


def vllm_engine(python: str, model: Path, *arguments: str, log: Path) -> AbstractContextManager[str]:
    """A vLLM that serves `model`, started by `evolved engine` with the interpreter `python`; gives its URL."""
    options = ("engine", "--vllm", model, "--python", python, *arguments)
    return _running("daemon.cli", *options, log=log, seconds=600.0)


@contextlib.contextmanager
def _running(module: str, *arguments: str | Path, log: Path, seconds: float) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with Process([sys.executable, "-m", module, *arguments, "--port", str(port)], log) as process:
        process.until_answers(f"{url}/health", seconds)
        yield url
