"""AppWorld's documents and server, from its own environment, each a process of its own."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import Process, run

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-appworld" / "bin" / "python"
START_SECONDS = 120.0
"""9 to 24 on two cores."""
_PROGRAM = str(ROOT / "tests" / "appworld" / "documents.py")
_SYNTHETIC = str(ROOT / "tests" / "appworld" / "synthetic.py")


class AppWorldMissing(RuntimeError):
    """Its environment is not there."""


def documents(directory: Path) -> dict[str, Path]:
    """Its OpenAPI documents by app, written into `directory`.

    Raises:
        AppWorldMissing: see `make test-appworld`.
    """
    _require()
    run([PYTHON, _PROGRAM, directory], START_SECONDS, env=_environment()).check_returncode()
    return {path.stem: path for path in sorted(directory.glob("*.json"))}


def synthetic_tasks(root: Path) -> None:
    """Tasks of our own in AppWorld's format, in `root`/data.

    Raises:
        AppWorldMissing: see `make test-appworld`.
    """
    _require()
    run([PYTHON, "-I", "-B", _SYNTHETIC, root], START_SECONDS, env=_environment(), cwd=root).check_returncode()


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """Its API server with empty databases; gives its URL. What it says is in `directory`/server.log.

    Raises:
        AppWorldMissing: see `make test-appworld`.
    """
    _require()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [PYTHON, _PROGRAM, "--serve", str(port)]
    with Process(command, directory / "server.log", cwd=directory, env=_environment()) as process:
        process.until_answers(f"{url}/gmail/openapi.json", START_SECONDS)
        yield url


def _require() -> None:
    if not (PYTHON.parent.parent / "ready").exists():
        raise AppWorldMissing("run `make test-appworld`")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(PYTHON.parent.parent / "home")}
