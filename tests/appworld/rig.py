"""AppWorld's documents and tasks, made by its own environment (`make test-appworld`), each in a process of its own."""

import os
from pathlib import Path

from tests.support.process import run

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-appworld" / "bin" / "python"
START_SECONDS = 120.0
"""9 to 24 on two cores."""


def documents(directory: Path) -> dict[str, Path]:
    """Its OpenAPI documents by app, written into `directory`."""
    _run("documents.py", directory)
    return {path.stem: path for path in sorted(directory.glob("*.json"))}


def synthetic_tasks(root: Path) -> None:
    """Tasks of our own in AppWorld's format, in `root`/data."""
    _run("synthetic.py", root)


def _run(program: str, directory: Path) -> None:
    if not (PYTHON.parent.parent / "ready").exists():
        raise RuntimeError("AppWorld's environment is missing: run `make test-appworld`")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    environment = {**kept, "HOME": str(PYTHON.parent.parent / "home")}
    command = [PYTHON, "-I", "-B", str(Path(__file__).with_name(program)), directory]
    run(command, START_SECONDS, env=environment, cwd=directory).check_returncode()
