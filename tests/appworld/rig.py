"""AppWorld's documents and server, from its own environment, each a process of its own."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-appworld" / "bin" / "python"
PATIENCE = 120.0
"""Seconds until the server must answer; 9 to 24 on two cores, more beside other work."""
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
    subprocess.run([PYTHON, _PROGRAM, directory], env=_environment(), check=True, timeout=PATIENCE)
    return {path.stem: path for path in sorted(directory.glob("*.json"))}


def synthetic_tasks(root: Path) -> None:
    """Tasks of our own in AppWorld's format, in `root`/data.

    Raises:
        AppWorldMissing: see `make test-appworld`.
    """
    _require()
    subprocess.run([PYTHON, "-I", "-B", _SYNTHETIC, root], env=_environment(), check=True, timeout=PATIENCE, cwd=root)


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """Its API server with empty databases; gives its URL. What it says is in `directory`/server.log.

    Raises:
        AppWorldMissing: see `make test-appworld`.
        RuntimeError: it does not come up.
    """
    _require()
    port, log = free_port(), directory / "server.log"
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [PYTHON, _PROGRAM, "--serve", str(port)], cwd=directory, env=_environment(), stdout=out, stderr=out
        )
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"AppWorld's server does not come up: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _require() -> None:
    if not (PYTHON.parent.parent / "ready").exists():
        raise AppWorldMissing("run `make test-appworld`")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(PYTHON.parent.parent / "home")}


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/gmail/openapi.json", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False
